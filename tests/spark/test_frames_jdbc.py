"""DataFrame rounds into a real PostgreSQL by JDBC: rows and round are one transaction, whatever is repeated."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
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
    make_world: Callable[..., World], postgres: Server, proxy: Proxy, tmp_path: Path
) -> None:
    world = make_world(1)
    world.produce(range(10), 0)
    gate = tmp_path / "rows may come"
    schema = f"jdbc_{uuid.uuid4().hex[:8]}"
    url = f"jdbc:postgresql://127.0.0.1:{proxy.port}/postgres?currentSchema={schema}"

    with psycopg.connect(f"{postgres.uri}&options=-csearch_path%3D{schema}", autocommit=True) as database:
        database.execute(f"create schema {schema}".encode())

        def take_away() -> None:
            stage_of(database)
            proxy.go_away()
            gate.touch()
            wait_until(lambda: proxy.turned_away >= 2, within=60, what="it is asked for in vain")
            proxy.is_away = False

        sink = tg.jdbc(url, "orders", user="postgres", driver=DRIVER)
        with ThreadPoolExecutor(1) as pool:
            gone = pool.submit(take_away)
            report = world.run(world.pipeline().dataframe(rows_after(gate)).sink(sink).on_error(tg.hold(), tg.stop()))
            gone.result()

        assert (report.settled, report.exit_code) == (10, 0), report.failure
        assert report.counts.held > 0
        found = database.execute(b'select "offset" from orders').fetchall()
        assert sorted(at for (at,) in found) == list(range(10))


SESSIONS = b"from pg_stat_activity where application_name = 'PostgreSQL JDBC Driver'"


@pytest.mark.parametrize("moment", ["rows are staged", "rows are moved into the table"])
def test_a_session_that_is_killed_in_the_middle_of_a_round_is_not_the_rounds_fault(
    make_world: Callable[..., World], postgres: Server, moment: str, tmp_path: Path
) -> None:
    world = make_world(1)
    world.produce(range(10), 0)
    gate = tmp_path / "rows may come"
    schema = f"jdbc_{uuid.uuid4().hex[:8]}"
    with (
        closing(Proxy(None, postgres.socket_folder)) as proxy,
        psycopg.connect(f"{postgres.uri}&options=-csearch_path%3D{schema}", autocommit=True) as database,
        psycopg.connect(f"{postgres.uri}&options=-csearch_path%3D{schema}") as holder,
    ):
        url = f"jdbc:postgresql://127.0.0.1:{proxy.port}/postgres?currentSchema={schema}"
        database.execute(f"create schema {schema}".encode())
        database.execute(b'create table orders (partition int, "offset" bigint)')

        def kill() -> int:
            # Nobody can write to the table that is held, so the session which does is there until it is killed.
            held = stage_of(database) if moment == "rows are staged" else "orders"
            holder.execute(f"lock table {held} in share mode".encode())
            gate.touch()
            waiting = b"from pg_stat_activity where wait_event_type = 'Lock' and query ~* %s"
            wait_until(
                lambda: bool(database.execute(b"select 1 " + waiting, [f"^insert into {held}"]).fetchall()),
                within=90,
                what=moment,
            )
            ended = database.execute(
                b"select pg_terminate_backend(pid) " + waiting, [f"^insert into {held}"]
            ).fetchall()
            holder.rollback()
            return len(ended)

        sink = tg.jdbc(url, "orders", user="postgres", driver=DRIVER)
        with ThreadPoolExecutor(1) as pool:
            killed = pool.submit(kill)
            report = world.run(world.pipeline().dataframe(rows_after(gate)).sink(sink).on_error(tg.hold(), tg.stop()))
            assert killed.result() == 1

        assert (report.settled, report.exit_code) == (10, 0), report.failure
        assert report.counts.held > 0
        found = database.execute(b'select "offset" from orders').fetchall()
        assert sorted(at for (at,) in found) == list(range(10))


def stage_of(database: psycopg.Connection[Any]) -> str:
    """Wait for the table that a round's rows go to first; return its name."""
    staged = b"select table_name from information_schema.tables where table_schema = current_schema()"
    here = staged + b" and table_name like 'tidegate_stage_%'"
    wait_until(lambda: bool(database.execute(here).fetchall()), within=60, what="a stage")
    found = database.execute(here).fetchone()
    assert found is not None
    return str(found[0])


def rows_after(gate: Path) -> Callable[[Any], Any]:
    """Return a function of a frame whose rows come once a file is there."""

    def gated(batches: Any) -> Any:
        until = time.monotonic() + 90
        while not gate.exists() and time.monotonic() < until:
            time.sleep(0.01)
        yield from batches

    return lambda df: df.select("partition", "offset").mapInArrow(gated, "partition int, offset bigint")
