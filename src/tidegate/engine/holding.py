"""Pure: whether a lane waits for a sink that is away, and which sinks are known to be there.

While it holds, the lane begins nothing; then it tries one record. Proofs are records that a sink took: a record
that alone stays `Unavailable` while others get through is not waited for for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

_NEVER = 0.0


class Holding:
    """The hold of one lane."""

    def __init__(self, taken: Sequence[int], known: Sequence[int], failed_probes: int) -> None:
        self._taken = taken
        self._elsewhere = list(known) or [0] * (len(taken) + 1)
        self.failed_probes = failed_probes
        self.until = _NEVER

    @property
    def is_on(self) -> bool:
        """Whether nothing may be begun before `until`."""
        return self.until != _NEVER

    @property
    def is_probing(self) -> bool:
        """Whether it is not known that the sink is back."""
        return self.failed_probes > 0

    def hold(self, until: float) -> None:
        """The sink was away: wait. Records that were in work together and all found it away count as one."""
        if not self.is_on:
            self.failed_probes += 1
        self.until = max(self.until, until)

    def try_again(self) -> None:
        """It has waited long enough: the next record looks whether the sink is back."""
        self.until = _NEVER

    def end(self) -> None:
        """A sink took a record: it is there."""
        self.until = _NEVER
        self.failed_probes = 0

    @property
    def proofs(self) -> list[int]:
        """What the sinks took in this round: each of them, and all together at the end."""
        return [*self._taken, sum(self._taken)]

    def learn(self, proofs: Sequence[int]) -> None:
        """Take what the sinks took in all other rounds."""
        if len(proofs) == len(self._elsewhere):
            self._elsewhere = list(proofs)

    def known(self, sink: int) -> int:
        """How many records this sink is known to have taken; -1: any sink."""
        return self._elsewhere[sink] + self.proofs[sink]
