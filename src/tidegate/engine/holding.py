"""Pure: whether a lane waits for a sink that is away, and which sinks are known to be there.

While it holds, the lane begins nothing; then it tries one record. Proofs are records that a sink took: a record
that alone stays `Unavailable` while others get through is not waited for for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

_NEVER = 0.0


class Holding:
    """The hold of one lane."""

    def __init__(self, sinks: int, known: Sequence[int], failed_probes: int) -> None:
        self._elsewhere = list(known) or [0] * (sinks + 1)
        self.proofs = [0] * (sinks + 1)
        """Records that got through in this round: per sink, and through any at the end."""
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
        """The sink was away: wait."""
        self.until = until
        self.failed_probes += 1

    def try_again(self) -> None:
        """It has waited long enough: the next record looks whether the sink is back."""
        self.until = _NEVER

    def prove(self, sinks: Collection[int]) -> None:
        """These sinks took a record: they are there."""
        if not sinks:
            return
        for number in sinks:
            self.proofs[number] += 1
        self.proofs[-1] += 1
        self.until = _NEVER
        self.failed_probes = 0

    def learn(self, proofs: Sequence[int]) -> None:
        """Take how many records got through in all other rounds."""
        if len(proofs) == len(self._elsewhere):
            self._elsewhere = list(proofs)

    def known(self, sink: int) -> int:
        """How many records are known to have got through this sink; -1: through any."""
        return self._elsewhere[sink] + self.proofs[sink]
