"""What programs that ended left behind: watched until nothing of it lives."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tidegate.testing.programs import Program

LEFT_SECONDS = 30.0
"""How long what a program started may outlive it: Spark's Java and workers take some seconds to notice."""
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Gone:
    """A program of which nothing lives any more."""

    program: Program
    left: tuple[str, ...] = ()
    """What had to be killed: it had not noticed the end of its driver."""


class Remains:
    """The programs that ended, and whose processes may still live."""

    def __init__(self, left_seconds: float = LEFT_SECONDS) -> None:
        self._left_seconds = left_seconds
        self._open: list[tuple[float, Program]] = []
        self._look_at = 0.0

    @property
    def programs(self) -> list[Program]:
        """Those that are watched now."""
        return [program for _, program in self._open]

    def take(self, program: Program) -> None:
        """Watch one that has just ended."""
        self._open.append((time.monotonic() + self._left_seconds, program))

    def look(self) -> list[Gone]:
        """Return those that are over since; what lives beyond its time is killed. Looks once a second at most."""
        now = time.monotonic()
        if now < self._look_at:
            return []
        self._look_at = now + _LOOK_SECONDS
        return self._over(now)

    def wait(self) -> list[Gone]:
        """Wait until all are over."""
        found = []
        while self._open:
            found += self._over(time.monotonic())
            if self._open:
                time.sleep(_LOOK_SECONDS / 10)
        return found

    def kill(self) -> list[Program]:
        """Kill what is left of them, and watch none of them any longer."""
        left = self.programs
        for program in left:
            program.kill_all()
        self._open = []
        return left

    def _over(self, now: float) -> list[Gone]:
        found = []
        for until, program in list(self._open):
            living = program.processes()
            if living and now < until:
                continue
            left = tuple(filter(None, map(program.name_of, living)))
            program.kill_all()
            self._open.remove((until, program))
            found.append(Gone(program, left))
        return found
