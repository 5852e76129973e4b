"""Pure: rounds that were cancelled by us. A Python task whose round was cancelled lives on for a while."""

from __future__ import annotations

from tidegate.records import Lease

ZOMBIE_SECONDS = 4.0
"""A cancelled Python task lives on for up to 3.5 s: nobody else may have its partition before."""


class Cancelled:
    """Which rounds were cancelled, and until when their tasks may live on."""

    def __init__(self) -> None:
        self._lanes: set[int] = set()
        self._living: list[tuple[float, Lease]] = []

    def add(self, lane: int) -> None:
        """The round of this lane is cancelled."""
        self._lanes.add(lane)

    def drop(self, lane: int) -> None:
        """Its round came back with an outcome all the same."""
        self._lanes.discard(lane)

    def __contains__(self, lane: int) -> bool:
        return lane in self._lanes

    def ended(self, lease: Lease, now: float, *, is_shut_out: bool) -> None:
        """The cancelled round has ended for Spark; its task can do nothing more only where it was shut out."""
        self._living.append((now if is_shut_out else now + ZOMBIE_SECONDS, lease))

    def take_over(self, now: float) -> list[Lease]:
        """Return the rounds from which nothing more can come."""
        over = [lease for until, lease in self._living if until <= now]
        self._living = [one for one in self._living if one[0] > now]
        for lease in over:
            self._lanes.discard(lease.lane)
        return over
