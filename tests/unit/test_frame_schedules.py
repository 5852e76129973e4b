"""Random lives of a DataFrame pipeline, with crashes anywhere and commits that arrive in part: no record twice."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from tidegate.engine.frame_board import FrameBoard
from tidegate.engine.planning import after, next_number, plan
from tidegate.ledger import Home, decode, encode
from tidegate.records import Lease, Limits, Outcome, Partition, PartitionOutcome, Position

PARTITIONS = [Partition("t", number) for number in range(3)]
SCHEDULES = int(os.environ.get("PROOF_SCHEDULES", "300"))


class Lives:
    """The broker and a writer that knows ids outlive every board; a board dies now and then."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self.stored = {tp: self._coded(tp, Position(0)) for tp in PARTITIONS}
        self.written: dict[str, list[tuple[Partition, int]]] = {}
        self.repeats = 0
        self.time = 1
        self.is_calm = False
        self.begin()

    @staticmethod
    def _coded(tp: Partition, position: Position) -> tuple[int, str]:
        return position.mark, encode(position, Home("g", "i", tp.number, ""))

    def begin(self) -> None:
        self.board = FrameBoard(Limits(1, 1, 1, 1), None, lambda: PARTITIONS)
        self.epochs = self.board.gain(PARTITIONS)
        for tp, (mark, metadata) in self.stored.items():
            position = decode(mark, metadata, Home("g", "i", tp.number, "")).position
            assert self.board.place(tp, self.epochs[tp], position, is_committed=True)

    def crashes(self) -> bool:
        if self.is_calm or self.chance.random() > 0.1:
            return False
        self.begin()
        return True

    def plan(self) -> None:
        ready = self.board.plannable
        ends = {}
        for tp, one in ready.items():
            backlog = self.ends[tp] - one.position.mark
            if backlog and (self.is_calm or self.chance.random() < 0.8):
                ends[tp] = one.position.mark + (backlog if self.is_calm else self.chance.randrange(1, backlog + 1))
        if ends:
            self.time += self.chance.randrange(3)
            known = [one.position for one in self.board.owned.values() if one.position is not None]
            positions = {tp: one.position for tp, one in ready.items()}
            made = plan("g", positions, ends, next_number(known, self.time))
            assert self.board.plan(made, {tp: ready[tp].epoch for tp in made})

    def commit(self) -> None:
        wanted = self.board.uncommitted()
        taken = {key: one for key, one in wanted.items() if self.is_calm or self.chance.random() < 0.7}
        for (tp, _), position in taken.items():
            self.stored[tp] = self._coded(tp, position)
        if not self.crashes():
            self.board.note_committed(taken)

    def work(self) -> None:
        for lease in self.board.leases():
            if self.crashes():
                return
            fails = not self.is_calm and self.chance.random() < 0.2
            if not fails or self.chance.random() < 0.5:
                self.write(lease)
            if self.crashes():
                return
            parts = tuple(
                PartitionOutcome(one.partition, one.epoch, one.position if fails else after(one.position))
                for one in lease.partitions
            )
            self.board.accept(Outcome(lease.lane, lease.round, parts))

    def write(self, lease: Lease) -> None:
        [id_] = {one.position.planned.id for one in lease.partitions if one.position.planned is not None}
        covered = [
            (one.partition, at)
            for one in lease.partitions
            if one.position.planned is not None
            for at in range(one.position.mark, one.position.planned.end)
        ]
        if id_ in self.written:
            self.repeats += 1
            assert set(covered) <= set(self.written[id_]), "the same name for another range"
        else:
            self.written[id_] = covered

    def turn(self) -> None:
        if not self.is_calm and self.chance.random() < 0.3:
            self.ends[self.chance.choice(PARTITIONS)] += self.chance.randrange(1, 6)
        self.plan()
        self.commit()
        self.work()
        self.commit()


@pytest.mark.parametrize("first", range(0, SCHEDULES, 100))
def test_no_random_life_loses_or_doubles_a_record(first: int) -> None:
    repeats = 0
    for seed in range(first, first + 100):
        lives = Lives(seed)
        for _ in range(60):
            lives.turn()
        lives.is_calm = True
        for _ in range(20):
            lives.turn()
        seen = Counter(place for covered in lives.written.values() for place in covered)
        assert seen == Counter((tp, at) for tp, end in lives.ends.items() for at in range(end)), f"seed {seed}"
        assert {tp: mark for tp, (mark, _) in lives.stored.items()} == lives.ends, f"seed {seed}"
        numbers = [int(id_.split("-")[0]) for id_ in lives.written]
        assert numbers == sorted(set(numbers)), f"seed {seed}: a number that does not grow"
        repeats += lives.repeats
    assert repeats > 100, "hardly any round was repeated, so nothing was proved"
