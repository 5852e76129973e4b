"""When a simulated task may begin a record: its sink may be away, and a rate may have been chosen."""

from __future__ import annotations

from tidegate.engine.purse import Turnstile


class Gate:
    """Stands before one round's records."""

    def __init__(self, rate: float | None, permits: int | None) -> None:
        self._turnstile = None if rate is None or permits is None else Turnstile(rate, permits)
        self._held_until = 0.0

    def is_open(self, now: float) -> bool:
        """Whether a record may begin now."""
        turnstile = self._turnstile
        return now >= self._held_until and (turnstile is None or self._has_permit(turnstile, now))

    def is_held(self, now: float) -> bool:
        """Whether the sink was away, and is not looked for yet."""
        return now < self._held_until

    @property
    def is_starved(self) -> bool:
        """Whether there is no permit left."""
        return self._turnstile is not None and self._turnstile.is_empty

    def opens_at(self, now: float) -> float:
        """When it will be open, as far as that is known here."""
        return max(now, self._held_until, 0.0 if self._turnstile is None else self._turnstile.next_start)

    def pass_one(self, now: float) -> None:
        """A record begins."""
        if self._turnstile is not None:
            assert self._turnstile.pass_one(now), "a record began without a permit"

    def hold(self, until: float) -> None:
        """The sink was away: begin nothing before then."""
        self._held_until = max(self._held_until, until)

    def grant(self, total: int) -> None:
        """So many permits were granted in all."""
        if self._turnstile is not None:
            self._turnstile.grant(total)

    @property
    def spent(self) -> int:
        """How many records have begun, where that is counted."""
        return 0 if self._turnstile is None else self._turnstile.spent

    @staticmethod
    def _has_permit(turnstile: Turnstile, now: float) -> bool:
        return not turnstile.is_empty and now >= turnstile.next_start
