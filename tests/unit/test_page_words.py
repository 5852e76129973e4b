"""Figures as people read them on pages, and payloads that cannot pass for anything else."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tidegate.ops.model import GroupLag, PartitionLag, Verdict
from tidegate.ops.rewind import Move, RewindPlan
from tidegate.records import Partition
from tidegate.web.pages import words
from tidegate.web.pages.commits import SeenCommit, differences
from tidegate.web.pages.rewind import summary, warnings

AT = datetime(2026, 11, 16, 8, 30, 5, tzinfo=UTC)
ORDERS = Partition("orders", 0)


def partition(mark: int | None, number: int = 0) -> PartitionLag:
    return PartitionLag(
        partition=Partition("orders", number),
        mark=mark,
        beginning=0,
        end_offset=100,
        lag=None if mark is None else 100 - mark,
        lag_seconds=None,
        waiting_seconds=None,
        lost=0,
        retention_hours=None,
        member=None,
        metadata="",
        verdict="ok",
        why="",
    )


def group(name: str = "g", verdict: Verdict = "ok", lag: int = 0, *partitions: PartitionLag) -> GroupLag:
    return GroupLag(
        group=name,
        at=AT,
        state="stable",
        is_tidegate=True,
        members=(),
        lag=lag,
        lag_seconds=None,
        waiting_seconds=None,
        expiry_days=None,
        verdict=verdict,
        why="",
        partitions=partitions,
    )


def test_the_worst_comes_first_then_the_largest_lag_then_the_name() -> None:
    groups = [group("b"), group("a"), group("c", "behind", 5), group("d", "behind", 9), group("e", "stalled", 1)]
    assert [one.group for one in sorted(groups, key=words.worst_first)] == ["e", "d", "c", "a", "b"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "no figures yet"), (0.4, "just now"), (3.9, "3 s ago"), (600.0, "10 min ago")]
)
def test_an_age_is_said_in_words(seconds: float | None, text: str) -> None:
    assert words.age(seconds) == text


def test_what_nobody_knows_is_never_a_zero() -> None:
    assert {words.number(None), words.duration(None), words.moment(None), words.clock(None)} == {words.UNKNOWN}


@pytest.mark.parametrize(
    ("content", "what", "text"),
    [
        (None, "null", ""),
        (b"", "0 bytes", ""),
        (b'{"a": 1}\n\tx', "11 bytes", '{"a": 1}\n\tx'),
        (b"<script>alert(1)</script>", "25 bytes", "<script>alert(1)</script>"),
        (b"\x1b[31mred\x07\r", "10 bytes", "\\x1b[31mred\\x07\\r"),
        ("a\u202eb\u2066c\u200d".encode(), "12 bytes", "a\\u202eb\\u2066c\\u200d"),
        (b"\xff\x00", "2 bytes, no text; the first of them in hexadecimal", "ff 00"),
    ],
)
def test_a_payload_is_text_that_cannot_act(content: bytes | None, what: str, text: str) -> None:
    assert words.payload(content) == (what, text)


def test_a_long_payload_that_is_no_text_shows_its_beginning() -> None:
    _, text = words.payload(b"\xff" * 1000)
    assert text == "ff " * 63 + "ff …"


def test_marks_that_moved_are_commits_and_those_that_did_not_are_none() -> None:
    before = {ORDERS: 10, Partition("orders", 1): 5, Partition("orders", 2): None}
    now = group("g", "ok", 0, partition(15), partition(5, 1), partition(3, 2), partition(9, 3))
    assert differences(before, now) == [
        SeenCommit(AT, ORDERS, 10, 15),
        SeenCommit(AT, Partition("orders", 2), None, 3),
    ]


@pytest.mark.parametrize(
    ("before", "mark", "change"), [(None, 3, ""), (3, 5, "+2"), (5, 2, "3 back"), (0, 1200, "+1\u202f200")]
)
def test_a_step_is_said_with_its_direction(before: int | None, mark: int, change: str) -> None:
    assert SeenCommit(AT, ORDERS, before, mark).change == change


def test_a_plan_says_what_somebody_may_not_have_thought_of() -> None:
    moves = (Move(ORDERS, 50, 10, again=40, passed=0, out_of_log=10), Move(Partition("orders", 1), 5, 9, 0, 4, 0))
    plan = RewindPlan("g", "0", moves, waiting=2)
    assert summary(plan) == "40 records at most run again, 4 records at most are passed by for good."
    out_of_log, waiting = warnings(plan)
    assert "not in the log" in out_of_log
    assert "2 records in the group's retry topics" in waiting
    assert warnings(RewindPlan("g", "0", (), waiting=0)) == []
