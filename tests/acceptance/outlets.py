"""Where the effects of a run can be seen, a topic or a table, and what its workers' transactions came to."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import orjson

from tests.acceptance.conftest import DOOMED, Scene
from tests.acceptance.program import Program
from tests.postgres.support import Database
from tests.postgres_server import Server
from tests.support import read_uncommitted, visible
from tidegate.names import dead_topic
from tidegate.records import Partition
from tidegate.testing import CopySeen, read_copies

OUT_PARTITIONS = 2


class Outlet(ABC):
    """What `exactly.py` writes to."""

    name: str
    environment: Mapping[str, str]
    """What the app needs to know of it."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    @abstractmethod
    def ids(self) -> Counter[int]:
        """What everybody may see, and how often."""

    @abstractmethod
    def check_marks(self) -> None:
        """The group stands at the end, and so does whatever keeps marks beside it."""

    def dead(self) -> list[CopySeen]:
        return [one for one in read_copies(self._scene.kafka, self._scene.group) if one.is_dead]


class TopicOutlet(Outlet):
    name = "kafka"

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.topic = f"{scene.name}-out"
        scene.admin.create_topic(self.topic, OUT_PARTITIONS)
        self.environment = {"OUT": self.topic}

    def ids(self) -> Counter[int]:
        scene = self._scene
        return Counter(_id(one.value) for one in visible(scene.admin, scene.kafka, self.topic))

    def written(self) -> Counter[int]:
        """What lies in the topic, whatever became of its transaction."""
        return Counter(map(_id, read_uncommitted(self._scene.kafka, self._partitions)))

    @property
    def is_settled(self) -> bool:
        """Whether no transaction is open in it."""
        admin = self._scene.admin
        return admin.ends(self._partitions) == admin.ends(self._partitions, committed_only=False)

    def dead(self) -> list[CopySeen]:
        visible(self._scene.admin, self._scene.kafka, dead_topic(self._scene.group))
        return super().dead()

    def check_marks(self) -> None:
        assert self._scene.marks() == self._scene.ends

    @property
    def _partitions(self) -> list[Partition]:
        return [Partition(self.topic, number) for number in range(OUT_PARTITIONS)]


class TableOutlet(Outlet):
    name = "postgres"

    def __init__(self, scene: Scene, server: Server) -> None:
        super().__init__(scene)
        schema = f"test_{uuid.uuid4().hex[:12]}"
        self.database = Database(f"{server.uri}&options=-csearch_path%3D{schema}")
        self.database.do(f"create schema {schema}")
        self.environment = {"DSN": self.database.dsn}

    def ids(self) -> Counter[int]:
        return Counter(self.database.ids())

    def marks(self) -> dict[Partition, int]:
        found = self.database.ask(
            'select topic, partition, mark from tidegate_offsets where "group" = %s', self._scene.group
        )
        return {Partition(topic, number): mark for topic, number, mark in found}

    def check_marks(self) -> None:
        stored = self.marks()
        committed = self._scene.admin.committed(self._scene.group, stored)
        assert {partition: one.mark for partition, one in committed.items()} == stored
        assert self._scene.marks() == self._scene.ends
        assert self.database.ask("select count(*) from tidegate_outbox") == [(0,)]


class Edges:
    """The steps of the transactions of one program, and a way to hold its workers at one: see `apps/edges.py`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pids(self, step: str) -> list[int]:
        """The workers that came to this step, in order."""
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        return [int(pid) for pid, _, words in (line.partition(" ") for line in lines) if words == step]

    def count(self, step: str) -> int:
        return len(self.pids(step))

    def hold(self, step: str) -> None:
        self._sign(step).touch()

    def release(self, step: str) -> None:
        self._sign(step).unlink()

    def _sign(self, step: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{step}")


class Copy:
    """One started copy of `exactly.py`, and the edges of its transactions."""

    def __init__(self, scene: Scene, outlet: Outlet, *words: str, **environment: str) -> None:
        self.edges = Edges(scene.folder / f"edges-{len(scene.programs) + 1}")
        more = {**outlet.environment, "EDGES": str(self.edges.path), **environment}
        self.program: Program = scene.start("exactly.py", *DOOMED, *words, **more)

    def wait_for(self, step: str, count: int = 1, *, within: float = 120) -> None:
        """Wait until its workers have come to this step so often."""
        self.program.wait_until(
            lambda: self.edges.count(step) >= count, within=within, what=f"{count} times {step!r} in a transaction"
        )

    @contextmanager
    def held(self, step: str) -> Iterator[int]:
        """Hold its workers at this step, and give the first that came there; let them go on at the end."""
        known = self.edges.count(f"held {step}")
        self.edges.hold(step)
        try:
            self.wait_for(f"held {step}", known + 1)
            yield self.edges.pids(f"held {step}")[known]
        finally:
            self.edges.release(step)


def _id(value: bytes | None) -> int:
    number: int = orjson.loads(value or b"")["id"]
    return number
