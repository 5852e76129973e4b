"""Pure: what the board knows of one partition of ours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from tidegate.records import Failure, LeasedPartition, Open, Partition, Position, Tries

Mover = Literal["lost", "rewind"]
"""Who lets a partition go on elsewhere than at its mark."""

DEAD_ROUNDS_BEFORE_CARE = 2
DEAD_ROUNDS_ALONE = 2
CAREFUL_NO_MORE = 4096


class Life(NamedTuple):
    """What tells of a partition that its lane does something for it."""

    lane: int | None
    mark: int
    ahead: tuple[tuple[int, int], ...] = ()
    tried: tuple[tuple[int, int], ...] = ()
    """Its open records, and how often each was tried."""

    def has_gone_on(self, since: Life) -> bool:
        """Whether something of it was settled since then, or an open record was tried."""
        return (self.mark, self.ahead, self.tried) != (since.mark, since.ahead, since.tried)


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
    mover: Mover | None = None
    """Who has sent a position for it that the broker may have, or not: nothing older is committed on top of that."""
    open: tuple[Open, ...] = ()
    """Its open failures, as they were told at `told_at`."""
    told_at: float = 0.0
    parked_until: float | None = None
    """There is nothing to do for it before then."""
    is_closing: bool = False
    last_round: int = 0
    bound: int | None = None
    """The lane whose name its store keeps until the group moves on: a round of that name ended badly.

    Otherwise: its task begins only now, after it was shut out, and takes the name back; another lane has the partition
    by another name, so that neither shuts out the other, and both do its records.
    """
    dead_rounds: int = 0
    """Rounds that died at this mark."""
    dead_alone: int = 0
    """Those of them that held one single record of this partition."""
    careful_records: int | None = None
    """Most records of a round, while a record that kills its worker is being looked for."""

    @property
    def store_lane(self) -> int | None:
        """The lane by whose name its store is known."""
        return self.lane if self.bound is None else self.bound

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
    def is_to_be_committed(self) -> bool:
        """Whether the group should hear where it stands now."""
        is_settled_here = not self.is_doubted and self.mover is None
        return self.position is not None and self.position != self.committed and is_settled_here

    def waits_for_its_time(self, now: float) -> bool:
        """Whether it stands still for a reason that is known: a record will be tried again, or is not due."""
        return self.parked_until is not None or (bool(self.open) and not self._is_overdue(now))

    def waits_for_its_sink(self, now: float) -> bool:
        """Whether a record of it found a sink away: what shares its lane waits with it, for as long as that takes."""
        return any(one.tries.unavailable for one in self.open) and not self._is_overdue(now)

    def _is_overdue(self, now: float) -> bool:
        """Whether its open records were to be tried by now: a worker that stands still tells nothing.

        Copies that Kafka does not take are sent again and again, and nothing is told of that.
        """
        is_tried = not any(one.then for one in self.open)
        return is_tried and now > self.told_at + max((one.wait for one in self.open), default=0.0)

    @property
    def life(self) -> Life | None:
        """What tells that its lane lives; None where its mark is not known yet."""
        if self.position is None:
            return None
        tried = tuple((one.record_offset, one.tries.failed + one.tries.unavailable) for one in self.open)
        return Life(self.lane, self.position.mark, self.position.ahead, tried)

    def leased(self, now: float) -> LeasedPartition:
        """Return it as a round gets it. Its mark must be known: `may_be_leased` asks for one."""
        if self.position is None:
            raise ValueError(f"{self.partition} has no mark yet")
        still_open = tuple(replace(one, wait=max(0.0, one.wait - (now - self.told_at))) for one in self.open)
        return LeasedPartition(self.partition, self.epoch, self.position, self.until, still_open)

    def advance(self, position: Position, *, is_final: bool) -> None:
        """A round has come so far; one that tells of less has been overtaken."""
        before = self.position
        if before is None or position.mark < before.mark:
            return
        self.position = position
        if position.mark > before.mark:
            self.get_over_deaths(is_final=is_final)

    # --- a record that kills its worker

    def count_death(self, *, alone: bool) -> None:
        """A round died here, with one single record or with more: smaller rounds find out which it is."""
        self.dead_rounds += 1
        if self.careful_records is not None:
            self.dead_alone += alone
            self.careful_records = max(1, self.careful_records // 2)
        elif self.dead_rounds >= DEAD_ROUNDS_BEFORE_CARE:
            self.careful_records = 1

    @property
    def is_to_blame(self) -> bool:
        """Whether the record at the mark ended its worker often enough, with nothing else in its round."""
        return self.dead_alone >= DEAD_ROUNDS_ALONE

    def blame(self, why: str, now: float) -> Failure:
        """The record at the mark is not run again: its failure is handed to the next round, for the policy."""
        mark = self.position.mark if self.position is not None else 0
        text = f"this record ended the Python worker that ran it, {self.dead_alone} times, alone in its round ({why})"
        failure = Failure(self.partition, mark, "WorkerDied", text, attempts=self.dead_alone)
        others = tuple(one for one in self.open if one.record_offset != mark)
        self.open, self.told_at = (Open(mark, Tries(), failure=failure), *others), now
        self.parked_until = None
        self.dead_alone = 0
        return failure

    def absolve(self, end: int) -> None:
        """Its log has nothing left to run, up to this end: what ended its rounds lay in another partition.

        Otherwise: it has each of its rounds alone for as long as nothing comes, and all others of its lane wait for it.
        """
        if self.position is not None and self.position.mark >= end and not self.open:
            self.dead_rounds = self.dead_alone = 0
            self.careful_records = None

    def get_over_deaths(self, *, is_final: bool) -> None:
        """The mark has moved on; rounds grow again, one by one."""
        self.dead_rounds = self.dead_alone = 0
        if self.careful_records is not None and is_final:
            self.careful_records *= 2
            if self.careful_records >= CAREFUL_NO_MORE:
                self.careful_records = None


@dataclass(frozen=True)
class Accepted:
    """What an outcome changed."""

    failures: tuple[Failure, ...]
    out_of_log: tuple[Partition, ...]
    """Partitions whose mark the round did not find in the log."""
    dropped: tuple[Partition, ...]
    """Partitions that are no longer ours, or ours in another epoch: nothing of them is committed."""
