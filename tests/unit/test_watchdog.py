"""When a partition counts as stalled."""

from __future__ import annotations

import pytest

from tidegate.engine.owned import Life
from tidegate.engine.watchdog import TURNS, Verdicts, Watchdog
from tidegate.records import Partition

A, B, C = (Partition("t", number) for number in range(3))

# (time, mark, end) as seen by the driver, stall_after being 60; then what is said at the last look
CASES = [
    ([(0, 5, 5), (600, 5, 5)], "nothing", "no record beyond the mark: idle is not stalled"),
    ([(0, 5, 9), (59, 5, 9)], "nothing", "not long enough"),
    ([(0, 5, 9), (60, 5, 9)], "replace", "records, and the mark has not moved for 60 s"),
    ([(0, 5, 5), (300, 5, 9)], "nothing", "the record came only now"),
    ([(0, 5, 9), (50, 6, 9), (100, 6, 9)], "nothing", "the mark moved in between"),
    ([(0, 5, 9), (60, 5, 9), (61, 5, 9)], "nothing", "its lane is being replaced"),
    ([(0, 5, 9), (60, 5, 9), (120, 5, 9)], "hopeless", "the new lane stands still as well"),
    ([(0, 5, 9), (60, 5, 9), (90, 6, 9), (149, 6, 9)], "nothing", "the new lane helped"),
    ([(0, 5, 9), (60, 5, 9), (90, 6, 9), (150, 6, 9)], "replace", "another stall is a new one"),
]


def said(verdicts: Verdicts) -> str:
    return "replace" if verdicts.replace else "hopeless" if verdicts.hopeless else "nothing"


@pytest.mark.parametrize(("looks", "expected", "because"), CASES, ids=[case[2] for case in CASES])
def test_a_partition_is_stalled_when_there_is_work_and_its_mark_stands_still(
    looks: list[tuple[int, int, int]], expected: str, because: str
) -> None:
    watchdog = Watchdog(60)
    for now, mark, end in looks:
        verdicts = watchdog.look({A: mark}, {A: end}, now, {A: Life(0, mark)})
    assert said(verdicts) == expected, because


# What another partition does at each look, every 20 s, while A stands at 5 of 9; then what is said of A
SAME, OTHER = 0, 1
OTHERS = [
    # lane, (mark, ahead, end) at each look
    (
        SAME,
        [(1, (), 99), (2, (), 99), (3, (), 99), (4, (), 99)],
        "nothing",
        "its lane serves another: it waits its turn",
    ),
    (OTHER, [(1, (), 99), (2, (), 99), (3, (), 99), (4, (), 99)], "replace", "another lane says nothing of this one"),
    (SAME, [(1, (), 99), (1, (), 99), (1, (), 99), (1, (), 99)], "replace", "the whole lane stands still"),
    (SAME, [(1, (), 99), (2, (), 99), (2, (), 99), (2, (), 99)], "nothing", "the lane has not stood for long enough"),
    (
        SAME,
        [(1, (), 99), (1, ((3, 4),), 99), (1, ((3, 5),), 99), (1, ((3, 6),), 99)],
        "nothing",
        "beyond its mark, too",
    ),
    (SAME, [(1, (), 2), (2, (), 3), (3, (), 4), (4, (), 5)], "replace", "what keeps up with its log takes no turns"),
]


@pytest.mark.parametrize(("lane", "looks", "expected", "because"), OTHERS, ids=[case[3] for case in OTHERS])
def test_a_partition_stands_still_only_while_its_lane_does_nothing_for_others_with_work(
    lane: int, looks: list[tuple[int, tuple[tuple[int, int], ...], int]], expected: str, because: str
) -> None:
    watchdog = Watchdog(60)
    for number, (mark, ahead, end) in enumerate(looks):
        lives = {A: Life(SAME, 5), B: Life(lane, mark, ahead)}
        verdicts = watchdog.look({A: 5}, {A: 9, B: end}, 20.0 * number, lives)
    assert said(verdicts) == expected, because


def test_what_a_partition_settles_beyond_its_own_mark_does_not_excuse_it() -> None:
    watchdog = Watchdog(60)
    for number in range(4):
        verdicts = watchdog.look({A: 5}, {A: 99}, 20.0 * number, {A: Life(0, 5, ((7, 8 + number),))})
    assert verdicts.replace == (A,)


def test_a_partition_that_never_gets_its_turn_has_its_lane_replaced_and_ends_no_run_while_that_works() -> None:
    watchdog, told = Watchdog(60), list[tuple[str, int]]()
    for now in range(0, 3 * TURNS * 60 * 2, 20):
        # B is served all the time, and always has more to do.
        lives = {A: Life(0, 5), B: Life(0, now), C: Life(1, 0)}
        verdicts = watchdog.look({A: 5}, {A: 9, B: now + 99, C: 9}, now, lives)
        told += [(said(verdicts), now)] if said(verdicts) != "nothing" else []
    turns_of_two = TURNS * 60 * 2
    assert told[:2] == [("replace", turns_of_two), ("replace", 2 * turns_of_two)]


def test_where_lanes_wait_for_permits_a_stall_takes_longer() -> None:
    watchdog = Watchdog(60)
    for now, expected in ((0, "nothing"), (60, "nothing"), (99, "nothing"), (100, "replace")):
        assert said(watchdog.look({A: 5}, {A: 9}, now, {A: Life(0, 5)}, turn_seconds=40)) == expected


def test_what_waits_its_turn_is_not_shown_as_standing() -> None:
    watchdog = Watchdog(60)
    for now in (0, 30, 60):
        watchdog.look({A: 5}, {A: 9, B: 99}, now, {A: Life(0, 5), B: Life(0, now)})
    assert watchdog.standing(65) == {A: 5}


def test_a_partition_that_left_and_came_back_begins_anew() -> None:
    watchdog = Watchdog(60)
    watchdog.look({A: 5}, {A: 9}, 0, {A: Life(0, 5)})
    watchdog.look({}, {}, 30, {})
    watchdog.look({A: 5}, {A: 9}, 40, {A: Life(0, 5)})
    assert watchdog.look({A: 5}, {A: 9}, 70, {A: Life(0, 5)}).replace == ()
