"""Whether faults did happen: facts that are looked for while they last, and for a while after."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tidegate.testing.faults import PlannedFault

_LOOK_SECONDS = 1.0

Look = Callable[[], str]
"""Returns in words what shows that the fault happened; nothing where it is not to be seen yet."""


@dataclass(slots=True)
class Struck:
    """A fault that was due, and what became of it."""

    fault: PlannedFault
    at_ms: int
    whom: str
    """The group that it struck; empty: all of them, or none."""
    happened: bool = False
    told: str = ""
    """What was seen of it, or why it could not be."""
    ended_ms: int = 0
    driver: int | None = None
    """The copy that it struck, by the process id of its driver; None: it struck more than one."""
    is_possible: bool = True
    """Whether there is a pipeline that can have it."""

    def __str__(self) -> str:
        return f"{self.fault.kind} {self.whom}: {self.told}"


@dataclass(frozen=True, slots=True)
class _Watch:
    struck: Struck
    look: Look
    until: float
    missing: str


class Witness:
    """Lets a fault count as soon as its evidence is there."""

    def __init__(self, look_seconds: float = _LOOK_SECONDS) -> None:
        self._look_seconds = look_seconds
        self._open: list[_Watch] = []
        self._look_at = 0.0

    @property
    def is_looking(self) -> bool:
        """Whether something is awaited yet."""
        return bool(self._open)

    def watch(self, struck: Struck, look: Look, *, within: float, missing: str) -> None:
        """Look for the evidence of a fault for so long; until it is there, the fault has not happened.

        `missing`: what is told where it does not come.
        """
        struck.happened = False
        self._open.append(_Watch(struck, look, time.monotonic() + within, missing))

    def look(self) -> None:
        """Look at what is awaited, now and then."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + self._look_seconds
            self._open = [one for one in self._open if not self._is_over(one, now)]

    @staticmethod
    def _is_over(watch: _Watch, now: float) -> bool:
        struck, seen = watch.struck, watch.look()
        if seen:
            struck.happened = True
            struck.told = ", ".join(filter(None, (struck.told, seen)))
        elif now >= watch.until:
            struck.told = ", ".join(filter(None, (struck.told, watch.missing)))
        else:
            return False
        return True
