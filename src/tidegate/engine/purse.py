"""Pure: permits to begin a record, where a rate was chosen. One purse per process, for all its lanes.

Permits come at the rate and are handed to rounds in small lots, to one lane after the other; what a round did not use
comes back with its outcome. What a dead round had counts as used: the rate is never exceeded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from tidegate.records import Lease

PATIENCE = 2.0
"""Rounds come and go, and what a dead one had is gone: a lane's turn may come later than by the rate alone."""


@dataclass
class _Lot:
    lane: int
    granted: int = 0
    spent: int = 0
    is_heard: bool = False
    """Whether it speaks to us, and so hears what it is granted while it runs. Others would only keep it from lanes."""

    @property
    def unspent(self) -> int:
        return self.granted - self.spent


class Purse:
    """Permits of one process."""

    def __init__(self, rate: float, lot_seconds: float, now: float) -> None:
        self._rate = rate
        self._lot = max(1.0, rate * lot_seconds)
        self._permits = 1.0
        self._filled_at = now
        self._rounds: dict[int, _Lot] = {}
        self._numbers = count(1)
        self._turns: dict[int, int] = {}
        """By lane, the number of its last turn: of several that run short, the one with the lowest comes first."""
        self._untold: set[int] = set()
        """Rounds that were granted more and do not know."""

    def has_some(self, now: float) -> bool:
        """Whether a round could begin a record."""
        self._fill(now)
        return self._permits >= 1

    @property
    def turn_seconds(self) -> float:
        """How long it may take until each lane has had a turn."""
        return PATIENCE * len(self._turns) * self._lot / self._rate

    def in_turn(self, leases: Iterable[Lease]) -> list[Lease]:
        """Return leases in the order in which they are to be opened."""
        return sorted(leases, key=lambda lease: self._turns.get(lease.lane, 0))

    def open(self, lane: int, round_number: int, now: float) -> int:
        """Return the first permits of a round. Others may run short as well, and their lanes' turns come before."""
        lot = self._rounds[round_number] = _Lot(lane)
        self._turns.setdefault(lane, 0)
        self._untold |= self._grant(now, opened=round_number)
        self._untold.discard(round_number)
        return lot.granted

    def top_up(self, now: float) -> dict[int, int]:
        """Give more to rounds that run short; return how many each of those has had by now."""
        told, self._untold = self._untold | self._grant(now), set()
        return {number: self._rounds[number].granted for number in sorted(told & self._rounds.keys())}

    def note_spent(self, round_number: int, spent: int) -> None:
        """A round that runs tells how many it has used."""
        if (lot := self._rounds.get(round_number)) is not None:
            lot.spent, lot.is_heard = spent, True

    def close(self, round_number: int, spent: int | None) -> None:
        """A round has ended; None: it did not tell how many it used."""
        lot = self._rounds.pop(round_number, None)
        if lot is not None and spent is not None:
            self._permits = min(self._lot, self._permits + lot.granted - spent)

    def _grant(self, now: float, opened: int | None = None) -> set[int]:
        """Give more to those that run short: first to those that can begin nothing, and lane by lane."""
        self._fill(now)
        given = set()
        short = [one for one in self._rounds.items() if one[1].is_heard or one[0] == opened]
        for number, lot in sorted(short, key=lambda one: (one[1].unspent > 0, self._turns[one[1].lane])):
            more = int(min(self._permits, self._lot - lot.unspent))
            if more >= 1:
                lot.granted += more
                self._permits -= more
                self._turns[lot.lane] = next(self._numbers)
                given.add(number)
        return given

    def _fill(self, now: float) -> None:
        self._permits = min(self._lot, self._permits + (now - self._filled_at) * self._rate)
        self._filled_at = now


class Turnstile:
    """A round's side: lets records through, evenly, as long as there are permits."""

    def __init__(self, rate: float, permits: int) -> None:
        self._gap = 1 / rate
        self._granted = permits
        self._next = self._last_next = 0.0
        self.spent = 0

    def grant(self, total: int) -> None:
        """Take how many permits there were in all."""
        self._granted = max(self._granted, total)

    @property
    def is_empty(self) -> bool:
        """Whether there is no permit left."""
        return self.spent >= self._granted

    @property
    def next_start(self) -> float:
        """When the next record may begin, if there is a permit."""
        return self._next

    def pass_one(self, now: float) -> bool:
        """Let one record begin, if it may."""
        if self.is_empty or now < self._next:
            return False
        self.spent += 1
        self._last_next, self._next = self._next, max(self._next + self._gap, now)
        return True

    def go_back(self) -> None:
        """The record that was let through last did not begin."""
        self.spent -= 1
        self._next = self._last_next
