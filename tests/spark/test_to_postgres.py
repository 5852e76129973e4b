"""Kafka to PostgreSQL: rows and marks in one transaction, copies through the outbox, the group behind the table."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

import tidegate as tg
from tests.postgres_server import Server
from tests.spark.conftest import Beside, Trail, World, channel
from tests.support import wait_until
from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.ops.tail import tail
from tidegate.records import Partition


class Database:
    """A schema of a test's own."""

    def __init__(self, server: Server) -> None:
        self.schema = f"test_{uuid.uuid4().hex[:12]}"
        self.server = server
        self.dsn = f"{server.uri}&options=-csearch_path%3D{self.schema}"
        self.do(f"create schema {self.schema}")

    def do(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            found = connection.execute(statement)  # tests' own text
            return found.fetchall() if found.description else []

    def ids(self, table: str = "orders") -> Counter[object]:
        return Counter(row[0] for row in self.do(f"select id from {table}"))  # noqa: S608  # tests' own text

    def marks(self, world: World) -> dict[int, object]:
        rows = self.do(f"select partition, mark from tidegate_offsets where topic = '{world.topic}'")  # noqa: S608
        return {int(str(number)): mark for number, mark in rows}


@pytest.fixture
def database(postgres: Server) -> Iterator[Database]:
    made = Database(postgres)
    made.do("create table orders (id bigint primary key, name text not null)")
    yield made
    postgres.start()


def sink(database: Database, **more: object) -> object:
    return tg.postgres(database.dsn, table="orders", **more)  # type: ignore[arg-type]


def as_row(value: int) -> dict[str, object]:
    return {"id": value, "name": f"order {value}"}


def pipeline(world: World, database: Database) -> tg.Pipeline:
    return world.pipeline().map(tg.json).map(as_row).sink(sink(database))  # type: ignore[arg-type]


@channel("plain")
def test_every_record_has_its_row_and_the_group_follows_the_table(world: World, database: Database, live: bool) -> None:
    world.settings["live"] = live
    world.produce(range(3000))
    report = world.run(pipeline(world, database))
    assert report.settled == 3000
    assert database.ids() == Counter(range(3000))
    assert database.marks(world) == {0: 3000}
    assert world.mark() == 3000
    world.produce(range(3000, 3100))
    world.run(pipeline(world, database))
    assert database.ids() == Counter(range(3100))
    assert (database.marks(world), world.mark()) == ({0: 3100}, 3100)


@pytest.mark.parametrize("order", ["partition", "none"])
def test_one_bad_row_in_a_bulk_goes_its_way_alone(world: World, database: Database, order: str) -> None:
    bad = {137, 1600}
    world.produce(range(2000))

    def row(value: int) -> dict[str, object]:
        return {"id": value, "name": None if value in bad else "x"}

    report = world.run(
        world.pipeline()
        .map(tg.json)
        .map(row)
        .sink(sink(database))  # type: ignore[arg-type]
        .parallel(1 if order == "partition" else 8, order=order)  # type: ignore[arg-type]
        .on_error(tg.retry(1, wait="1ms"), tg.dead_letter())
    )
    assert (report.settled, report.dead) == (1998, 2)
    assert database.ids() == Counter(set(range(2000)) - bad)
    dead = world.copies("dead")
    assert Counter(copy.origin.offset for copy, _ in dead) == Counter(bad)
    assert "null value" in dead[0][0].error_message
    assert database.do("select count(*) from tidegate_outbox") == [(0,)]
    assert (database.marks(world), world.mark()) == ({0: 2000}, 2000)


def test_retries_come_through_the_outbox_and_have_their_row_once(world: World, database: Database) -> None:
    world.produce(range(100))

    def fails_first(value: int) -> int:
        if value % 10 == 3 and tg.current().attempt == 1:
            raise ValueError("not yet")
        return value

    report = world.run(
        world.pipeline()
        .map(tg.json)
        .map(fails_first)
        .map(as_row)
        .sink(sink(database))  # type: ignore[arg-type]
        .parallel(order="none")
        .on_error(tg.retry_later("1s"), tg.dead_letter())
    )
    assert report.retried == 10
    assert database.ids() == Counter(range(100))
    assert database.do("select count(*) from tidegate_passes") == [(10,)]


def test_a_retry_topic_that_is_rewound_has_its_effects_again(world: World, database: Database) -> None:
    """Its copies are the same ones, and their passes are known: but somebody wants them again."""
    world.produce(range(20))

    def fails_twice(value: int) -> int:
        if value % 10 == 3 and tg.current().attempt < 3:
            raise ValueError("not yet")
        return value

    job = (
        world.pipeline()
        .map(tg.json)
        .map(fails_twice)
        .map(as_row)
        .sink(sink(database))  # type: ignore[arg-type]
        .parallel(order="none")
        .on_error(tg.retry_later("1s", "2s"), tg.dead_letter())
    )
    world.run(job)
    assert database.ids() == Counter(range(20))
    database.do("delete from orders")
    tg.rewind(world.group, "beginning", topic=f"{world.group}.retry.1s", kafka=world.kafka)
    world.run(job)
    assert database.ids() == Counter([3, 13])


def test_a_bad_row_ends_the_run_by_default_with_the_rows_before_it_stored(world: World, database: Database) -> None:
    world.produce(range(20))
    database.do("insert into orders values (7, 'was there')")
    report = world.run(pipeline(world, database))
    assert report.exit_code == 3
    assert report.failure is not None
    assert (report.failure.record_offset, report.failure.error_type) == (7, "UniqueViolation")
    assert database.ids() == Counter(range(8))
    assert (database.marks(world), world.mark()) == ({0: 7}, 7)


def test_a_server_that_goes_away_is_held_for_and_the_work_goes_on(world: World, database: Database) -> None:
    trail = world.trail
    world.produce(range(500))

    def meanwhile() -> None:
        wait_until(lambda: world.mark() == 500, within=60, what="the first records")
        database.server.stop("immediate")
        world.produce(range(500, 1000))
        # What was begun is stored a moment later: only what is begun once more has found the server away.
        wait_until(lambda: len(trail.lines()) > len(set(trail.lines())), within=60, what="a record that found it away")
        database.server.start()
        wait_until(lambda: world.mark() == 1000, within=60, what="the rest")

    def note(value: dict[str, object]) -> dict[str, object]:
        if tg.current().offset >= 500:
            trail(value["id"])
        return value

    beside = Beside(meanwhile)
    report = world.run(
        world.pipeline()
        .map(tg.json)
        .map(as_row)
        .map(note)
        .sink(sink(database))  # type: ignore[arg-type]
        .on_error(tg.hold(), tg.dead_letter()),
        until="stopped",
    )
    beside.check()
    assert report.dead == 0
    assert report.counts.held > 0
    assert database.ids() == Counter(range(1000))
    assert database.marks(world) == {0: 1000}


def test_a_group_moved_behind_the_tables_back_is_refused_until_somebody_says_whom_to_trust(
    world: World, database: Database
) -> None:
    world.produce(range(100))
    world.run(pipeline(world, database))
    here = Partition(world.topic, 0)
    world.admin.commit_for_empty_group(world.group, {here: (40, "")})
    with pytest.raises(tg.OffsetsDiffer, match=r"group 40, table 100.*--trust"):
        world.run(pipeline(world, database))
    assert world.mark() == 40, "nothing was touched"
    world.settings["trust"] = "table"
    world.run(pipeline(world, database))
    assert (database.ids(), world.mark()) == (Counter(range(100)), 100)
    world.admin.commit_for_empty_group(world.group, {here: (40, "")})
    world.settings["trust"] = "group"
    database.do("delete from orders where id >= 40")
    world.run(pipeline(world, database))
    assert (database.ids(), world.mark(), database.marks(world)) == (Counter(range(100)), 100, {0: 100})


def test_a_group_that_has_expired_goes_on_from_the_table(world: World, database: Database) -> None:
    world.produce(range(50))
    world.run(pipeline(world, database))
    world.admin.ask("deleting the group", lambda client, _: client.delete_consumer_groups([world.group]))
    assert world.mark() is None
    world.produce(range(50, 60))
    world.run(pipeline(world, database))
    assert database.ids() == Counter(range(60))
    assert world.mark() == 60


def test_no_database_is_an_error_at_the_start(world: World) -> None:
    world.produce([1])
    gone = tg.postgres("postgresql://nobody@127.0.0.1:1/none", table="orders")
    with pytest.raises(tg.DatabaseUnreachable):
        world.run(world.pipeline().map(tg.json).sink(gone))
    assert world.mark() is None


def test_a_job_with_nothing_to_read_sends_what_waits_in_the_outbox(world: World, database: Database) -> None:
    """What a run leaves that was stopped while Kafka was away: the mark is past the record, its copy is not there."""
    job = pipeline(world, database).on_error(tg.dead_letter())
    world.produce(range(3))
    world.run(job)
    database.do(
        f"""insert into tidegate_outbox ("group", topic, partition, value, headers)
        values ('{world.group}', '{world.group}.dead', 0, 'waits', '[]')"""  # noqa: S608  # tests' own text
    )
    assert world.run(job).exit_code == 0
    assert [one.value for one in tail(f"{world.group}.dead", kafka=world.kafka)] == [b"waits"]
    assert database.do("select count(*) from tidegate_outbox") == [(0,)]


def test_a_job_whose_outbox_holds_what_kafka_never_takes_says_so(world: World, database: Database) -> None:
    job = pipeline(world, database).on_error(tg.dead_letter())
    world.produce(range(3))
    world.run(job)
    database.do(
        f"""insert into tidegate_outbox ("group", topic, partition, value, headers)
        values ('{world.group}', '{world.group}.dead', 77, 'waits', '[]')"""  # noqa: S608  # tests' own text
    )
    with pytest.raises(tg.BrokerRefused, match="copy in the outbox cannot be written"):
        world.run(job)
    assert database.do("select count(*) from tidegate_outbox") == [(1,)]


def test_a_run_that_does_not_wait_says_how_many_copies_kafka_has_not_taken(
    world: World, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    world.run(pipeline(world, database).on_error(tg.dead_letter()))
    world.produce(["no number"])
    database.do(
        f"""insert into tidegate_outbox ("group", topic, partition, value, headers)
        values ('{world.group}', '{world.group}.dead', 0, 'waits', '[]')"""  # noqa: S608  # tests' own text
    )
    with psycopg.connect(database.dsn) as another:
        another.execute("select 1 from tidegate_outbox for update")  # as a process that is just sending it
        with caplog.at_level("WARNING"):
            assert world.run(pipeline(world, database)).exit_code == 3
    assert [one.args for one in caplog.records if getattr(one, "action", "") == "unsent"] == [(1,)]


@pytest.mark.timeout(240)
@channel("plain")
def test_a_run_until_caught_up_waits_for_the_copies_that_kafka_was_not_there_to_take(
    spark: SparkSession, database: Database, tmp_path: Path, live: bool
) -> None:
    with Broker(tmp_path / "broker") as broker:
        kafka = tg.Kafka(broker.bootstrap)
        admin = Admin(kafka, 20.0)
        admin.create_topic("orders", 1)
        away = tmp_path / "away"
        world = World(kafka, admin, "orders", "billing", spark, Trail(tmp_path / "trail"))
        world.settings = {"live": live, "session_timeout": "60s"}  # no partition is lost: nothing else sends the copy
        world.produce(range(4))
        trail, control = world.trail, tg.Control()

        def fails_in_the_outage(value: int) -> int:
            if value == 3:
                trail(value)
                wait_until(away.exists, within=20, what="Kafka is away")
                raise ValueError("never")
            return value

        def outage() -> None:
            wait_until(lambda: bool(trail.lines()), within=60, what="the last record is in work")
            broker.kill()
            away.touch()
            wait_until(lambda: database.marks(world) == {0: 4}, within=60, what="all is stored, and the copy waits")
            wait_until(lambda: _mark_of(control) == 4, within=60, what="its round told of it, or is over")
            assert database.do("select count(*) from tidegate_outbox") == [(1,)]
            broker.start()

        beside = Beside(outage, stops=False)
        report = (
            world.pipeline()
            .map(tg.json)
            .map(fails_in_the_outage)
            .map(as_row)
            .sink(sink(database))  # type: ignore[arg-type]
            .on_error(tg.dead_letter())
            .run(until="caught-up", spark=spark, settings=world.settings, control=control)
        )
        beside.check()
        assert (report.dead, report.exit_code) == (1, 0)
        assert database.do("select count(*) from tidegate_outbox") == [(0,)]
        assert [copy.origin.offset for copy, _ in world.copies("dead")] == [3]
        assert database.ids() == Counter(range(3))


def _mark_of(control: tg.Control) -> int | None:
    known = () if control.status is None else control.status.partitions
    return next((one.mark for one in known if one.partition == Partition("orders", 0)), None)
