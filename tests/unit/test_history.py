"""The history on SQLite: what is written is read back, once; requests are numbered and applied once; it stays small."""

from __future__ import annotations

import sqlite3
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.histories import CLUSTER, GROUP, NOON, P0, P1, P2, after, batch, failure, marks, run_row
from tidegate.errors import HistoryBroken, SettingsError
from tidegate.history import link, pruning
from tidegate.history.chosen import chosen_history
from tidegate.history.link import parsed
from tidegate.history.rows import Batch, CommitRow, MarkRow, OffsetRow, RedrivenRow
from tidegate.history.store import History, supersedes
from tidegate.records import Partition
from tidegate.secrets import secret

FEBRUARY = datetime(2026, 2, 1, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "history.sqlite"


@pytest.fixture
def history(path: Path) -> Iterator[History]:
    with History(str(path)) as made:
        yield made


# --- what is written


def test_what_is_written_is_read_back(history: History) -> None:
    run = run_row(instance="a", member_id="m-1", state="paused", error="why", ended_at=after(minutes=1))
    failed = replace(failure("f-1"), attempts=3, traceback="Traceback", fate="dead_letter")
    history.write(Batch(run, {P0: MarkRow(5, NOON, topic_id="id-1", replay=9)}, (failed,)))

    assert history.runs(CLUSTER) == (run,)
    assert history.failures(CLUSTER, GROUP) == (replace(failed, run_id="run-1"),)
    assert history.offsets(CLUSTER, GROUP) == (
        OffsetRow(P0, mark=5, settled_at=NOON, topic_id="id-1", settled_replay=9, run_id="run-1"),
    )
    assert history.commits(CLUSTER, GROUP) == (CommitRow(P0, 5, NOON, "run-1"),)
    assert history.groups(CLUSTER) == (GROUP,)


def test_times_are_stored_as_utc_and_read_back_with_their_zone(history: History, path: Path) -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5)))
    history.write(batch(5, at=elsewhere))
    [row] = history.offsets(CLUSTER, GROUP)

    assert row.settled_at == NOON
    assert row.settled_at is not None
    assert row.settled_at.tzinfo is UTC
    with sqlite3.connect(path) as connection:
        stored = connection.execute("select settled_at from tidegate_history_offsets").fetchone()[0]
    connection.close()
    assert stored.startswith("2026-01-31 12:00:30")


def test_another_cluster_or_group_is_another_history(history: History) -> None:
    history.write(batch(5))
    history.write(batch(7, run=run_row("run-2", cluster="cluster-2")))
    history.write(batch(9, run=run_row("run-3", group="shipping")))

    assert [row.mark for row in history.offsets(CLUSTER, GROUP)] == [5]
    assert [row.mark for row in history.offsets("cluster-2", GROUP)] == [7]
    assert history.groups(CLUSTER) == (GROUP, "shipping")
    assert [run.run_id for run in history.runs(CLUSTER, GROUP)] == ["run-1"]


def test_a_batch_that_is_written_twice_is_there_once(history: History) -> None:
    twice = batch(5, 6, failures=(failure("f-1"), failure("f-2")))
    history.write(twice)
    history.write(twice)

    assert sorted(row.failure_id for row in history.failures(CLUSTER, GROUP)) == ["f-1", "f-2"]
    assert [(row.partition, row.mark) for row in history.commits(CLUSTER, GROUP)] == [(P0, 5), (P1, 6)]
    assert len(history.runs(CLUSTER)) == 1


def test_commits_are_those_of_one_partition_since_a_time_the_oldest_first(history: History) -> None:
    for minute in range(5):
        history.write(batch(minute, minute + 100, at=after(minutes=minute)))

    assert [row.mark for row in history.commits(CLUSTER, GROUP, P1)] == [100, 101, 102, 103, 104]
    assert [row.mark for row in history.commits(CLUSTER, GROUP, P0, since=after(minutes=3))] == [3, 4]
    assert [row.mark for row in history.commits(CLUSTER, GROUP, P0, limit=2)] == [3, 4], "the latest of them"


