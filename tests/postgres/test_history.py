"""The history in a real PostgreSQL: the same answers as in a file, several writers at once, away and back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from sqlalchemy import make_url

from tests.histories import CLUSTER, GROUP, NOON, P0, P1, after, batch, failure, marks, run_row
from tests.postgres.proxy import Proxy
from tests.postgres.support import Database
from tests.postgres_server import LOCKED_USER, PASSWORD, Server
from tests.support import wait_until
from tidegate.errors import HistoryBroken
from tidegate.history import link, pruning
from tidegate.history.rows import Batch, CommitRow, MarkRow, OffsetRow, RedrivenRow
from tidegate.history.store import History
from tidegate.history.writer import HistoryWriter
from tidegate.records import Partition
from tidegate.secrets import Secret, secret

ENOUGH = 30.0


@pytest.fixture
def history(database: Database) -> Iterator[History]:
    made = History(database.dsn)
    yield made
    made.close()


def said(caplog: pytest.LogCaptureFixture, action: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if getattr(record, "action", "") == action]


def test_what_is_written_is_read_back(history: History) -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5)))
    run = run_row(instance="a", state="paused", ended_at=after(minutes=1))
    history.write(Batch(run, {P0: MarkRow(5, elsewhere, topic_id="id-1", replay=9)}, (failure("f-1"),)))
    history.write(Batch(run, {P0: MarkRow(5, elsewhere, topic_id="id-1", replay=9)}, (failure("f-1"),)))

    assert history.runs(CLUSTER) == (run,)
    assert history.failures(CLUSTER, GROUP) == (replace(failure("f-1"), run_id="run-1"),)
    assert history.offsets(CLUSTER, GROUP) == (
        OffsetRow(P0, mark=5, settled_at=NOON, topic_id="id-1", settled_replay=9, run_id="run-1"),
    )
    assert history.commits(CLUSTER, GROUP) == (CommitRow(P0, 5, NOON, "run-1"),)
    [row] = history.offsets(CLUSTER, GROUP)
    assert row.settled_at is not None
    assert row.settled_at.tzinfo is UTC


def test_the_tables_lie_beside_those_of_the_sink_under_names_of_their_own(history: History, database: Database) -> None:
    history.write(batch(5))
    found = database.ask("select table_name from information_schema.tables where table_schema = current_schema()")
    assert {name for (name,) in found} == {
        f"tidegate_history_{name}" for name in ("schema", "runs", "offsets", "commits", "failures", "redriven")
    }


def test_several_make_and_write_one_history_at_once(database: Database) -> None:
    together = threading.Barrier(8)

    def write(number: int) -> None:
        own = History(database.dsn)
        together.wait(ENOUGH)
        for step in range(20):
            # All of them write the same partitions: in one order, or they would wait for each other for ever.
            made = batch(*range(step, step + 10), at=after(seconds=step), run=run_row(f"run-{number}"))
            own.write(replace(made, failures=(failure(f"{number}-{step}"),)))
        own.close()

    with ThreadPoolExecutor(8) as pool:
        for each in [pool.submit(write, number) for number in range(8)]:
            each.result(ENOUGH)
    history = History(database.dsn)
    found = {row.failure_id for row in history.failures(CLUSTER, GROUP, limit=1000)}
    assert found == {f"{number}-{step}" for number in range(8) for step in range(20)}
    assert [row.mark for row in history.offsets(CLUSTER, GROUP)] == list(range(19, 29))
    history.close()


def test_requests_that_are_made_at_once_have_numbers_of_their_own(history: History, database: Database) -> None:
    history.write(batch(5))
    together = threading.Barrier(8)

    def ask(number: int) -> int:
        own = History(database.dsn)
        together.wait(ENOUGH)
        asked = own.ask(CLUSTER, GROUP, {Partition("orders", number): 1}, by="anna", at_least=10**15)
        own.close()
        return asked

    with ThreadPoolExecutor(8) as pool:
        numbers = [each.result(ENOUGH) for each in [pool.submit(ask, number) for number in range(8)]]
    assert sorted(numbers) == list(range(10**15, 10**15 + 8))


def test_a_request_is_applied_replaced_and_withdrawn(history: History) -> None:
    history.write(batch(50, 60))
    old = history.ask(CLUSTER, GROUP, {P0: 10, P1: 20}, by="anna")
    new = history.ask(CLUSTER, GROUP, {P0: 30}, by="bert")
    assert new > old
    history.applied(CLUSTER, GROUP, old, {P0: 10})
    assert {tp: one.replay for tp, one in history.requests(CLUSTER, GROUP, [P0, P1]).items()} == {P0: new, P1: old}
    history.applied(CLUSTER, GROUP, new, {P0: 30})
    assert history.withdraw(CLUSTER, GROUP, old) == (P1,)
    assert history.requests(CLUSTER, GROUP, [P0, P1]) == {}
    assert [(row.mark, row.requested) for row in history.offsets(CLUSTER, GROUP)] == [(30, 30), (60, 20)]


def test_it_stays_small(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "MOST_FAILURES", 2)
    monkeypatch.setattr(pruning, "MOST_REDRIVEN", 2)
    now = datetime.now(UTC)
    for step in range(4):
        moment = now - timedelta(minutes=4 - step)
        history.write(batch(step, at=moment, run=run_row(seen_at=now), failures=(failure(f"f-{step}", at=moment),)))
        history.note_redriven(CLUSTER, GROUP, [RedrivenRow(0, step, None, moment, "billing.redrive")])
    history.write(batch(1000, at=now - timedelta(days=9), run=run_row("old", seen_at=now - timedelta(days=9))))
    history.prune(keep_seconds=7 * 86_400.0)

    assert [row.failure_id for row in history.failures(CLUSTER, GROUP)] == ["f-3", "f-2"]
    assert [row.offset for row in history.redriven(CLUSTER, GROUP)] == [3, 2]
    assert [run.run_id for run in history.runs(CLUSTER)] == ["run-1"]
    assert [row.mark for row in history.commits(CLUSTER, GROUP)] == [0, 1, 2, 3]


def test_one_at_a_time_makes_it_small_and_the_others_go_on(history: History, database: Database) -> None:
    history.write(batch(5))
    with psycopg.connect(database.dsn) as other:
        other.execute(f"select pg_advisory_xact_lock({pruning._LOCK})".encode())
        history.prune(keep_seconds=1.0)
        assert len(history.runs(CLUSTER)) == 1
    history.prune(keep_seconds=1.0)
    assert history.runs(CLUSTER) == ()


def test_tables_that_are_dropped_while_it_is_open_are_made_anew(history: History, database: Database) -> None:
    history.write(batch(5))
    for (name,) in database.ask("select tablename from pg_tables where schemaname = current_schema()"):
        database.do(f"drop table {name}")
    with pytest.raises(HistoryBroken, match="does not exist"):
        history.write(batch(6))
    history.write(batch(7))
    assert [row.mark for row in history.offsets(CLUSTER, GROUP)] == [7]


def test_a_newer_schema_is_refused_with_a_sentence(history: History, database: Database) -> None:
    history.write(batch(5))
    history.close()
    database.do("update tidegate_history_schema set version = 99")
    with pytest.raises(HistoryBroken, match="newer Tidegate"):
        history.write(batch(6))


def locked(database: Database, password: str) -> str:
    return database.dsn.replace("://postgres:", f"://{LOCKED_USER}:{quote(password, safe='')}")


def test_a_password_is_used_and_shown_nowhere(database: Database, postgres: Server) -> None:
    assert PASSWORD not in postgres.uri
    url = locked(database, PASSWORD)
    assert PASSWORD in url
    own = History(url)
    assert PASSWORD not in repr(own)
    assert PASSWORD not in own.shown
    wrong = History(locked(database, "wrong-sesame"))
    with pytest.raises(HistoryBroken, match="password authentication failed") as refused:
        wrong.write(batch(5))
    assert "wrong-sesame" not in str(refused.value)
    hidden = Secret("env:HISTORY", lambda: locked(database, "wrong-sesame"))
    with pytest.raises(HistoryBroken, match=r"the history secret\(env:HISTORY\) cannot be written") as refused:
        History(hidden).write(batch(5))
    assert "wrong-sesame" not in str(refused.value)
    assert LOCKED_USER not in repr(refused.value.__cause__)
    assert repr(secret("env:HISTORY")) == repr(hidden)


def test_a_password_that_the_server_repeats_in_an_error_is_masked(database: Database) -> None:
    # A server never tells a password, but somebody may have used one twice.
    twice = "geheim-4711"
    url = make_url(database.dsn).set(password=twice, database=twice)
    with pytest.raises(HistoryBroken) as refused:
        History(url.render_as_string(hide_password=False)).write(batch(5))
    said_by_server = str(refused.value).partition("cannot be written:")[2]
    assert 'database "***" does not exist' in said_by_server
    assert "geheim" not in said_by_server


@pytest.fixture
def proxy(postgres: Server, tmp_path: Path) -> Iterator[Proxy]:
    made = Proxy(tmp_path, postgres.socket_folder)
    yield made
    made.close()


def through(proxy: Proxy, database: Database) -> History:
    url = make_url(database.dsn).update_query_dict({"host": str(proxy.folder)})
    return History(url.render_as_string(hide_password=False))


def test_a_server_that_falls_silent_is_cut_off_and_found_again(
    database: Database, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "ANSWER_SECONDS", 0.5)
    with through(proxy, database) as history:
        history.write(batch(5))
        proxy.silent.set()
        began = time.monotonic()
        with pytest.raises(HistoryBroken):
            history.write(batch(6, at=after(seconds=1)))
        assert time.monotonic() - began < ENOUGH, "nobody but us ends such a wait"
        assert proxy.hits > 0
        proxy.silent.clear()
        history.write(batch(7, at=after(seconds=2)))
        assert [row.mark for row in history.offsets(CLUSTER, GROUP)] == [7]


def test_a_batch_whose_commit_was_not_answered_is_there_once_when_it_is_written_again(
    database: Database, proxy: Proxy
) -> None:
    with through(proxy, database) as history:
        history.write(batch(5))
        proxy.at_commit = "lose the answer"
        unsure = batch(6, at=after(seconds=1), failures=(failure("f-1"),))
        with pytest.raises(HistoryBroken):
            history.write(unsure)
        assert proxy.hits > 0
        proxy.at_commit = "pass"
        history.write(unsure)
        assert [row.failure_id for row in history.failures(CLUSTER, GROUP)] == ["f-1"]
        assert [row.mark for row in history.commits(CLUSTER, GROUP)] == [5, 6]


def test_a_server_that_was_restarted_meanwhile_is_not_noticed(history: History, postgres: Server) -> None:
    history.write(batch(5))
    postgres.stop("immediate")
    postgres.start()
    assert [row.mark for row in history.offsets(CLUSTER, GROUP)] == [5]


def test_a_server_that_goes_and_comes_back_is_said_once_each_and_the_latest_is_written(
    database: Database, postgres: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidegate.history")
    writer = HistoryWriter(History(database.dsn), 0.05, keep_seconds=1e9)
    writer.begin(run_row())
    writer.note_marks(marks(1))
    reader = History(database.dsn)
    wait_until(
        lambda: [row.mark for row in reader.offsets(CLUSTER, GROUP)] == [1], within=ENOUGH, what="the first mark"
    )
    reader.close()
    postgres.stop("immediate")
    try:
        writer.note_marks(marks(2, at=after(seconds=1)))
        wait_until(lambda: bool(said(caplog, "history_failed")), within=ENOUGH, what="the warning")
    finally:
        postgres.start()
    wait_until(lambda: bool(said(caplog, "history_back")), within=ENOUGH, what="that it is back")
    writer.close()
    assert [row.mark for row in reader.offsets(CLUSTER, GROUP)] == [2]
    assert len(said(caplog, "history_failed")) == 1
    reader.close()


def test_a_failure_whose_message_holds_what_postgresql_does_not_take_is_written(history: History) -> None:
    told = replace(failure("f-1"), message="no amount in 'a\0b'", traceback="line\0")
    history.write(Batch(run_row(error="a\0b"), marks(5), (told,)))

    assert [one.message for one in history.failures(CLUSTER, GROUP)] == ["no amount in 'a\\0b'"]
