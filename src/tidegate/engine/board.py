"""Pure: which partitions are ours, what is leased, what came back, what may be committed.

No client, no clock, no thread: the driver tells it what happened and does what it says.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from tidegate.engine.owned import Accepted, Life, Mover, Owned
from tidegate.engine.spread import next_turn, spread
from tidegate.records import Failure, Lease, Limits, Outcome, Partition, Position

CAREFUL_WAIT_SECONDS = 0.3


class Board:
    """The driver's whole knowledge of partitions and rounds. Where time matters, callers say what time it is."""

    def __init__(
        self,
        most_lanes: int,
        limits: Limits,
        ends: Mapping[Partition, int] | None = None,
        *,
        rounds_commit: bool = False,
    ) -> None:
        """`rounds_commit`: marks are committed by the rounds themselves, with the effects."""
        self._rounds_commit = rounds_commit
        self._most_lanes = most_lanes
        self._limits = limits
        self._ends = ends
        self._owned: dict[Partition, Owned] = {}
        self._flying: dict[int, Lease] = {}
        self._run = uuid.uuid4().hex
        self._epochs = itertools.count(1)
        self._rounds = itertools.count(1)
        self._outdated: set[int] = set()
        self._heard: dict[int, int] = {}
        self._is_stopping = False
        self.is_paused = False
        """Somebody asked for a rest: nothing is leased, rounds in flight are asked to end."""
        self.waiting: frozenset[int] = frozenset()
        """Lanes whose rounds wait for a slot of Spark's: they do not stand still for a reason of their own."""

    # --- partitions come and go

    def gain(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Take partitions on; their marks are read next. Return their epochs. The group has moved on."""
        for owned in self._owned.values():
            owned.bound = None
        for partition in partitions:
            until = None if self._ends is None else self._ends.get(partition, 0)
            self._owned[partition] = Owned(partition, next(self._epochs), until=until)
        return {partition: self._owned[partition].epoch for partition in partitions}

    def place(self, partition: Partition, epoch: int, position: Position, *, is_committed: bool) -> bool:
        """Tell where a partition stands; False if it is no longer ours in that epoch."""
        owned = self._owned.get(partition)
        if owned is None or owned.epoch != epoch:
            return False
        owned.position = position
        owned.committed = position if is_committed else None
        owned.mover = None
        return True

    def doubt(self, partitions: Iterable[Partition]) -> None:
        """Lease and commit these no more until they are trusted or reset: their marks may be of another log."""
        for partition in partitions:
            if partition in self._owned and not self._is_stopping and not self._owned[partition].is_closing:
                self._owned[partition].is_doubted = True

    @property
    def doubted(self) -> dict[Partition, int]:
        """The epochs of doubted partitions on which no round may be working any more."""
        busy = self._busy
        return {tp: one.epoch for tp, one in self._owned.items() if one.is_doubted and tp not in busy}

    def trust(self, partition: Partition, epoch: int) -> None:
        """Its mark is in the log after all."""
        owned = self._owned.get(partition)
        if owned is not None and owned.epoch == epoch:
            owned.is_doubted = False
            self.end_move(partition, "lost")

    def begin_move(self, partition: Partition, epoch: int, mover: Mover) -> bool:
        """A position elsewhere is about to be sent for it; False if it is not ours, or another move comes first.

        Until `reset`, nothing is committed for it: the answer may be lost, and what we knew before would take back what
        the broker has stored. Given back meanwhile, it stands wherever the broker says.
        """
        owned = self._owned.get(partition)
        if owned is None or owned.epoch != epoch or owned.mover not in (None, mover):
            return False
        owned.mover = mover
        return True

    def end_move(self, partition: Partition, mover: Mover) -> None:
        """It stays where it is after all."""
        owned = self._owned.get(partition)
        if owned is not None and owned.mover == mover:
            owned.mover = None

    def reset(self, partition: Partition, epoch: int, position: Position, end: int) -> bool:
        """Go on elsewhere, in a new epoch: `lost` or a rewind decided so, and it is committed already.

        What a round of the old epoch still says is dropped. False if it is no longer ours in that epoch.
        """
        owned = self._owned.get(partition)
        if owned is None or owned.epoch != epoch:
            return False
        # A run that is to end when caught up cannot wait for an end that this log does not have.
        until = None if owned.until is None else min(owned.until, end)
        if self._ends is not None and until is not None:
            self._ends = {**self._ends, partition: until}  # also if it goes and comes back
        self._owned[partition] = Owned(
            partition, next(self._epochs), owned.lane, position, position, until,
            is_closing=owned.is_closing, bound=owned.bound,
        )  # fmt: skip
        return True

    def hold(self, partitions: Iterable[Partition], *, is_held: bool = True) -> None:
        """Lease these no more for now; the rounds on them are asked to end."""
        for partition in partitions:
            if partition in self._owned:
                self._owned[partition].is_held = is_held

    def commit_again(self, partition: Partition) -> None:
        """The broker no longer has what was committed: the topic went, and the group's offsets with it."""
        if partition in self._owned:
            self._owned[partition].committed = None

    def close(self, partitions: Iterable[Partition]) -> None:
        """Lease these no more: they are about to be given back."""
        for partition in partitions:
            if partition in self._owned:
                self._owned[partition].is_closing = True
                self._owned[partition].is_doubted = False

    def remove(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions that are no longer ours; what rounds still say about them is dropped."""
        for partition in partitions:
            self._owned.pop(partition, None)

    def stop(self) -> None:
        """Lease nothing more; what is settled is still committed, doubted or not."""
        self._is_stopping = True
        for owned in self._owned.values():
            owned.is_doubted = False

    # --- rounds

    def leases(self, now: float = 0.0) -> list[Lease]:
        """Return what can be leased now, at most one lease per idle lane, and count it as leased."""
        if self._is_stopping or self.is_paused or not self._most_lanes:
            return []
        for owned in self._owned.values():
            if owned.parked_until is not None and owned.parked_until <= now:
                owned.parked_until = None
        busy = self._busy
        spread(self._owned.values(), self._lane_count(), busy)
        given = []
        for lane in range(self._lane_count()):
            if lane not in self._flying and (lease := self._next_lease(lane, now)) is not None:
                self._flying[lane] = lease
                given.append(lease)
        return given

    def accept(self, outcome: Outcome, now: float = 0.0) -> Accepted:
        """Step 5: believe an outcome only for what is ours, in the same epoch, and where the mark grows."""
        self._land(outcome.lane, outcome.round)
        return self._believe(outcome, now, is_final=True)

    def hear(self, report: Outcome, now: float = 0.0) -> Accepted | None:
        """Step 5 for a live report: the same check; None if its round or a later report has said it all."""
        lease = self._flying.get(report.lane)
        if lease is None or lease.round != report.round or report.number <= self._heard.get(report.round, 0):
            return None
        self._heard[report.round] = report.number
        return self._believe(report, now, is_final=False)

    def _believe(self, outcome: Outcome, now: float, *, is_final: bool) -> Accepted:
        failures, out_of_log, dropped = [], [], []
        for item in outcome.partitions:
            owned = self._owned.get(item.partition)
            if owned is None or owned.epoch != item.epoch or owned.position is None:
                dropped.append(item.partition)
                continue
            owned.advance(item.position, is_final=is_final)
            if self._rounds_commit:
                owned.committed = owned.position
            owned.open, owned.told_at = item.open, now
            owned.parked_until = None if item.parked is None else now + item.parked
            if item.failure is not None and owned.failure is None:
                owned.failure = item.failure
                failures.append(item.failure)
            if item.lost_before is not None:
                out_of_log.append(item.partition)
        return Accepted(tuple(failures), tuple(out_of_log), tuple(dropped))

    def bury(
        self, lane: int, round_number: int, why: str, now: float = 0.0, *, has_begun: bool = True
    ) -> list[Failure]:
        """A round died without an outcome. Return the records that are to blame for certain.

        The next round on each of them runs it no more, but does with it what the policy says.
        """
        lease = self._land_badly(lane, round_number)
        failures = []
        for item in lease.partitions if lease is not None and has_begun else ():
            owned = self._owned.get(item.partition)
            if owned is not None and owned.epoch == item.epoch and owned.position is not None:
                owned.count_death(alone=lease is not None and lease.limits.records == 1)
                if owned.is_to_blame:
                    failures.append(owned.blame(why, now))
        return failures

    def forget_round(self, lane: int, round_number: int) -> None:
        """A round was cancelled by us: nobody is to blame, nothing is known of what it did."""
        self._land_badly(lane, round_number)

    def resize(self, most_lanes: int) -> None:
        """Spark has room for so many rounds now: with another number of lanes, those in flight are asked to end.

        Otherwise a round without a slot would wait until others end by themselves, and a new slot would stay empty.
        """
        before = self._lane_count()
        self._most_lanes = most_lanes
        if self._lane_count() != before:
            self.outdate()

    def outdate(self) -> None:
        """The group has moved on: what rounds in flight know of it is no longer true, so that they cannot commit."""
        self._outdated |= {lease.round for lease in self._flying.values()}

    def kept_waiting(self) -> list[Lease]:
        """Return the leases in flight that should end: others of their lane wait, or they hold what they should not."""
        return [
            lease
            for lane, lease in self._flying.items()
            if not self._is_stopping and (self.is_paused or self._others_wait(lane) or self._is_outdated(lease))
        ]

    def _is_outdated(self, lease: Lease) -> bool:
        """Whether a partition of it is doubted, held, or no longer ours in that epoch: no more is to be done there."""
        for item in lease.partitions:
            owned = self._owned.get(item.partition)
            if owned is None or owned.epoch != item.epoch or owned.is_doubted or owned.is_held:
                return True
        return lease.round in self._outdated

    def _others_wait(self, lane: int) -> bool:
        busy, taken = self._busy, self._names_in_flight(but=lane)
        waiting = (one for one in self._owned.values() if one.lane == lane and one.store_lane not in taken)
        return any(self._is_ready(one, busy) for one in waiting)

    def _names_in_flight(self, *, but: int) -> set[int]:
        return {lease.store_lane for lane, lease in self._flying.items() if lane != but}

    def flying(self, partitions: Iterable[Partition] | None = None) -> list[Lease]:
        """Return the leases in flight, or those of them that hold one of these partitions, in any epoch."""
        if partitions is None:
            return list(self._flying.values())
        wanted = set(partitions)
        return [lease for lease in self._flying.values() if any(one.partition in wanted for one in lease.partitions)]

    def blocking(self, partitions: Collection[Partition]) -> list[tuple[Lease, list[Partition]]]:
        """Return the leases in flight that keep these where they stand: they hold them, or their lane."""
        found = []
        for lane, lease in self._flying.items():
            held = {item.partition for item in lease.partitions}
            still = [one for one in partitions if one in held or (one in self._owned and self._owned[one].lane == lane)]
            if still:
                found.append((lease, still))
        return found

    # --- commits and results

    def uncommitted(self) -> dict[tuple[Partition, int], Position]:
        """Return what should be committed now, by partition and epoch."""
        return {
            (partition, owned.epoch): owned.position
            for partition, owned in self._owned.items()
            if owned.position is not None and owned.is_to_be_committed
        }

    def note_committed(self, positions: Mapping[tuple[Partition, int], Position]) -> None:
        """The broker has these, committed for these partitions in these epochs."""
        for (partition, epoch), position in positions.items():
            owned = self._owned.get(partition)
            if owned is not None and owned.epoch == epoch:
                owned.committed = position

    @property
    def owned(self) -> Mapping[Partition, Owned]:
        """What is ours."""
        return self._owned

    @property
    def marks(self) -> dict[Partition, int]:
        """The mark of every partition of ours."""
        return {partition: one.position.mark for partition, one in self._owned.items() if one.position is not None}

    def workable_marks(self, now: float) -> dict[Partition, int]:
        """The marks of those that a round could move now: not failed, not waiting, not at the end of the run."""
        if self.is_paused or not self._most_lanes:
            return {}
        # While a lane looks for a sink that is away it begins nothing else, and another worker would find no more.
        kept = self.waiting | {one.lane for one in self._owned.values() if one.waits_for_its_sink(now)}
        watched = [one for one in self._owned.values() if one.may_be_leased and one.lane not in kept]
        return {
            one.partition: one.position.mark
            for one in watched
            if one.position is not None and not one.waits_for_its_time(now)
        }

    @property
    def lives(self) -> dict[Partition, Life]:
        """What tells of each partition that its lane lives."""
        return {partition: life for partition, one in self._owned.items() if (life := one.life) is not None}

    def go_on_until(self, ends: Mapping[Partition, int]) -> None:
        """A run that is to end when caught up goes on, up to these ends."""
        if self._ends is not None:
            self._ends = {**self._ends, **ends}
        for partition, end in ends.items():
            if partition in self._owned:
                self._owned[partition].until = end

    @property
    def has_caught_up(self) -> bool:
        """Whether what is ours is as far as the run is to go, settled and committed; so it is where nothing is ours."""
        ours = self._owned.values()
        there = [one for one in ours if one.has_reached_end and one.is_free and one.position == one.committed]
        return self._ends is not None and len(there) == len(ours) and not any(one.mover for one in ours)

    # --- inside

    @property
    def _busy(self) -> set[Partition]:
        """What a round may be working on, in any epoch."""
        return {item.partition for lease in self._flying.values() for item in lease.partitions}

    def _lane_count(self) -> int:
        return min(len(self._owned), self._most_lanes)

    def _next_lease(self, lane: int, now: float) -> Lease | None:
        busy = self._busy
        ready = [one for one in self._owned.values() if one.lane == lane and self._is_ready(one, busy)]
        chosen, is_only = next_turn(ready, self._names_in_flight(but=lane))
        if not chosen:
            return None
        number = next(self._rounds)
        for one in chosen:
            one.last_round = number
        limits = self._limits_for(chosen, is_only=is_only)
        shares = tuple(one.leased(now) for one in chosen)
        return Lease(lane, number, shares, limits, self._run, bound=chosen[0].bound)

    def _is_ready(self, one: Owned, busy: set[Partition]) -> bool:
        # Where users bound the records between two commits, the next round waits for the last one's commit; where
        # rounds commit, a commit of ours that is on its way could land on top of theirs.
        waits = (self._limits.records is not None or self._rounds_commit) and one.position != one.committed
        return one.may_be_leased and one.partition not in busy and not waits and one.parked_until is None

    def _limits_for(self, chosen: list[Owned], *, is_only: bool) -> Limits:
        careful = chosen[0].careful_records
        if careful is None:
            limits = self._limits
        else:
            most = careful if self._limits.records is None else min(careful, self._limits.records)
            limits = replace(self._limits, records=most)
        if not is_only:
            wait = min(CAREFUL_WAIT_SECONDS, limits.idle_seconds)
            limits = replace(limits, idle_seconds=wait, quiet_seconds=min(wait, limits.quiet_seconds))
        return limits

    def _land(self, lane: int, round_number: int) -> Lease | None:
        lease = self._flying.get(lane)
        if lease is None or lease.round != round_number:
            return None
        self._outdated.discard(round_number)
        self._heard.pop(round_number, None)
        return self._flying.pop(lane)

    def _land_badly(self, lane: int, round_number: int) -> Lease | None:
        lease = self._land(lane, round_number)
        if lease is not None and self._rounds_commit:
            for item in lease.partitions:
                if item.partition in self._owned:
                    self._owned[item.partition].bound = lease.store_lane
        return lease
