"""The rules by which figures become verdicts. The tables are the definition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.ops.model import PartitionLag, Verdict
from tidegate.ops.verdicts import (
    Limits,
    Standing,
    judge,
    judge_group,
    spoken,
    still_for,
    still_since,
    went_back_from,
)
from tidegate.records import Partition
from tidegate.settings import Settings

LIMITS = Limits(stall_seconds=90, behind_seconds=60, behind_records=1000)
# A member works on a log from 10 to 200 and has settled all of it.
FINE = Standing(mark=200, beginning=10, end_offset=200, lag=0, waiting_seconds=0.0, still_seconds=0.0)
WAITING = replace(FINE, mark=150, lag=50, waiting_seconds=5.0)

CASES: list[tuple[Standing, Verdict, str, str]] = [
    # standing, verdict, words of the sentence, because
    (FINE, "ok", "nothing waits", "all is settled"),
    (replace(FINE, waiting_seconds=9e9), "ok", "nothing waits", "without lag nothing can wait"),
    (WAITING, "ok", "50 records wait, the first for 5 s", "a few records for a few seconds are daily life"),
    (replace(WAITING, lag=1), "ok", "1 record waits, for 5 s", "one record"),
    (replace(WAITING, waiting_seconds=None), "ok", "50 records wait", "no timestamps: then the number decides"),
    (replace(WAITING, waiting_seconds=59.9), "ok", "59 s", "just below the limit"),
    (replace(WAITING, waiting_seconds=60.0), "behind", "50 records wait, the first for 60 s", "for too long"),
    (replace(WAITING, lag=999), "ok", "999 records", "just below the limit"),
    (replace(WAITING, lag=1000), "behind", "1000 records wait", "too many, and no earlier look"),
    (replace(WAITING, lag=1000, growth=0), "behind", "0 more", "too many, and as many as before"),
    (replace(WAITING, lag=1000, growth=7), "behind", "7 more than at the look before", "too many, and growing"),
    (replace(WAITING, lag=1000, growth=-1), "ok", "1000 records wait", "many, but it works them off within seconds"),
    (replace(WAITING, lag=10, growth=9), "ok", "10 records wait", "growing, but few"),
    (replace(WAITING, still_seconds=89.0), "ok", "50 records wait", "still, but not for long enough"),
    (replace(WAITING, still_seconds=90.0), "stalled", "the mark 150 has not moved for 90 s", "still for too long"),
    (replace(WAITING, still_seconds=None), "ok", "50 records wait", "nobody knows whether the mark moves"),
    (replace(FINE, still_seconds=9e9), "ok", "nothing waits", "nothing to do is no stall"),
    (replace(WAITING, still_seconds=300.0, waiting_seconds=400.0), "stalled", "5 min", "a stall explains being behind"),
    (replace(WAITING, still_seconds=300.0, is_worked_on=False), "stopped", "nobody", "without members it cannot stall"),
    (replace(WAITING, is_worked_on=False), "stopped", "nobody works on it; 50 records wait", "work is left lying"),
    (replace(FINE, is_worked_on=False), "stopped", "nobody works on it; nothing waits", "no alarm, but to be seen"),
    (replace(WAITING, is_worked_on=False, lag=5000), "stopped", "5000", "being stopped explains being behind"),
    (replace(WAITING, rewound_from=180), "rewound", "went back from 180 and stands at 150; 50 records", "it went back"),
    (
        replace(WAITING, rewound_from=180, is_worked_on=False),
        "rewound",
        "nobody works",
        "somebody moved a stopped group",
    ),
    (
        replace(WAITING, rewound_from=180, waiting_seconds=9e3),
        "rewound",
        "2 h 30 min",
        "and so it is behind, of course",
    ),
    (replace(WAITING, rewound_from=180, still_seconds=99.0), "stalled", "99 s", "it went back, and does not come on"),
    (replace(FINE, mark=None, lag=None), "unknown", "no commit yet; 190 records at most", "work may lie there"),
    (replace(FINE, mark=None, lag=None, beginning=200), "ok", "no record to read", "nothing can be missed"),
    (
        replace(FINE, beginning=None, end_offset=None, lag=None),
        "unknown",
        "gone, or has no leader; the mark was 200",
        "no topic",
    ),
    (Standing(mark=None, beginning=None, end_offset=None, lag=None), "unknown", "is gone", "no topic, no commit"),
    (replace(FINE, mark=3, lost=7), "unknown", "7 records at most lost: the log begins at 10", "retention was first"),
    (replace(FINE, mark=9, lost=1), "unknown", "1 record at most lost", "one is one too many"),
    (replace(WAITING, lost=7, still_seconds=99.0), "unknown", "7 records", "lost records outweigh a stall"),
    (
        replace(WAITING, lost=7, is_worked_on=False),
        "unknown",
        "7 records at most lost: .*nobody works",
        "both are said",
    ),
    (replace(FINE, is_made_anew=True), "unknown", "made anew", "the mark belongs to another log"),
]


@pytest.mark.parametrize(("standing", "verdict", "words", "because"), CASES, ids=[case[3] for case in CASES])
def test_the_verdict_on_a_partition(standing: Standing, verdict: Verdict, words: str, because: str) -> None:
    found, why = judge(standing, LIMITS)
    assert found == verdict, because
    parts = words.split(".*")
    assert all(part in why for part in parts), why
    assert "\n" not in why


def test_a_stall_is_what_the_setting_calls_one() -> None:
    assert Limits().stall_seconds == Settings.model_fields["stall_after"].default


def partition(verdict: Verdict, lag: int | None = 0, *, number: int = 0, lost: int = 0) -> PartitionLag:
    return PartitionLag(
        partition=Partition("orders", number),
        mark=5,
        beginning=0,
        end_offset=5 + (lag or 0),
        lag=lag,
        lag_seconds=0.0,
        waiting_seconds=0.0,
        lost=lost,
        retention_hours=None,
        member=None,
        metadata="",
        verdict=verdict,
        why=f"why {number}",
    )


# Each is worse than the one before it.
WORSE_AND_WORSE = [
    partition("ok", 9),
    partition("stopped", 0),
    partition("unknown", None),
    partition("rewound", 9),
    partition("behind", 9),
    partition("stopped", 9),
    partition("stalled", 9),
    partition("unknown", 9, lost=4),
]


@pytest.mark.parametrize("worse", range(1, len(WORSE_AND_WORSE)))
def test_a_group_is_as_bad_as_the_worst_of_its_partitions(worse: int) -> None:
    better = [replace(one, partition=Partition("orders", 7)) for one in WORSE_AND_WORSE[:worse]]
    for order in ([*better, WORSE_AND_WORSE[worse]], [WORSE_AND_WORSE[worse], *better]):
        assert judge_group(order, has_members=True)[0] == WORSE_AND_WORSE[worse].verdict


def test_the_sentence_of_a_group_names_how_many_and_the_largest() -> None:
    bad = [partition("stalled", 5, number=1), partition("stalled", 80, number=2)]
    assert judge_group([partition("ok"), *bad], has_members=True) == (
        "stalled",
        "2 of 3 partitions stalled; orders[2]: why 2",
    )
    assert judge_group(bad, has_members=True) == ("stalled", "all partitions stalled; orders[2]: why 2")
    assert judge_group(bad[:1], has_members=True) == ("stalled", "why 1")


def test_the_sentence_of_a_group_without_trouble_has_the_sum() -> None:
    fine = [partition("ok", 5), replace(partition("ok", 80, number=2), waiting_seconds=3.0)]
    assert judge_group(fine, has_members=True) == ("ok", "85 records wait, the first for 3 s")
    idle = [partition("stopped"), partition("stopped", number=2)]
    assert judge_group(idle, has_members=False) == ("stopped", "nobody works on it; nothing waits")


def test_a_group_without_partitions_is_never_ok() -> None:
    assert judge_group([], has_members=True) == ("unknown", "no commit yet")
    assert judge_group([], has_members=False) == ("unknown", "no members and no commits")


STILL = [
    # mark and lag before, still before, mark and lag now, 5 s later: still for, because
    (5, 9, 20.0, 5, 9, 25.0, "the same mark, and records wait all the time"),
    (5, 9, None, 5, 12, 5.0, "at least since the look before"),
    (5, 9, 20.0, 6, 8, 0.0, "it moves"),
    (5, 9, 20.0, 4, 10, 0.0, "back is a move too"),
    (5, 0, 20.0, 5, 3, 0.0, "nothing waited before: the records have just come"),
    (5, 9, 20.0, 5, 0, 0.0, "nothing waits"),
    (5, None, 20.0, 5, 3, 0.0, "nobody knows whether something waited"),
    (5, 9, 20.0, None, None, None, "there is no commit any more"),
]


@pytest.mark.parametrize(("mark", "lag", "still", "now", "lag_now", "expected", "because"), STILL)
def test_time_without_a_move_counts_while_records_wait(
    mark: int, lag: int | None, still: float | None, now: int | None, lag_now: int | None, expected: float, because: str
) -> None:
    before = replace(partition("ok", lag), mark=mark, still_seconds=still)
    assert still_since(before, now, lag_now, 5.0) == expected, because


def test_one_look_alone_knows_a_stall_by_the_times_of_the_record_and_the_commit() -> None:
    assert still_for(3, 500.0, 200.0) == 200.0
    assert still_for(3, 4.0, 200.0) == 4.0, "the record has just come"
    assert still_for(0, 0.0, 200.0) == 0.0
    assert still_for(3, None, 200.0) is None
    assert still_for(3, 4.0, None) is None
    assert still_for(None, None, 200.0) is None


BACK = [
    # mark before, rewound from before, mark now: rewound from, because
    (50, None, 60, None, "it goes on"),
    (50, None, 50, None, "it stays"),
    (50, None, 20, 50, "it went back"),
    (20, 50, 30, 50, "on its way to where it was"),
    (20, 50, 10, 50, "further back: the highest place counts"),
    (20, 50, 50, None, "it is there again"),
    (20, 50, 90, None, "and beyond"),
    (None, None, 20, None, "there was no mark"),
    (50, None, None, None, "there is no mark"),
]


@pytest.mark.parametrize(("mark", "rewound_from", "now", "expected", "because"), BACK)
def test_a_group_counts_as_rewound_until_it_is_where_it_was(
    mark: int | None, rewound_from: int | None, now: int | None, expected: int | None, because: str
) -> None:
    before = replace(partition("ok"), mark=mark, rewound_from=rewound_from)
    assert went_back_from(before, now) == expected, because
    assert went_back_from(None, now) is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (0.25, "0.2 s"), (119, "119 s"), (120, "2 min"), (3600, "1 h 0 min"), (90_000, "1 d 1 h")],
)
def test_times_for_people(seconds: float, words: str) -> None:
    assert spoken(seconds) == words
