"""Simulated rounds of a DataFrame pipeline: a writer that goes by the names of rounds, as Delta does.

What it has under a name is not written again; a name whose number is not larger than the last one is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulation.cluster import Log
from tests.simulation.messages import Attempt, Message
from tests.simulation.rounds import SimLanes, Task
from tidegate.engine.lanes import RoundEnded
from tidegate.engine.planner import Planner
from tidegate.engine.planning import after, number_of
from tidegate.records import Lease, LeasedPartition, Open, Outcome, Partition, PartitionOutcome, Tries

if TYPE_CHECKING:
    from tests.simulation.process import Process

Place = tuple[Partition, int, int]
"""A record of one life: partition, replay, offset."""


class Writer:
    """The table that all processes write to."""

    def __init__(self, breach: Callable[[str], None]) -> None:
        self._breach = breach
        self._written: dict[str, set[Place]] = {}
        self._last = 0

    def write(self, name: str, places: set[Place]) -> set[Place]:
        """Take a round; return what is new in the table."""
        if name in self._written:
            if not places <= self._written[name]:
                self._breach(f"round {name} was written before, with other records")
            return set()
        if number_of(name) <= self._last:
            return set()
        self._last = number_of(name)
        self._written[name] = places
        return places


class FrameTask(Task):
    """One round: it reads, writes everything at once, and comes back."""

    def _go(self) -> None:
        now = self.world.now
        if self.is_over:
            return
        if now < self.hangs_until:
            self.world.at(self.hangs_until - now, self._go)
        elif not self._has_read:
            self._has_read = True
            self.world.at(self.world.soon(), self._go)
        else:
            self._write_and_end()

    _has_read = False

    def _write_and_end(self) -> None:
        gone = [one for one in self.lease.partitions if one.position.mark < self._log(one).beginning]
        fails = not gone and self.world.random() < 0.1
        is_written = not gone and (not fails or self.world.random() < 0.5)
        if is_written:
            self._write()
            if self.world.random() < 0.1:
                self.die()
                return
        parts = [self._part(one, fails=fails) for one in self.lease.partitions if not gone or one in gone]
        self._has_ended = True
        if not self.is_cancelled:
            self.world.say(self.owner, f"round {self.lease.round}", "fails" if fails or gone else "is written")
            self._post(RoundEnded(self.lease, Outcome(self.lease.lane, self.lease.round, tuple(parts)), None))

    def _log(self, item: LeasedPartition) -> Log:
        return self.sim.cluster.logs[item.partition]

    def _part(self, item: LeasedPartition, *, fails: bool) -> PartitionOutcome:
        stays = PartitionOutcome(item.partition, item.epoch, item.position)
        if item.position.mark < self._log(item).beginning:
            return replace(stays, lost_before=self._log(item).beginning)
        if fails:
            return replace(stays, open=(Open(0, Tries(1), 0.5),), parked=0.5)
        return replace(stays, position=after(item.position))

    def _write(self) -> None:
        places, [name] = set(), {one.position.planned.id for one in self.lease.partitions if one.position.planned}
        for one in self.lease.partitions:
            assert one.position.planned is not None
            ahead, missing = one.position.ahead, self._log(one).missing
            for at in range(one.position.mark, one.position.planned.end):
                if at not in missing and not any(first <= at < end for first, end in ahead):
                    places.add((one.partition, one.position.replay, at))
        self.world.say(self.owner, "writes round", name, sorted((tp.number, at) for tp, _, at in places))
        for partition, _, at in sorted(self.sim.writer.write(name, places)):
            self.sim.judge.settled(self, Attempt(Message(partition, at), 1))


class SimFrameLanes(SimLanes):
    """Starts simulated rounds, and lets the real planner take its turns."""

    def __init__(self, process: Process, planner: Planner) -> None:
        super().__init__(process, is_live=False)
        self._planner = planner

    def start(self, lease: Lease) -> None:
        self._tasks[lease.lane] = FrameTask(self._process, lease, is_live=False)

    def tick(self, proofs: Callable[[int], Sequence[int]]) -> None:
        super().tick(proofs)
        self._planner.turn()

    def close(self) -> None:
        self._planner.close()
