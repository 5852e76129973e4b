"""Pure: permits to begin a record, where a rate was chosen. One purse per process, for all its lanes.

Permits come at the rate and are handed to rounds in small lots; what a round did not use comes back with its
outcome. What a dead round had counts as used: the rate is never exceeded.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class _Lot:
    granted: int = 0
    spent: int = 0

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

    def has_some(self, now: float) -> bool:
        """Whether a round could begin a record."""
        self._fill(now)
        return self._permits >= 1

    def open(self, round_number: int, now: float) -> int:
        """Return the first permits of a round."""
        self._rounds[round_number] = _Lot()
        return self.top_up(now).get(round_number, 0)

    def top_up(self, now: float) -> dict[int, int]:
        """Give more to rounds that run short; return how many each of those has had by now."""
        self._fill(now)
        given = {}
        for number, lot in sorted(self._rounds.items(), key=lambda one: one[1].unspent):
            more = int(min(self._permits, self._lot - lot.unspent))
            if more >= 1:
                lot.granted += more
                self._permits -= more
                given[number] = lot.granted
        return given

    def note_spent(self, round_number: int, spent: int) -> None:
        """A round tells how many it has used."""
        if round_number in self._rounds:
            self._rounds[round_number].spent = spent

    def close(self, round_number: int, spent: int | None) -> None:
        """A round has ended; None: it did not tell how many it used."""
        lot = self._rounds.pop(round_number, None)
        if lot is not None and spent is not None:
            self._permits = min(self._lot, self._permits + lot.granted - spent)

    def _fill(self, now: float) -> None:
        self._permits = min(self._lot, self._permits + (now - self._filled_at) * self._rate)
        self._filled_at = now


class Turnstile:
    """A round's side: lets records through, evenly, as long as there are permits."""

    def __init__(self, rate: float, permits: int) -> None:
        self._gap = 1 / rate
        self._granted = permits
        self._next = 0.0
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
        self._next = max(self._next + self._gap, now)
        return True
