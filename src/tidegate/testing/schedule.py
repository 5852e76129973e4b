"""Pure: which fault comes when. The same seed gives the same schedule, on every machine."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

from tidegate.errors import SettingsError
from tidegate.testing.faults import PlannedFault


@dataclass(frozen=True, slots=True)
class Due:
    """A fault, when it comes, and a number that chooses whom it strikes."""

    at_seconds: float
    fault: PlannedFault
    draw: float
    """From 0 to 1: its share of those that it may strike comes before the one that it does."""

    def __str__(self) -> str:
        return f"{self.at_seconds:7.1f} s  {self.fault}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """Faults in the order in which they come. Printed, it is one line for each."""

    seconds: float
    due: tuple[Due, ...]
    seed: int | None = None

    @classmethod
    def random(cls, seed: int, seconds: float, faults: Collection[PlannedFault], *, every: float = 4.0) -> Self:
        """Make a schedule by chance: about one fault `every` so many seconds, each kind once before any comes again."""
        if not faults or seconds <= 0 or every <= 0:
            raise SettingsError("a schedule needs faults, and time for them", "name some faults, and seconds above 0")
        chance = random.Random(seed)  # noqa: S311  # it has to come again, not to be a secret
        due: list[Due] = []
        waiting: list[PlannedFault] = []
        at_seconds = chance.uniform(0, every)
        while at_seconds < seconds:
            if not waiting:
                waiting = chance.sample(list(faults), k=len(faults))
            due.append(Due(round(at_seconds, 1), waiting.pop(), round(chance.random(), 6)))
            at_seconds += chance.uniform(0.2, 1.8) * every
        return cls(seconds, tuple(due), seed)

    def __str__(self) -> str:
        name = "" if self.seed is None else f"seed {self.seed}, "
        return "\n".join([f"{name}{self.seconds:g} s, {len(self.due)} faults", *map(str, self.due)])
