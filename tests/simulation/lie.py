"""What a lie is."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.plan import KINDS, Kind, Store
from tests.simulation.simulation import Made


@dataclass(frozen=True)
class Lie:
    """A driver, or a worker, that lies, and the faults under which that shows."""

    made: Made
    kinds: tuple[Kind, ...] = KINDS
    is_frames: bool = False
    store: Store = "none"
    first: int = 0
    """The first seed to try: one shortly before the first that shows it."""
