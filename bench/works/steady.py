"""Works C and D write steadily while contenders read."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.environments import variables
from bench.processes import Program
from bench.stage import Stage


class Writer:
    """A process that writes so many records per second, until it is ended."""

    def __init__(self, stage: Stage, topic: str, rate: float) -> None:
        folder = Path(tempfile.mkdtemp(prefix="writer-", dir=stage.folder))
        command = [sys.executable, "-m", "bench.topics", stage.bootstrap, topic, str(rate)]
        self._program = Program(command, log=folder / "log", environment=variables(own=True), folder=folder)

    def end(self) -> int:
        """End it; return how many records it has written."""
        self._program.end(60.0)
        return int(self._program.last_words(1))


@contextmanager
def writing(stage: Stage, topic: str, rate: float) -> Iterator[Writer]:
    writer = Writer(stage, topic, rate)
    try:
        yield writer
    finally:
        writer._program.kill()
