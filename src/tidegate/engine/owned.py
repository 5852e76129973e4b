"""Pure: what the board knows of one partition of ours."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.records import Failure, Open, Partition, Position


@dataclass
class Owned:
    """One partition of ours."""

    partition: Partition
    epoch: int
    lane: int | None = None
    position: Position | None = None
    """None until its mark was read: then it may be leased."""
    committed: Position | None = None
    until: int | None = None
    failure: Failure | None = None
    is_doubted: bool = False
    """Its mark may no longer be in the log: it is looked at before it is leased again."""
    is_held: bool = False
    """It is about to be rewound: what is settled is still committed, nothing more is begun."""
    open: tuple[Open, ...] = ()
    """Its open failures, as they were told at `told_at`."""
    told_at: float = 0.0
    parked_until: float | None = None
    """There is nothing to do for it before then."""
    is_closing: bool = False
    last_round: int = 0
    dead_rounds: int = 0
    """Rounds that died at this mark."""
    dead_alone: int = 0
    """Those of them that held one single record of this partition."""
    careful_records: int | None = None
    """Most records of a round, while a record that kills its worker is being looked for."""

    @property
    def has_reached_end(self) -> bool:
        """Whether it is as far as the run is to go."""
        return self.until is not None and self.position is not None and self.position.mark >= self.until

    @property
    def may_be_leased(self) -> bool:
        """Whether a round may work on it, if none does."""
        return self.is_free and not self.has_reached_end

    @property
    def is_free(self) -> bool:
        """Whether nothing stands in the way of work on it, wherever the run is to end."""
        blocked = self.is_closing or self.failure is not None or self.is_doubted or self.is_held
        return self.position is not None and not blocked

    @property
    def waits_for_its_time(self) -> bool:
        """Whether it stands still for a reason that is known: a record will be tried again, or is not due."""
        return bool(self.open) or self.parked_until is not None


@dataclass(frozen=True)
class Accepted:
    """What an outcome changed."""

    failures: tuple[Failure, ...]
    out_of_log: tuple[Partition, ...]
    """Partitions whose mark the round did not find in the log."""
    dropped: tuple[Partition, ...]
    """Partitions that are no longer ours, or ours in another epoch: nothing of them is committed."""
