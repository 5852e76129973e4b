"""A bulk that the server works on, but not within our time, goes in smaller parts."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

import tidegate as tg
from tests.postgres.proxy import Proxy
from tests.postgres.support import P0, Database, effects, mark, store_of
from tests.postgres_server import Server
from tests.support import wait_until
from tidegate.sinks.postgres_cut import ask_to_stop
from tidegate.sinks.postgres_link import Patience
from tidegate.store import Poisoned


def test_a_bulk_of_many_statements_that_takes_too_long_goes_in_smaller_parts(database: Database) -> None:
    """Each statement is quick enough for the server's own limit; all together are not for ours."""
    database.do("create table slow (id bigint)")
    sink = tg.postgres(database.dsn, sql="insert into slow select %(id)s from pg_sleep(0.5)")
    store = store_of(sink, patience=Patience(answer=3.0))
    store.begin([P0], b"")

    with pytest.raises(Poisoned):
        store.seal(effects(sink, 0, 10), mark(10))

    assert store.seal(effects(sink, 0, 2), mark(2)) == {}
    assert database.ids("slow") == [0, 1]


def test_what_the_server_works_on_ends_when_nobody_waits_for_it_any_more(database: Database) -> None:
    sink = tg.postgres(database.dsn, sql="select %(id)s::bigint from pg_sleep(25)")
    store = store_of(sink, patience=Patience(answer=1.0))
    store.begin([P0], b"")

    with pytest.raises(tg.Unavailable):
        store.seal(effects(sink, 0, 1), mark(1))

    working = "select pid from pg_stat_activity where application_name = 'tidegate' and query like %s"
    wait_until(lambda: not database.ask(working, "%pg_sleep%"), within=10, what="long before its own limit")


@contextmanager
def stopped(*processes: int) -> Iterator[None]:
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


def test_a_server_whose_processes_are_stopped_is_given_up_and_used_again(database: Database, postgres: Server) -> None:
    """Its machine still accepts connections, and so does the one that would cancel: nobody answers on any."""
    sink = database.orders()
    store = store_of(sink, patience=Patience(connect=2.0, answer=1.0))
    store.begin([P0], b"")
    [[ours]] = database.ask("select pid from pg_stat_activity where application_name = 'tidegate'")

    with stopped(postgres.pid, ours):
        begun = time.monotonic()
        with pytest.raises(tg.Unavailable):  # Poisoned would have all records tried one by one
            store.seal(effects(sink, 0, 2), mark(2))
        with pytest.raises(tg.Unavailable):
            store.begin([P0], b"")
        assert time.monotonic() - begun < 20

    store.begin([P0], b"")
    assert store.seal(effects(sink, 0, 2), mark(2)) == {}
    assert database.ids() == [0, 1]


def test_asking_a_silent_server_to_stop_ends_in_time(database: Database, postgres: Server, tmp_path: Path) -> None:
    proxy = Proxy(tmp_path, postgres.socket_folder)
    try:
        with psycopg.connect(f"{database.dsn}&host={proxy.folder}") as connection:
            cancel, later = connection.pgconn.cancel_conn(), connection.pgconn.cancel_conn()
            proxy.silent.set()
            assert not ask_to_stop(cancel, within=0.3)
            proxy.silent.clear()
            assert ask_to_stop(later)
    finally:
        proxy.close()
