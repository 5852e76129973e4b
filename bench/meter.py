"""Watches a program while it works: processor time over time, and the most memory it has had."""

from __future__ import annotations

import threading
import time

from bench.processes import Program
from bench.stats import interpolated

CPU_EVERY = 0.2
MEMORY_EVERY = 1.0
"""Looking at all pages of a Java takes a few milliseconds of the machine that is measured."""


class Meter:
    """Samples in a thread of its own, from `with` to its end."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._cpu: list[tuple[float, float]] = []
        self._own: list[tuple[float, float]] = []
        self._memory: list[tuple[float, float]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Meter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(CPU_EVERY):
            now = time.monotonic()
            self._cpu.append((now, self._program.cpu_seconds()))
            self._own.append((now, self._program.own_cpu_seconds()))
            if not self._memory or now - self._memory[-1][0] >= MEMORY_EVERY:
                self._memory.append((now, self._program.memory_mb()))

    def cpu_between(self, begin: float, end: float) -> float:
        """Processor seconds of all its processes between two moments."""
        return interpolated(self._cpu, end) - interpolated(self._cpu, begin)

    def own_cpu_between(self, begin: float, end: float) -> float:
        """The same of the first process alone: of Tidegate, the driver's Python."""
        return interpolated(self._own, end) - interpolated(self._own, begin)

    @property
    def most_memory_mb(self) -> float:
        return max((memory for _, memory in self._memory), default=0.0)

    def memory_at(self, when: float) -> float:
        return interpolated(self._memory, when)