NEWS = [
    # mark, after, replay  stored mark, replay  news    because
    (6, 1, 0, 5, 0, True, "later and further"),
    (5, 1, 0, 5, 0, False, "nothing has changed"),
    (4, -1, 0, 5, 0, False, "the late word of a former owner"),
    (6, -1, 0, 5, 0, True, "further, by a clock that is behind"),
    (4, 1, 0, 5, 0, True, "later and back: somebody has moved the group"),
    (3, -1, 9, 5, 0, True, "after a rewind, by a clock that is behind"),
    (8, -1, 0, 5, 9, False, "further, but before the rewind"),
    (5, 1, 9, 5, 0, True, "a rewind to where it stood"),
]


@pytest.mark.parametrize(("mark", "later", "replay", "stored", "stored_replay", "is_news", "because"), NEWS)
def test_a_mark_replaces_what_is_stored_only_if_it_is_news(
    mark: int, later: int, replay: int, stored: int, stored_replay: int, is_news: bool, because: str
) -> None:
    row = MarkRow(mark, after(seconds=later), replay=replay)
    assert supersedes(row, stored, NOON, stored_replay) is is_news, because


def test_the_late_word_of_a_former_owner_does_not_move_the_table_back(history: History) -> None:
    history.write(batch(150, at=after(seconds=5), run=run_row("new owner")))
    history.write(batch(100, at=after(seconds=3), run=run_row("old owner")))

    [row] = history.offsets(CLUSTER, GROUP)
    assert (row.mark, row.run_id) == (150, "new owner")
    assert [one.mark for one in history.commits(CLUSTER, GROUP)] == [150]


def test_live_runs_are_those_that_said_something_and_have_not_ended(history: History) -> None:
    now = datetime.now(UTC)
    history.write(Batch(run_row("lives", seen_at=now)))
    history.write(Batch(run_row("killed", seen_at=now - timedelta(minutes=2))))
    history.write(Batch(run_row("ended", seen_at=now, ended_at=now)))

    assert [run.run_id for run in history.live_runs(CLUSTER, GROUP, 60)] == ["lives"]
    assert [run.run_id for run in history.live_runs(CLUSTER, GROUP, 300)] == ["lives", "killed"]
    assert history.live_runs(CLUSTER, "another", 300) == ()


# --- requests


def test_a_request_waits_until_it_is_applied(history: History) -> None:
    history.write(batch(50, 60))
    replay = history.ask(CLUSTER, GROUP, {P0: 10, P1: 20}, by="anna")
    found = history.requests(CLUSTER, GROUP, [P0, P1, P2])
    assert {tp: (one.mark, one.replay, one.by) for tp, one in found.items()} == {
        P0: (10, replay, "anna"),
        P1: (20, replay, "anna"),
    }
    assert [row.mark for row in history.offsets(CLUSTER, GROUP)] == [50, 60], "settled and requested are two things"

    history.applied(CLUSTER, GROUP, replay, {P0: 10})
    assert set(history.requests(CLUSTER, GROUP, [P0, P1])) == {P1}
    first, second = history.offsets(CLUSTER, GROUP)
    assert (first.mark, first.is_requested, first.settled_replay) == (10, False, replay)
    assert first.applied_at is not None
    assert (second.mark, second.is_requested) == (60, True)


def test_requests_are_given_to_the_owners_of_their_partitions_alone(history: History) -> None:
    history.ask(CLUSTER, GROUP, {P0: 10, P1: 20}, by="anna")
    assert set(history.requests(CLUSTER, GROUP, [P1])) == {P1}
    assert history.requests(CLUSTER, "another", [P1]) == {}
    assert history.requests("another", GROUP, [P1]) == {}


def test_numbers_grow_from_request_to_request_whatever_the_clock_says(history: History) -> None:
    now = int(datetime.now(UTC).timestamp() * 1000)
    first = history.ask(CLUSTER, GROUP, {P0: 1}, by="anna")
    assert first >= now
    far = history.ask(CLUSTER, GROUP, {P1: 1}, by="anna", at_least=first + 10_000_000)
    assert far == first + 10_000_000
    assert history.ask(CLUSTER, GROUP, {P0: 1}, by="anna") == far + 1, "greater than any before it in the group"


