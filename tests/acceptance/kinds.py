"""One kind of sink after the other, as `apps/kinds.py` has them: what its effects are, and who is connected to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow.parquet as pq
import pytest

from tests.acceptance.conftest import Scene
from tests.acceptance.outlets import TableOutlet, TopicOutlet
from tests.http_server import Server as HttpServer
from tests.http_server import running
from tests.postgres_server import Server as PostgresServer

KINDS = ("function", "object", "http", "kafka", "postgres", "parquet")


class Kind(ABC):
    """Where the effects of one kind of sink can be seen."""

    words: tuple[str, ...] = ()
    """More words for `tidegate run`."""
    environment: Mapping[str, str]

    @abstractmethod
    def ids(self) -> set[int]:
        """The numbers that are there."""

    def connections(self) -> int | None:
        """How many connections a run has at the sink; None where the sink is no server that could tell."""
        return None

    @property
    def unclosed(self) -> set[str] | None:
        """The workers that have opened the sink and not closed it; None where it has nothing to open."""
        return None

    @property
    def half_done(self) -> list[str]:
        """What lies beside the effects and is none."""
        return []


class InFile(Kind):
    """A function, or an object with something to open and to close."""

    def __init__(self, scene: Scene, kind: str) -> None:
        self._path = scene.folder / "effects"
        self._kind = kind
        self.environment = {"KIND": kind, "OUT": str(self._path)}

    def _lines(self) -> list[str]:
        return self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []

    def ids(self) -> set[int]:
        return {int(line) for line in self._lines() if line.isdigit()}

    @property
    def unclosed(self) -> set[str] | None:
        opened, closed = (
            {line.removeprefix(word) for line in self._lines() if line.startswith(word)}
            for word in ("opened ", "closed ")
        )
        return opened - closed if self._kind == "object" else None


class InRequests(Kind):
    """A real HTTP server."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self.environment = {"KIND": "http", "URL": server.url, "OUT": ""}

    def ids(self) -> set[int]:
        return {int(one.body) for one in list(self._server.taken)}

    def connections(self) -> int:
        return len(self._server.connected)


class InTopic(Kind):
    """A topic, exactly once."""

    words = ("--instance", "one")
    """Otherwise a transaction that a killed run left open holds the next one up for its timeout."""

    def __init__(self, scene: Scene) -> None:
        self._topic = TopicOutlet(scene)
        self.environment = {"KIND": "kafka", **self._topic.environment}

    def ids(self) -> set[int]:
        return set(self._topic.ids())


class InTable(Kind):
    """A table, exactly once."""

    def __init__(self, scene: Scene, server: PostgresServer) -> None:
        self._table = TableOutlet(scene, server)
        self._name = scene.name
        dsn = f"{self._table.environment['DSN']}&application_name={self._name}"
        self.environment = {"KIND": "postgres", "DSN": dsn, "OUT": ""}

    def ids(self) -> set[int]:
        [(is_made,)] = self._table.database.ask("select to_regclass('orders') is not null")
        return set(self._table.ids()) if is_made else set()

    def connections(self) -> int:
        named = "select count(*) from pg_stat_activity where application_name = %s"
        [(count,)] = self._table.database.ask(named, self._name)
        assert isinstance(count, int)
        return count


class InFolder(Kind):
    """Parquet, by DataFrame rounds."""

    def __init__(self, scene: Scene) -> None:
        self._out = scene.folder / "out"
        self.environment = {"KIND": "parquet", "OUT": str(self._out)}

    def ids(self) -> set[int]:
        paths = self._out.glob("tidegate_round=*/*.parquet")
        return {number for path in paths for number in pq.ParquetFile(path).read().column("id").to_pylist()}

    @property
    def half_done(self) -> list[str]:
        return sorted(one.name for one in (self._out / "_tidegate").iterdir())


@contextmanager
def kind_of(name: str, scene: Scene, request: pytest.FixtureRequest) -> Iterator[Kind]:
    """Give the sink of this kind; servers are started for those that need one."""
    if name == "http":
        with running() as server:
            yield InRequests(server)
    elif name == "kafka":
        yield InTopic(scene)
    elif name == "postgres":
        yield InTable(scene, request.getfixturevalue("postgres"))
    elif name == "parquet":
        yield InFolder(scene)
    else:
        yield InFile(scene, name)
