"""The history is written beside a run: nothing waits for it, a broken one is a warning, and its return is said."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.histories import CLUSTER, GROUP, NOON, P0, after, failure, marks, run_row
from tests.support import wait_until
from tidegate.errors import HistoryBroken
from tidegate.history import link
from tidegate.history import writer as writer_module
from tidegate.history.rows import Batch, MarkRow
from tidegate.history.store import History
from tidegate.history.writer import MOST_NOTED_FAILURES, HistoryWriter
from tidegate.records import Counts, Partition

SOON = 0.02
ENOUGH = 20.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


@pytest.fixture
def reader(path: Path) -> Iterator[History]:
    history = History(str(path))
    yield history
    history.close()


def settled(history: History) -> list[int | None]:
    return [row.mark for row in history.offsets(CLUSTER, GROUP)]


def said(caplog: pytest.LogCaptureFixture, action: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if getattr(record, "action", "") == action]


def test_a_run_is_there_at_once_and_says_that_it_lives(path: Path, reader: History) -> None:
    writer = HistoryWriter(History(str(path)), SOON)
    writer.begin(run_row())
    wait_until(lambda: len(reader.runs(CLUSTER)) == 1, within=ENOUGH, what="the run in the history")
    [first] = reader.runs(CLUSTER)
    assert first.seen_at > NOON
    wait_until(lambda: reader.runs(CLUSTER)[0].seen_at > first.seen_at, within=ENOUGH, what="another sign of life")
    writer.close()
    [last] = reader.runs(CLUSTER)
    assert (last.state, last.error) == ("done", "")
    assert last.ended_at is not None


def test_what_was_noted_is_written_at_the_end_at_the_latest(path: Path, reader: History) -> None:
    writer = HistoryWriter(History(str(path)), every_seconds=3600.0)
    writer.begin(run_row())
    writer.note_marks(marks(1, 2))
    writer.note_marks(marks(5, at=after(seconds=1)))
    writer.note_failure(failure("f-1"))
    writer.note_counts(Counts(settled=7))
    writer.note_member("member-1", ("orders",))
    writer.note_state("paused")
    writer.close("failed", "a reason")

    assert settled(reader) == [5, 2], "of each partition the latest"
    assert [row.failure_id for row in reader.failures(CLUSTER, GROUP)] == ["f-1"]
    [run] = reader.runs(CLUSTER)
    assert (run.state, run.error, run.counts, run.member_id, run.topics) == (
        "failed",
        "a reason",
        Counts(settled=7),
        "member-1",
        ("orders",),
    )


def test_a_database_that_goes_and_comes_back_is_said_once_each_and_nothing_latest_is_lost(
    path: Path, reader: History, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidegate.history")
    writer = HistoryWriter(History(str(path)), SOON, keep_seconds=1e9)
    writer.begin(run_row())
    writer.note_marks(marks(1))
    wait_until(lambda: settled(reader) == [1], within=ENOUGH, what="the first mark")
    reader.close()
    path.rename(path.with_suffix(".away"))
    path.mkdir()  # nobody can open a folder as a database
    writer.note_marks(marks(2, at=after(seconds=1)))
    writer.note_failure(failure("f-1"))
    wait_until(lambda: bool(said(caplog, "history_failed")), within=ENOUGH, what="the warning")
    rounds = _count_writes(writer, 5)
    assert rounds >= 5, "it was tried again several times"
    assert len(said(caplog, "history_failed")) == 1, "and said once"

    path.rmdir()
    wait_until(lambda: settled(reader) == [2], within=ENOUGH, what="the mark that was noted meanwhile")
    wait_until(lambda: len(said(caplog, "history_back")) == 1, within=ENOUGH, what="that it is back")
    writer.close()
    assert [row.failure_id for row in reader.failures(CLUSTER, GROUP)] == ["f-1"]
    assert len(said(caplog, "history_failed")) == 1


def test_what_was_noted_during_a_write_that_failed_is_newer_than_what_it_could_not_write(
    path: Path, reader: History, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_BUSY_SECONDS", 0.5)
    reader.write(Batch(run_row()))
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    writer = HistoryWriter(History(str(path)), every_seconds=SOON, keep_seconds=1e9)
    writer.note_marks(marks(1))
    writer.begin(run_row())
    wait_until(lambda: not writer._marks, within=ENOUGH, what="the first mark in the hands of the writer")
    writer.note_marks(marks(2, at=after(seconds=1)))
    wait_until(lambda: bool(said(caplog, "history_failed")), within=ENOUGH, what="that it could not be written")
    holder.execute("ROLLBACK")
    holder.close()
    writer.close()
    assert [row.mark for row in reader.commits(CLUSTER, GROUP)] == [2]


def test_a_failure_is_said_again_when_a_minute_has_passed(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_SAY_AGAIN_SECONDS", 0.2)
    path.mkdir()
    writer = HistoryWriter(History(str(path)), SOON)
    writer.begin(run_row())
    wait_until(lambda: len(said(caplog, "history_failed")) >= 3, within=ENOUGH, what="the warning, three times")
    writer.close()


def test_memory_stays_bounded_while_the_database_is_away(path: Path) -> None:
    path.mkdir()
    writer = HistoryWriter(History(str(path)), SOON, keep_seconds=1e9)
    writer.begin(run_row())
    for step in range(3 * MOST_NOTED_FAILURES):
        writer.note_failure(failure(f"f-{step}"))
        writer.note_marks(marks(step, at=after(seconds=step)))
    _count_writes(writer, 3)
    path.rmdir()
    writer.close()

    reader = History(str(path))
    kept = {row.failure_id for row in reader.failures(CLUSTER, GROUP, limit=10_000)}
    assert kept == {f"f-{step}" for step in range(2 * MOST_NOTED_FAILURES, 3 * MOST_NOTED_FAILURES)}
    assert [row.mark for row in reader.commits(CLUSTER, GROUP)] == [3 * MOST_NOTED_FAILURES - 1]
    reader.close()


def test_noting_never_waits_for_a_database_that_hangs_and_the_end_waits_a_bounded_time(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    history = History(str(path))
    history.write(Batch(run_row()))
    history.close()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")  # every writer waits for its turn now
    writer = HistoryWriter(History(str(path)), SOON)
    writer.begin(run_row())
    began = time.monotonic()
    for step in range(10_000):
        writer.note_marks({P0: MarkRow(step, NOON)})
    noted = time.monotonic() - began
    writer.close(within_seconds=0.2)
    ended = time.monotonic() - began
    holder.execute("ROLLBACK")
    holder.close()

    assert noted < 4.0
    assert ended < 4.9, "less than one writer's patience with the file"
    assert "no answer within 0.2s" in said(caplog, "history_failed")[0]


def test_a_broken_history_is_told_with_its_cure(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_bytes(b"this is no database, but a text that is long enough to be read as one" * 50)
    writer = HistoryWriter(History(str(path)), SOON)
    writer.begin(run_row())
    wait_until(lambda: bool(said(caplog, "history_failed")), within=ENOUGH, what="the warning")
    writer.close()
    [sentence] = said(caplog, "history_failed")
    assert "file is not a database; move the file away: a new one is made by itself" in sentence
    assert "the run goes on without its history" in sentence


def test_a_defect_in_the_history_does_not_end_its_thread(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = HistoryWriter(History(str(path)), SOON)
    writer.begin(run_row())
    writer.note_marks({P0: "no row at all"})  # type: ignore[dict-item]  # the defect
    wait_until(lambda: bool(said(caplog, "history_failed")), within=ENOUGH, what="the warning")
    writer.note_marks({P0: MarkRow(2, NOON)})
    reader = History(str(path))
    wait_until(lambda: settled(reader) == [2], within=ENOUGH, what="the next mark")
    writer.close()
    reader.close()


def test_the_history_of_a_long_run_is_pruned_by_it(
    path: Path, reader: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_PRUNE_SECONDS", 0.0)
    reader.write(Batch(run_row("old"), marks(1), (failure("f-1"),)))
    writer = HistoryWriter(History(str(path)), SOON, keep_seconds=3600.0)
    writer.begin(run_row("new"))
    wait_until(
        lambda: [run.run_id for run in reader.runs(CLUSTER)] == ["new"], within=ENOUGH, what="the old run forgotten"
    )
    writer.close()
    assert reader.failures(CLUSTER, GROUP) == ()
    assert settled(reader) == [1]


def test_an_error_that_is_not_ours_to_mend_is_raised_to_those_who_ask(path: Path) -> None:
    path.mkdir()
    with pytest.raises(HistoryBroken, match="unable to open"):
        History(str(path)).ask(CLUSTER, GROUP, {Partition("orders", 0): 1}, by="anna")


def _count_writes(writer: HistoryWriter, least: int) -> int:
    """Wait until the thread has tried to write so often."""
    history, lock, count = writer._history, threading.Lock(), 0
    write = history.write

    def counted(batch: Batch) -> None:
        nonlocal count
        with lock:
            count += 1
        write(batch)

    history.write = counted  # type: ignore[method-assign]  # only listens
    try:
        wait_until(lambda: count >= least, within=ENOUGH, what=f"{least} tries")
    finally:
        history.write = write  # type: ignore[method-assign]  # as it was
    return count
