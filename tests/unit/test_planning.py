"""Which offsets a DataFrame round covers, what it is called, and how its tasks share the reading."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tidegate.engine.planning import (
    FIRST_RECORDS,
    LEAST_RECORDS,
    LEAST_SLICE,
    NAMES_CHARACTERS,
    Pace,
    RoundLimits,
    after,
    fitting,
    next_number,
    number_of,
    plan,
    share,
    slices,
)
from tidegate.ledger import METADATA_BYTES, Home, decode, encode, plan_characters
from tidegate.records import Partition, PlannedRound, Position

A, B, C = Partition("t", 0), Partition("t", 1), Partition("u", 0)
LIMITS = RoundLimits(records=1_000_000, bytes=1_000_000, seconds=60)

SHARES = [
    # backlogs            most  turn  given                   because
    ({A: 10, B: 10}, 100, 0, {A: 10, B: 10}, "there is room for all"),
    ({A: 100, B: 100}, 100, 0, {A: 50, B: 50}, "equal parts"),
    ({A: 1000, B: 10}, 100, 0, {A: 90, B: 10}, "what one does not need goes to the other"),
    ({A: 5, B: 0}, 100, 0, {A: 5}, "nothing waits in the second"),
    ({A: 5, B: 5, C: 5}, 2, 0, {A: 1, B: 1}, "fewer places than partitions"),
    ({A: 5, B: 5, C: 5}, 2, 2, {C: 1, A: 1}, "the next in turn"),
    ({}, 10, 3, {}, "nothing waits"),
]


@pytest.mark.parametrize(("backlogs", "most", "turn", "given", "because"), SHARES)
def test_a_round_is_shared_fairly(
    backlogs: dict[Partition, int], most: int, turn: int, given: dict[Partition, int], because: str
) -> None:
    assert share(backlogs, most, turn) == given, because


@pytest.mark.parametrize("seed", range(30))
def test_no_share_is_larger_than_its_backlog_and_no_round_than_its_limit(seed: int) -> None:
    chance = random.Random(seed)
    backlogs = {Partition("t", number): chance.choice([0, 1, 7, 5000]) for number in range(chance.randrange(1, 40))}
    most = chance.randrange(1, 20_000)
    given = share(backlogs, most, chance.randrange(50))
    assert all(0 < count <= backlogs[tp] for tp, count in given.items())
    assert sum(given.values()) == min(most, sum(backlogs.values())) or most < len(
        [one for one in backlogs.values() if one]
    )
    assert sum(given.values()) <= most


def test_the_size_of_rounds_is_learned() -> None:
    pace = Pace()
    assert pace.most_records(LIMITS) == FIRST_RECORDS
    assert pace.most_records(RoundLimits(50, 1, 1)) == 50
    pace = pace.after(1000, 100_000, 1.0)
    assert pace.most_records(LIMITS) == 10_000, "a million bytes of a hundred each"
    assert pace.after(1000, 100_000, 1000.0).most_records(LIMITS) < 1000, "a slow writer gets less"
    assert pace.after(1, 10**9, 1.0).most_records(LIMITS) == LEAST_RECORDS, "but never next to nothing"
    assert pace.after(0, 0, 5.0) == pace, "a round without records shows nothing"
    assert Pace().after(10, 10, 0.0).most_records(LIMITS) == LIMITS.records


def test_the_same_range_has_the_same_name_and_another_range_another() -> None:
    positions = {A: Position(5), B: Position(0, replay=3)}

    def name(group: str = "g", number: int = 7, end: int = 9, replay: int = 3) -> str:
        moved = {**positions, B: Position(0, replay=replay)}
        [id_] = {one.id for one in plan(group, moved, {A: end, B: 4}, number).values()}
        return id_

    assert name() == name()
    assert len({name(), name(group="h"), name(number=8), name(end=10), name(replay=4)}) == 5
    assert number_of(name()) == 7
    planned = plan("g", positions, {A: 9, B: 4}, 7)
    assert {tp: one.end for tp, one in planned.items()} == {A: 9, B: 4}
    assert {one.partitions for one in planned.values()} == {(A, B)}


NUMBERS = [
    # positions                                                            now   next  because
    ([], 100, 100, "the first: the time"),
    ([Position(0, finished="50-ab")], 100, 100, "the time has passed the last one"),
    ([Position(0, finished="500-ab")], 100, 501, "the clock is behind: it still grows"),
    ([Position(0, finished="5-ab", planned=PlannedRound("700-cd", 3, (A,)))], 100, 701, "planned ones count"),
    ([Position(0, finished="no number")], 100, 100, "a foreign name has no number"),
]


@pytest.mark.parametrize(("positions", "now", "number", "because"), NUMBERS)
def test_numbers_of_rounds_grow(positions: list[Position], now: int, number: int, because: str) -> None:
    assert next_number(positions, now) == number, because


def test_after_its_round_a_partition_stands_at_the_planned_end_and_keeps_what_lies_ahead() -> None:
    planned = PlannedRound("7-ab", 20, (A,))
    before = Position(10, ((12, 14), (18, 25), (30, 31)), replay=4, planned=planned, finished="6-cd")
    assert after(before) == Position(20, ((20, 25), (30, 31)), replay=4, finished="7-ab")
    assert after(Position(3)) == Position(3)


@pytest.mark.parametrize("seed", range(20))
def test_slices_cover_every_planned_offset_once(seed: int) -> None:
    chance = random.Random(seed)
    positions = {}
    for number in range(chance.randrange(1, 6)):
        start = chance.randrange(1000)
        end = start + chance.choice([1, 30, LEAST_SLICE, 3 * LEAST_SLICE + 1])
        positions[Partition("t", number)] = Position(start, planned=PlannedRound("1-a", end, ()))
    found = slices(positions, chance.randrange(1, 9))
    for tp, one in positions.items():
        assert one.planned is not None
        mine = [part for part in found if part.partition == tp]
        assert (mine[0].start, mine[-1].end) == (one.mark, one.planned.end)
        assert all(first.end == second.start for first, second in pairwise(mine))
        assert all(part.start < part.end for part in mine)


def test_a_long_partition_is_split_and_what_was_settled_ahead_is_left_out() -> None:
    end = 4 * LEAST_SLICE
    found = slices({A: Position(0, ((5, 7),), planned=PlannedRound("1-a", end, (A,)))}, 4)
    assert len(found) == 4
    assert [found[0].wants(at) for at in (4, 5, 6, 7)] == [True, False, False, True]


def test_a_round_names_only_as_many_partitions_as_fit_into_a_commit() -> None:
    many = [Partition(f"a-rather-long-name-of-a-topic-{number}", 0) for number in range(500)]
    chosen = fitting(many)
    assert 10 < len(chosen) < 500
    assert plan_characters(chosen) <= NAMES_CHARACTERS
    assert fitting(many, turn=400) != chosen, "the others have their turn"
    assert fitting([A, B]) == [A, B]
    home = Home("g" * 100, "i" * 22, 0, "s")
    ahead = tuple((at, at + 1) for at in range(0, 60_000, 3))
    position = Position(
        0, ahead, replay=10**13, planned=PlannedRound("1" * 13 + "-ab", 9, tuple(chosen)), finished="6-c"
    )
    text = encode(position, home)
    assert len(text) <= METADATA_BYTES
    assert decode(0, text, home).position.planned == position.planned, "ahead may be cut, the plan never"