def test_a_number_is_greater_than_that_of_a_rewind_which_only_the_marks_tell_of(history: History) -> None:
    far = int(datetime.now(UTC).timestamp() * 1000) + 10_000_000
    history.write(Batch(run_row(), {P0: MarkRow(5, NOON, replay=far)}))
    assert history.ask(CLUSTER, GROUP, {P1: 1}, by="anna") == far + 1


def test_a_newer_request_replaces_one_that_was_not_applied(history: History) -> None:
    old = history.ask(CLUSTER, GROUP, {P0: 10, P1: 10}, by="anna")
    new = history.ask(CLUSTER, GROUP, {P0: 20}, by="bert")
    found = history.requests(CLUSTER, GROUP, [P0, P1])
    assert {tp: (one.mark, one.replay) for tp, one in found.items()} == {P0: (20, new), P1: (10, old)}

    history.applied(CLUSTER, GROUP, old, {P0: 10, P1: 10})
    assert set(history.requests(CLUSTER, GROUP, [P0, P1])) == {P0}, "who applied the old one did not apply the new one"


def test_a_withdrawn_request_is_given_to_nobody(history: History) -> None:
    replay = history.ask(CLUSTER, GROUP, {P0: 10, P1: 20}, by="anna")
    history.applied(CLUSTER, GROUP, replay, {P0: 10})
    assert history.withdraw(CLUSTER, GROUP, replay) == (P1,)
    assert history.requests(CLUSTER, GROUP, [P0, P1]) == {}
    assert history.withdraw(CLUSTER, GROUP, replay) == ()
    assert history.ask(CLUSTER, GROUP, {P1: 20}, by="anna") > replay


def test_a_request_that_names_nothing_is_refused(history: History) -> None:
    with pytest.raises(SettingsError, match="names no partition"):
        history.ask(CLUSTER, GROUP, {}, by="anna")


class Owner:
    """Applies requests as the engine must: what the commit's metadata says was applied, is not applied again."""

    def __init__(self, history: History, group_metadata: dict[Partition, int]) -> None:
        self._history = history
        self._metadata = group_metadata
        self.seen: dict[Partition, int] = {}
        self.applied: list[tuple[Partition, int]] = []

    def look(self) -> None:
        self.seen = {tp: one.replay for tp, one in self._history.requests(CLUSTER, GROUP, [P0, P1]).items()}

    def apply(self) -> None:
        for partition, replay in self.seen.items():
            if self._metadata.get(partition, 0) < replay:
                self._metadata[partition] = replay
                self.applied.append((partition, replay))
            self._history.applied(CLUSTER, GROUP, replay, {partition: 0})


def test_two_owners_that_see_the_same_request_apply_it_once(path: Path) -> None:
    commits: dict[Partition, int] = {}
    first, second = Owner(History(str(path)), commits), Owner(History(str(path)), commits)
    history = History(str(path))
    replay = history.ask(CLUSTER, GROUP, {P0: 3, P1: 4}, by="anna")

    first.look()
    second.look()  # the partition moved between the two: both hold the request in their hands
    assert set(first.seen) == set(second.seen) == {P0, P1}
    first.apply()
    second.apply()
    first.look()
    first.apply()
    assert first.applied == [(P0, replay), (P1, replay)]
    assert second.applied == []

    newer = history.ask(CLUSTER, GROUP, {P1: 1}, by="anna")
    second.look()
    second.apply()
    assert second.applied == [(P1, newer)]


# --- what was redriven


def test_what_was_redriven_is_remembered_once_per_letter(history: History) -> None:
    first = RedrivenRow(0, 41, NOON, after(minutes=1), "billing.redrive", "billing:orders:0:7")
    history.note_redriven(CLUSTER, GROUP, [first, replace(first, offset=42, redriven_at=after(minutes=2))])
    history.note_redriven(CLUSTER, GROUP, [replace(first, redriven_at=after(minutes=3))])

    assert history.redriven(CLUSTER, GROUP) == (
        replace(first, redriven_at=after(minutes=3)),
        replace(first, offset=42, redriven_at=after(minutes=2)),
    )
    assert len(history.redriven(CLUSTER, GROUP, limit=1)) == 1
    assert history.redriven(CLUSTER, "another") == ()


