"""Where the works are done: one broker, the topics that several runs read, contenders as processes."""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import topics
from bench.contenders.common import NOTE
from bench.environments import OWN, NotInstalled, check_imports, connector_jars, python_of, variables
from bench.model import Contender, Flawed
from bench.processes import Program

END_SECONDS = 20.0
READY = ("ready", " reads ")
"""What contenders print when all is loaded; the second is Tidegate's own sentence."""


@dataclass
class Stage:
    """Everything that runs share."""

    bootstrap: str
    folder: Path
    absent: dict[str, str] = field(default_factory=dict)
    _pythons: dict[str, Path] = field(default_factory=dict)
    _filled: dict[tuple[int, int, int], str] = field(default_factory=dict)

    def invite(self, contender: Contender) -> bool:
        """Set up what the contender needs; False, with a note why, where that is not possible."""
        if contender.name in self.absent:
            return False
        try:
            if contender.environment not in self._pythons:
                self._pythons[contender.environment] = python_of(contender.environment)
            if contender.environment != OWN:
                check_imports(self._pythons[contender.environment], contender.program)
            if contender.environment == "spark":
                connector_jars()
        except NotInstalled as error:
            self.absent[contender.name] = str(error)
            print(f"{contender.name} is left out: {error}", flush=True)
            return False
        return True

    def topic(self, count: int, partitions: int = topics.PARTITIONS, value_bytes: int = 100) -> str:
        """Return a topic with so many records, written where there is none yet."""
        size = (count, partitions, value_bytes)
        if size not in self._filled:
            name = f"records-{count}-{partitions}-{value_bytes}"
            topics.create(self.bootstrap, name, partitions)
            topics.fill(self.bootstrap, name, range(count), partitions=partitions, value_bytes=value_bytes)
            self._filled[size] = name
        return self._filled[size]

    def forget_all(self) -> None:
        """Give the disk back."""
        for name in self._filled.values():
            topics.delete(self.bootstrap, name)
        self._filled.clear()

    def attempt(
        self, work: str, contender: Contender, topic: str, *, url: str = "", options: Mapping[str, Any] | None = None
    ) -> Attempt:
        """Make ready for one run; `options` come on top of the contender's own."""
        given = {**contender.options[work], **(options or {})}
        if contender.environment == "spark":
            given["jars"] = connector_jars()
        job = {"work": work, "bootstrap": self.bootstrap, "topic": topic, "url": url, "options": given}
        return Attempt(self, contender, job)

    def python(self, contender: Contender) -> Path:
        return self._pythons[contender.environment]


class Attempt:
    """One contender at one topic: its folder, its group, its process, started once or again."""

    def __init__(self, stage: Stage, contender: Contender, job: Mapping[str, Any]) -> None:
        self._stage = stage
        self._contender = contender
        self.topic = str(job["topic"])
        self.group = f"bench-{uuid.uuid4().hex[:8]}"
        self.folder = Path(tempfile.mkdtemp(prefix="run-", dir=stage.folder))
        self._job = {**job, "group": self.group, "folder": str(self.folder)}
        self.program: Program | None = None

    def start(self) -> Program:
        python = str(self._stage.python(self._contender))
        command = [python, "-m", f"bench.contenders.{self._contender.program}", json.dumps(self._job)]
        environment = {**variables(own=self._contender.environment == OWN), "PYSPARK_PYTHON": python}
        self.program = Program(command, log=self.folder / "log", environment=environment, folder=self.folder)
        return self.program

    def __enter__(self) -> Program:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.program is not None:
            self.program.end(END_SECONDS)

    def wait(self, check: Callable[[], bool], within_seconds: float, what: str, every: float = 0.01) -> None:
        """Wait for a fact; a contender that ends, or takes too long, is flawed."""
        assert self.program is not None
        deadline = time.monotonic() + within_seconds
        while not check():
            if not self.program.is_running:
                raise Flawed(f"it ended by itself (code {self.program.code}): {_last(self.program.last_words())}")
            if time.monotonic() > deadline:
                raise Flawed(f"after {within_seconds:.0f} s it had not {what}")
            time.sleep(every)

    def tally(self) -> tuple[int, int]:
        """Return how many records all its processes have counted, and the sum of their ids."""
        count = total = 0
        for file in self.folder.glob("*.tally"):
            cells = file.read_bytes()
            if len(cells) == 16:
                count += int.from_bytes(cells[:8], "little", signed=True)
                total += int.from_bytes(cells[8:], "little", signed=True)
        return count, total

    def notes(self, skip: int = 0) -> list[tuple[int, float, float]]:
        """Return (id, when, age) of each record that it has noted, but for the first so many."""
        file = self.folder / "notes"
        if not file.exists():
            return []
        with file.open("rb") as source:
            source.seek(skip * NOTE.size)
            data = source.read()
        return list(NOTE.iter_unpack(data[: len(data) // NOTE.size * NOTE.size]))

    def uncommitted(self) -> int:
        return topics.uncommitted(self._stage.bootstrap, self.topic, self.group)


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:160] if lines else "it said nothing"
