"""Where a rewind goes, without a broker."""

from __future__ import annotations

import pytest

import tidegate as tg
from tidegate.ops.rewind import Aim, parse_aim, plan_move
from tidegate.records import Partition

P = Partition("orders", 0)

AIMS = [
    ("beginning", Aim("beginning")),
    ("end", Aim("end")),
    ("0", Aim("offset", 0)),
    (" 1200 ", Aim("offset", 1200)),
    ("-1000", Aim("shift", -1000)),
    ("+5", Aim("shift", 5)),
    ("1970-01-01T00:00:01Z", Aim("time", 1000)),
    ("1970-01-01T02:00:00+02:00", Aim("time", 0)),
]


@pytest.mark.parametrize(("text", "aim"), AIMS)
def test_a_place_is_read(text: str, aim: Aim) -> None:
    assert parse_aim(text) == aim


@pytest.mark.parametrize(
    ("text", "cure"), [("yesterday", "say"), ("", "say"), ("2026-11-16T08:00", "zone"), ("--1", "say")]
)
def test_what_is_no_place_is_refused_with_the_ways_there_are(text: str, cure: str) -> None:
    with pytest.raises(tg.SettingsError, match=cure):
        parse_aim(text)


MOVES = [
    # mark, asked, beginning, end: to, again, passed, out of log
    (50, 10, 0, 100, (10, 40, 0, 0)),
    (50, 90, 0, 100, (90, 0, 40, 0)),
    (50, 50, 0, 100, (50, 0, 0, 0)),
    (50, -950, 20, 100, (20, 30, 0, 970)),
    (50, 150, 0, 100, (100, 0, 50, 50)),
    (None, 10, 0, 100, (10, 0, 0, 0)),
    (5, 0, 20, 100, (20, 0, 15, 20)),
    (150, 100, 0, 100, (100, 50, 0, 0)),
]


@pytest.mark.parametrize(("mark", "asked", "beginning", "end", "expected"), MOVES)
def test_a_move_ends_inside_the_log_and_says_what_runs_again(
    mark: int | None, asked: int, beginning: int, end: int, expected: tuple[int, int, int, int]
) -> None:
    move = plan_move(P, mark, asked, beginning, end)
    assert (move.to, move.again, move.passed, move.out_of_log) == expected