# --- it stays small


GRAINS = [
    # seconds before    grain                      because
    (None, pruning.FIRST_OF_HOUR, "the first of all"),
    (3600, pruning.FIRST_OF_HOUR, "the same minute of another hour"),
    (31, pruning.FIRST_OF_MINUTE, "the minute before"),
    (1, pruning.EVERY, "the same minute"),
]


@pytest.mark.parametrize(("before", "expected", "because"), GRAINS)
def test_which_commit_outlives_its_neighbours(before: int | None, expected: int, because: str) -> None:
    assert pruning.grain(None if before is None else after(minutes=1, seconds=-before), after(minutes=1)) == expected, (
        because
    )


def test_old_commits_are_thinned_and_then_forgotten(history: History) -> None:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    moments = [
        *(now - timedelta(seconds=5 * step) for step in range(1, 10)),  # all of them
        *(now - timedelta(hours=3, seconds=-10 * step) for step in range(30)),  # five minutes
        *(now - timedelta(days=3, seconds=-60 * step) for step in range(120)),  # two hours
        now - timedelta(days=8),
    ]
    for mark, moment in enumerate(sorted(moments)):
        history.write(batch(mark, at=moment))
    assert len(history.commits(CLUSTER, GROUP, limit=10_000)) == len(moments)
    history.prune(keep_seconds=7 * 86_400.0, fine_seconds=7200.0)
    kept = [row.settled_at for row in history.commits(CLUSTER, GROUP, limit=10_000)]

    assert len([one for one in kept if now - one < timedelta(hours=2)]) == 9
    assert len([one for one in kept if timedelta(hours=2) < now - one < timedelta(hours=4)]) == 5
    assert len([one for one in kept if timedelta(days=2) < now - one < timedelta(days=4)]) == 2
    assert [one for one in kept if now - one > timedelta(days=7)] == []
    assert [row.mark for row in history.offsets(CLUSTER, GROUP)] == [len(moments) - 1], "the table itself stays"


