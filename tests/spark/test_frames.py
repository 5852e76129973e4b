"""DataFrame pipelines on the real broker and the real Spark: what is read, written, put aside and committed."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.spark.conftest import World
from tests.spark.test_avro import ORDER
from tests.spark.test_gaps import end_of, transaction
from tests.spark.test_lost import take_by_retention
from tests.support import wait_until
from tidegate.copies import record_headers
from tidegate.engine.planning import LEAST_SLICE
from tidegate.records import Partition

Ids = Counter[tuple[int, int]]
SCHEMA = "id long, amount double"


def keep(df: Any) -> Any:
    return df


def ids(world: World, folder: Path) -> Ids:
    """The records that a folder of Parquet holds, by partition and offset, as Spark reads it: as one table."""
    return Counter((row["partition"], row["offset"]) for row in world.spark.read.parquet(str(folder)).collect())


def all_of(ends: dict[int, int]) -> Ids:
    return Counter((number, at) for number, end in ends.items() for at in range(end))


def test_every_record_of_every_partition_is_written_once_and_committed(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    world = make_world(3)
    now = int(time.time() * 1000)
    for number in range(3):
        world.produce(range(100), number, key=b"k", headers=[("a", b"1"), ("b", None)], timestamp=now)
    seen: list[tg.FrameRound] = []

    report = world.run(
        world.pipeline()
        .dataframe(keep, records=120)
        .sink(tg.parquet(str(tmp_path / "out")))
        .sink(tg.write(lambda _, round_: seen.append(round_)))
    )

    assert report.settled == 300
    assert [world.mark(number) for number in range(3)] == [100, 100, 100]
    assert ids(world, tmp_path / "out") == all_of({0: 100, 1: 100, 2: 100})
    row = world.spark.read.parquet(str(tmp_path / "out")).where("partition = 1 and offset = 7").collect()[0]
    assert (bytes(row["key"]), bytes(row["value"]), row["topic"]) == (b"k", b"7", world.topic)
    assert round(row["timestamp"].timestamp() * 1000) == now
    assert [(one["key"], one["value"]) for one in row["headers"]] == [("a", bytearray(b"1")), ("b", None)]
    assert [one.records for one in seen] == [120, 120, 60]
    assert [one.number for one in seen] == sorted({one.number for one in seen}), "the numbers grow"
    assert not any(one.is_repeat for one in seen)
    covered = Counter((one.partition, at) for r in seen for one in r.ranges for at in range(one.start, one.end))
    assert covered == all_of({0: 100, 1: 100, 2: 100})
    assert {path.name.partition("=")[0] for path in (tmp_path / "out").iterdir() if path.is_dir()} == {
        "tidegate_round",
        "_tidegate",
    }


def test_a_long_partition_is_read_by_several_tasks_and_an_ended_transaction_leaves_no_lag(
    world: World, tmp_path: Path
) -> None:
    count = 2 * LEAST_SLICE + 300
    world.produce(range(count))
    transaction(world, [1, 2], end="abort")
    world.settings |= {"frame_records": count * 2}
    tasks: list[int] = []

    def write(df: Any, _round: tg.FrameRound) -> None:
        tasks.append(df.rdd.getNumPartitions())

    pipeline = world.pipeline().dataframe(keep).sink(tg.parquet(str(tmp_path / "out"))).sink(tg.write(write))
    report = world.run(pipeline)
    assert report.settled == count
    assert ids(world, tmp_path / "out") == all_of({0: count})
    assert max(tasks) > 1, "no round was split"
    assert world.mark() == end_of(world) == count + 3


def test_a_range_that_holds_no_record_is_passed_without_a_write(world: World) -> None:
    transaction(world, [1, 2], end="abort")
    calls: list[tg.FrameRound] = []
    report = world.run(world.pipeline().dataframe(keep).sink(tg.write(lambda _, round_: calls.append(round_))))
    assert (report.settled, calls) == (0, [])
    assert world.mark() == end_of(world) == 3


def test_decoded_rows_go_through_all_of_spark_sql(world: World) -> None:
    orders = [{"id": one % 3, "amount": one / 2} for one in range(60)]
    world.produce([json.dumps(one) for one in orders])
    totals: Counter[int] = Counter()

    def total(df: Any) -> Any:
        df.createOrReplaceTempView("orders")
        return df.sparkSession.sql("select value.id, sum(value.amount) total from orders group by 1")

    def write(df: Any, _round: tg.FrameRound) -> None:
        totals.update({row["id"]: row["total"] for row in df.collect()})

    report = world.run(world.pipeline().map(tg.json(schema=SCHEMA)).dataframe(total).sink(tg.write(write)))
    assert report.settled == 60
    assert totals == Counter({one: sum(o["amount"] for o in orders if o["id"] == one) for one in range(3)})


def test_a_record_that_cannot_be_decoded_stops_the_run_and_is_named(world: World) -> None:
    world.produce([b'{"id": 1, "amount": 1}', b'{"id": "x"}', b"no json", None])
    written: list[Any] = []
    pipeline = world.pipeline().map(tg.json(schema=SCHEMA)).dataframe(keep)
    report = world.run(pipeline.sink(tg.write(lambda df, _: written.append(df.count()))))
    assert report.failure is not None
    assert (report.failure.record_offset, report.failure.error_type) == (1, "Undecodable")
    assert (report.exit_code, world.mark(), written) == (3, 0, [])


def test_bad_rows_and_undecodable_records_are_dead_letters_with_their_raw_bytes(world: World, tmp_path: Path) -> None:
    values = [b'{"id": 1, "amount": 5.0}', b"no json", b'{"id": 2, "amount": -1.0}', None, b'{"id": 3}']
    world.produce(values, key=b"\xff\x00", headers=[("tidegate-note", b"theirs"), ("h", b"\x01"), ("n", None)])

    def check(df: Any) -> Any:
        good = tg.bad(df, "value.amount < 0", "a negative amount")
        good = tg.bad(good, good.value.id == 3, good.value.id.cast("string"))
        assert "tidegate_bad" not in good.columns
        return good.select("partition", "offset", "value.*")

    pipeline = world.pipeline().map(tg.json(schema=SCHEMA)).dataframe(check, undecodable=tg.dead_letter())
    report = world.run(pipeline.sink(tg.parquet(str(tmp_path / "out"))))

    assert (report.settled, report.dead, world.mark()) == (2, 3, 5)
    assert ids(world, tmp_path / "out") == Counter([(0, 0), (0, 3)])
    letters = {copy.origin.offset: (copy, one) for copy, one in world.copies("dead")}
    assert {at: copy.error_type for at, (copy, _) in letters.items()} == {1: "Undecodable", 2: "BadRow", 4: "BadRow"}
    assert letters[2][0].error_message == "a negative amount"
    assert letters[4][0].error_message == "3"
    for at, (copy, one) in letters.items():
        assert (one.value, one.key) == (values[at], b"\xff\x00")
        own = record_headers(one.headers)
        assert own == (("tidegate-note", b"theirs"), ("h", b"\x01"), ("n", None))
        assert copy.stable_id == f"{world.group}:{world.topic}:0:{at}"
        assert copy.attempt == 1

    # What is redriven comes back as the record that it was.
    assert tg.redrive(world.group, kafka=world.kafka).sent == 3
    again: list[tuple[int, Any]] = []

    def seen(df: Any) -> Any:
        again.extend((row["offset"], row["value"]) for row in df.collect())
        return df

    raw = world.pipeline().dataframe(seen).sink(tg.write(lambda *_: None))
    assert world.run(raw).settled == 3
    assert {at: bytes(value) for at, value in again} == {at: values[at] for at in (1, 2, 4)}


def test_a_row_is_found_bad_once_even_where_chance_decides(world: World, tmp_path: Path) -> None:
    world.produce(range(400))
    pipeline = world.pipeline().dataframe(lambda df: tg.bad(df, "rand() < 0.5", "chance"))
    report = world.run(pipeline.sink(tg.parquet(str(tmp_path / "out"))))
    dead = Counter((0, copy.origin.offset) for copy, _ in world.copies("dead"))
    assert 0 < report.dead < 400
    assert ids(world, tmp_path / "out") + dead == all_of({0: 400})


def test_avro_is_decoded_into_columns(world: World) -> None:
    encode = tg.to_avro(ORDER)
    world.produce([encode({"id": one, "amount": one / 2}) for one in range(4)] + [None])
    rows: list[tuple[Any, ...]] = []

    def write(df: Any, _round: tg.FrameRound) -> None:
        rows.extend((row["offset"], row["value"] and tuple(row["value"])) for row in df.collect())

    assert world.run(world.pipeline().map(tg.avro(ORDER)).dataframe(keep).sink(tg.write(write))).settled == 5
    assert sorted(rows) == [(0, (0, 0.0)), (1, (1, 0.5)), (2, (2, 1.0)), (3, (3, 1.5)), (4, None)]

    world.produce([b"no avro"])
    report = world.run(world.pipeline().map(tg.avro(ORDER)).dataframe(keep).sink(tg.write(write)))
    assert report.failure is not None
    assert (report.failure.record_offset, report.failure.error_type, world.mark()) == (5, "Undecodable", 5)


def test_what_a_pipeline_of_records_has_settled_ahead_is_not_written_again(world: World, tmp_path: Path) -> None:
    world.produce(range(20))
    trail = world.trail

    def fail(value: bytes) -> bytes:
        if value == b"3":
            wait_until(lambda: len(trail.offsets()) >= 6, within=30, what="others that pass it")
            raise ValueError("no good")
        return value

    first = world.run(world.pipeline().map(fail).sink(world.trail).parallel(4, order="none"))
    assert first.failure is not None
    done = {at for _, at in world.trail.ids()}
    assert world.mark() == 3
    assert max(done) > 3, "nothing was settled ahead, so nothing is shown"
    report = world.run(world.pipeline().dataframe(keep).sink(tg.parquet(str(tmp_path / "out"))))
    assert ids(world, tmp_path / "out") == Counter((0, at) for at in range(20) if at not in done)
    assert (report.settled, world.mark()) == (20 - len(done), 20)


def test_records_that_retention_takes_from_under_a_planned_round_are_counted_as_lost(
    world: World, tmp_path: Path
) -> None:
    world.produce(range(30))
    calls: list[tg.FrameRound] = []

    def retention_is_quicker(_df: Any, round_: tg.FrameRound) -> None:
        calls.append(round_)
        if len(calls) == 1:
            take_by_retention(world, 10)
            raise ValueError("not yet")

    def pipeline(lost: str) -> tg.Pipeline:
        begun = world.pipeline(lost=lost).dataframe(keep).sink(tg.write(retention_is_quicker))
        return begun.sink(tg.parquet(str(tmp_path / "out"))).on_error(tg.retry(1, wait="10ms"))

    with pytest.raises(tg.RecordsLost):
        world.run(pipeline("stop"))
    assert (len(calls), world.mark()) == (1, 0)
    report = world.run(pipeline("earliest"))
    assert (report.lost, report.settled, world.mark()) == (10, 20, 30)
    assert ids(world, tmp_path / "out") == Counter((0, at) for at in range(10, 30))
    assert calls[1].id == calls[0].id, "the first attempt may have been written: what is left keeps its name"


def test_what_a_round_does_is_told_to_whoever_looks(make_world: Callable[..., World]) -> None:
    world = make_world(2)
    world.produce(range(10), 0)
    world.produce(range(10), 1)
    control, store = tg.Control(), world.spark.sparkContext._jsc.sc().statusStore()

    def count(df: Any, _round: tg.FrameRound) -> None:
        assert df.count() == 20

    world.settings |= {"history": "off"}
    pipeline = world.pipeline().dataframe(keep).sink(tg.write(count))
    pipeline.run(until="caught-up", spark=world.spark, settings=world.settings, control=control)
    status = control.status
    assert status is not None
    assert {one.partition: one.committed for one in status.partitions} == {
        Partition(world.topic, 0): 10,
        Partition(world.topic, 1): 10,
    }
    assert (status.counts.settled, status.rounds) == (20, 1)
    told = [job.description().get() for job in _jobs(store) if job.description().isDefined()]
    mine = [one for one in told if one.startswith(f"tidegate {world.group}: ")]
    assert any(": read, round " in one and f"{world.topic}[0], {world.topic}[1]" in one for one in mine), told[:3]
    assert any("write(" in one and "of 20 records" in one for one in mine)

    world.produce(range(3), 1)
    world.run(world.pipeline().sink(world.trail).lanes(1))
    told = [job.description().get() for job in _jobs(store) if job.description().isDefined()]
    name = f"tidegate {world.group}: round 1 of lane 0: {world.topic}[1]"
    assert any(one.startswith(name) for one in told), "a round of records has its lane, number and partitions"


def _jobs(store: Any) -> list[Any]:
    found = store.jobsList(None)
    return [found.apply(at) for at in range(found.size())]
