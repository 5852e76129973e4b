"""DataFrame rounds into a real PostgreSQL by JDBC: rows and round are one transaction, whatever is repeated."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest

import tidegate as tg
from tests.postgres.proxy import Proxy
from tests.postgres_server import Server
from tests.spark.conftest import World
from tests.spark.test_frames_again import Failing
from tests.support import wait_until

DRIVER = "org.postgresql.Driver"


@pytest.fixture
def proxy(postgres: Server) -> Iterator[Proxy]:
    proxy = Proxy(None, postgres.socket_folder)
    yield proxy
    proxy.close()


def test_rows_and_round_are_one_transaction_in_postgresql(
    make_world: Callable[..., World], postgres: Server, proxy: Proxy
) -> None:
    world = make_world(2)
    world.produce(range(15), 0)
    world.produce(range(5), 1)
    schema = f"jdbc_{uuid.uuid4().hex[:8]}"
    url = f"jdbc:postgresql://127.0.0.1:{proxy.port}/postgres?currentSchema={schema}"

    def rows(df: Any) -> Any:
        return df.select("partition", "offset", "timestamp", df.value.cast("string").alias("Text"))

    with psycopg.connect(f"{postgres.uri}&options=-csearch_path%3D{schema}", autocommit=True) as database:
        database.execute(f"create schema {schema}".encode())
        inner = tg.jdbc(url, "orders", user="postgres", driver=DRIVER)
        rounds: list[tg.FrameRound] = []

        def write(df: Any, round_: tg.FrameRound) -> None:
            """One attempt has died after its rows were staged; the next dies after its transaction."""
            rounds.append(round_)
            if len(rounds) == 1:
                database.execute(f"create table tidegate_stage_{round_.number}_dead (partition int)".encode())
                raise ValueError("died while it staged")
            inner(df, round_)

        pipeline = world.pipeline().dataframe(rows, records=12).sink(tg.write(Failing(write, 2)))
        report = world.run(pipeline.on_error(tg.retry(3, wait="50ms")))

        assert (report.settled, report.exit_code) == (20, 0)
        assert [one.id == rounds[0].id for one in rounds] == [True, True, True, False]
        found = database.execute(b'select partition, "offset", "Text" from orders').fetchall()
        assert sorted(found) == [(0, at, str(at)) for at in range(15)] + [(1, at, str(at)) for at in range(5)]
        kept = database.execute(b"select round_id from tidegate_rounds").fetchall()
        assert {one for (one,) in kept} == {f"{one.id} orders" for one in rounds}
        names = b"select table_name from information_schema.tables where table_schema = current_schema()"
        tables = {one for (one,) in database.execute(names).fetchall()}
        assert tables == {"orders", "tidegate_rounds"}, "nothing is left over"


def test_a_database_that_goes_away_in_the_middle_of_a_round_is_waited_for(
    make_world: Callable[..., World], postgres: Server, proxy: Proxy
) -> None:
    world = make_world(1)
    world.produce(range(10), 0)
    schema = f"jdbc_{uuid.uuid4().hex[:8]}"
    url = f"jdbc:postgresql://127.0.0.1:{proxy.port}/postgres?currentSchema={schema}"

    with psycopg.connect(f"{postgres.uri}&options=-csearch_path%3D{schema}", autocommit=True) as database:
        database.execute(f"create schema {schema}".encode())
        staged = b"select 1 from information_schema.tables where table_schema = current_schema() and table_name like %s"

        def take_away() -> None:
            wait_until(
                lambda: bool(database.execute(staged, ["tidegate_stage_%"]).fetchall()), within=60, what="a stage"
            )
            proxy.go_away()
            wait_until(lambda: proxy.turned_away >= 2, within=60, what="it is asked for in vain")
            proxy.is_away = False

        sink = tg.jdbc(url, "orders", user="postgres", driver=DRIVER)
        with ThreadPoolExecutor(1) as pool:
            gone = pool.submit(take_away)
            report = world.run(world.pipeline().dataframe(slow_rows).sink(sink).on_error(tg.hold(), tg.stop()))
            gone.result()

        assert (report.settled, report.exit_code) == (10, 0), report.failure
        assert report.counts.held > 0
        found = database.execute(b'select "offset" from orders').fetchall()
        assert sorted(at for (at,) in found) == list(range(10))


SESSIONS = b"from pg_stat_activity where application_name = 'PostgreSQL JDBC Driver'"


@pytest.mark.parametrize("moment", ["rows are staged", "rows are moved into the table"])
def test_a_session_that_is_killed_in_the_middle_of_a_round_is_not_the_rounds_fault(
    make_world: Callable[..., World], postgres: Server, moment: str
) -> None:
    world = make_world(1)
    world.produce(range(10), 0)
    schema = f"jdbc_{uuid.uuid4().hex[:8]}"
    with (
        closing(Proxy(None, postgres.socket_folder)) as proxy,
        psycopg.connect(f"{postgres.uri}&options=-csearch_path%3D{schema}", autocommit=True) as database,
        psycopg.connect(f"{postgres.uri}&options=-csearch_path%3D{schema}") as holder,
    ):
        url = f"jdbc:postgresql://127.0.0.1:{proxy.port}/postgres?currentSchema={schema}"
        database.execute(f"create schema {schema}".encode())
        database.execute(b'create table orders (partition int, "offset" bigint)')
        if moment == "rows are staged":
            frame = slow_rows
            # One of Spark's driver, and one of its task, which has no row yet.
            sessions, least = SESSIONS + b" and exists (select 1 from pg_tables where tablename ~ 'tidegate_stage')", 2
        else:
            frame = quick_rows
            holder.execute(b"lock table orders in share mode")
            sessions, least = SESSIONS + b" and wait_event_type = 'Lock' and query ~ '^insert into orders'", 1

        def kill() -> int:
            seen = b"select pid " + sessions
            wait_until(lambda: len(database.execute(seen).fetchall()) >= least, within=90, what=moment)
            killed = len(database.execute(b"select pg_terminate_backend(pid) " + sessions).fetchall())
            holder.rollback()
            return killed

        sink = tg.jdbc(url, "orders", user="postgres", driver=DRIVER)
        with ThreadPoolExecutor(1) as pool:
            killed = pool.submit(kill)
            report = world.run(world.pipeline().dataframe(frame).sink(sink).on_error(tg.hold(), tg.stop()))
            assert killed.result() >= least

        assert (report.settled, report.exit_code) == (10, 0), report.failure
        assert report.counts.held > 0
        found = database.execute(b'select "offset" from orders').fetchall()
        assert sorted(at for (at,) in found) == list(range(10))


def quick_rows(df: Any) -> Any:
    return df.select("partition", "offset")


def slow_rows(df: Any) -> Any:
    def slowly(batches: Any) -> Any:
        yield from batches
        time.sleep(3)  # the table for the rows is there long before the last of them

    return df.select("partition", "offset").mapInArrow(slowly, "partition int, offset bigint")