def test_runs_failures_and_redriven_ids_have_a_greatest_number(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MOST_RUNS", "MOST_FAILURES", "MOST_REDRIVEN"):
        monkeypatch.setattr(pruning, name, 3)
    now = datetime.now(UTC)
    for step in range(6):
        moment = now - timedelta(minutes=6 - step)
        run = run_row(f"run-{step}", began_at=moment, seen_at=moment)
        history.write(Batch(run, {}, (failure(f"f-{step}", at=moment),)))
        history.note_redriven(CLUSTER, GROUP, [RedrivenRow(0, step, NOON, moment, "billing.redrive")])
    history.write(Batch(run_row("another", group="shipping", seen_at=now)))
    history.prune(keep_seconds=86_400.0)

    assert [run.run_id for run in history.runs(CLUSTER, GROUP)] == ["run-5", "run-4", "run-3"]
    assert [row.failure_id for row in history.failures(CLUSTER, GROUP)] == ["f-5", "f-4", "f-3"]
    assert [row.offset for row in history.redriven(CLUSTER, GROUP)] == [5, 4, 3]
    assert [run.run_id for run in history.runs(CLUSTER, "shipping")] == ["another"]


def test_what_is_older_than_its_time_is_forgotten_but_for_offsets_and_redriven_ids(history: History) -> None:
    history.write(batch(5, failures=(failure("f-1"),)))
    history.note_redriven(CLUSTER, GROUP, [RedrivenRow(0, 1, NOON, NOON, "billing.redrive")])
    history.prune(keep_seconds=1.0)

    assert (history.runs(CLUSTER), history.failures(CLUSTER, GROUP), history.commits(CLUSTER, GROUP)) == ((), (), ())
    assert [row.mark for row in history.offsets(CLUSTER, GROUP)] == [5]
    assert len(history.redriven(CLUSTER, GROUP)) == 1


# --- where it lies


def test_the_file_and_its_folder_are_for_their_owner_alone(history: History, path: Path) -> None:
    history.write(batch(5))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_nothing_is_opened_before_it_is_needed(history: History, path: Path) -> None:
    assert str(path) in repr(history)
    assert not path.exists()


def test_a_newer_schema_is_refused_with_a_sentence_and_left_alone(history: History, path: Path) -> None:
    history.write(batch(5))
    with sqlite3.connect(path) as connection:
        connection.execute("update tidegate_history_schema set version = 99")
    connection.close()
    for call in (lambda: history.offsets(CLUSTER, GROUP), lambda: History(str(path)).write(batch(6))):
        if call is not None:
            history.close()
            with pytest.raises(HistoryBroken, match="newer Tidegate: its tables have version 99"):
                call()


def test_the_setting_names_a_history(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert chosen_history("off") is None
    default = chosen_history("sqlite")
    assert default is not None
    assert default.shown == str(tmp_path / "tidegate" / "history.sqlite")
    chosen = chosen_history("postgresql://anna:geheim@db/history")
    assert chosen is not None
    assert chosen.shown == "postgresql://anna:***@db/history"
    hidden = chosen_history(secret("env:NOWHERE"))
    assert hidden is not None
    assert repr(hidden) == "History(secret(env:NOWHERE))"


DIALECTS = [
    ("/var/lib/h.sqlite", "sqlite:////var/lib/h.sqlite"),
    ("sqlite:////var/lib/h.sqlite", "sqlite:////var/lib/h.sqlite"),
    ("postgresql://db/history", "postgresql+psycopg://db/history"),
    ("postgres://db/history", "postgresql+psycopg://db/history"),
    ("postgresql+psycopg://db/history", "postgresql+psycopg://db/history"),
]


@pytest.mark.parametrize(("given", "meant"), DIALECTS)
def test_a_path_or_a_url_names_a_database(given: str, meant: str) -> None:
    assert parsed(given).render_as_string() == meant


@pytest.mark.parametrize(
    "given", ["mysql://anna:geheim@db/x", "postgresql://anna:geheim@db:port/x", "sqlite://", "://anna:geheim@"]
)
def test_what_names_no_database_is_refused_without_repeating_it(given: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parsed(given)
    assert "geheim" not in str(refused.value)


def test_a_url_that_never_can_work_is_refused_at_once_and_a_secret_when_it_is_read() -> None:
    with pytest.raises(SettingsError, match="cannot be kept in mysql"):
        chosen_history("mysql://anna:geheim@db/x")
    hidden = chosen_history(secret(lambda: "mysql://anna:geheim@db/x"))
    assert hidden is not None
    with pytest.raises(SettingsError, match="cannot be kept in mysql"):
        hidden.offsets(CLUSTER, GROUP)


def test_a_missing_driver_is_told_with_the_extra_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.partition(".")[0] == "psycopg"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setattr(link, "find_spec", lambda _: None)
    with pytest.raises(SettingsError, match=r"tidegate\[postgres\]"):
        chosen_history("postgresql://db/history")
    with pytest.raises(HistoryBroken, match=r"needs psycopg.*tidegate\[postgres\]"):
        History(secret(lambda: "postgresql://db/history")).offsets(CLUSTER, GROUP)


def test_reading_what_is_not_there_finds_nothing_and_makes_nothing(history: History, path: Path) -> None:
    assert (history.offsets(CLUSTER, GROUP), history.runs(CLUSTER), history.groups(CLUSTER)) == ((), (), ())
    assert history.requests(CLUSTER, GROUP, [P0]) == {}
    assert not path.parent.exists()


def test_a_database_that_is_not_there_is_an_error_without_its_password() -> None:
    away = History("postgresql://anna:geheim@127.0.0.1:1/history")
    with pytest.raises(
        HistoryBroken, match=r"the history postgresql://anna:\*\*\*@127.0.0.1:1/history cannot be read"
    ) as broken:
        away.offsets(CLUSTER, GROUP)
    assert "geheim" not in str(broken.value)
    assert broken.value.__suppress_context__


def test_marks_of_many_partitions_are_one_write(history: History) -> None:
    many = {Partition("orders", number): MarkRow(number, NOON) for number in range(500)}
    history.write(Batch(run_row(), many))
    assert {row.partition: row.mark for row in history.offsets(CLUSTER, GROUP)} == {tp: tp.number for tp in many}
    assert marks(1)[P0].mark == 1
