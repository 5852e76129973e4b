"""Records that nobody would write on purpose: each is settled, set aside and brought back as it is, byte for byte."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer

import tidegate as tg
from tests.hostile import ANY_TIME, EVERY_BYTE, LARGEST, RECORDS, USUAL_BYTES, YEAR_9999, Hostile, write
from tests.spark.conftest import World
from tidegate.copies import record_headers
from tidegate.ops.cluster import Cluster
from tidegate.ops.dead_letters import DeadTopic, make_filter
from tidegate.ops.lag import lag
from tidegate.ops.plain import plain
from tidegate.ops.redrive import Redriving
from tidegate.ops.tail import tail
from tidegate.records import Partition


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return hostile_world(make_world)


def hostile_world(make_world: Callable[..., World], records: Sequence[Hostile] = RECORDS) -> World:
    """Make a topic with all of them."""
    made = make_world(1, ANY_TIME)
    write(made.kafka.bootstrap, made.topic, records)
    assert made.admin.ends([Partition(made.topic, 0)]) == {Partition(made.topic, 0): len(records)}
    return made


def cluster_of(world: World) -> Cluster:
    return Cluster(world.kafka, 20.0)


@pytest.mark.timeout(180)
def test_hostile_records_are_set_aside_shown_and_brought_back_as_they_are(world: World, tmp_path: Path) -> None:
    mended = tmp_path / "mended"

    def look(value: bytes | None) -> bytes | None:
        record = tg.current()
        assert value == record.value
        if not mended.exists():
            raise ValueError(f"no good: \ud800 {record.timestamp}")
        return value

    pipeline = (
        world.pipeline()
        .map(look)
        .sink(world.trail)
        .parallel(4, order="key")
        .on_error(tg.retry(1, wait="1ms"), tg.dead_letter())
    )
    report = world.run(pipeline)

    assert (report.dead, report.settled, world.mark()) == (len(RECORDS), 0, len(RECORDS))
    letters = {copy.origin.offset: (copy, letter) for copy, letter in world.copies("dead")}
    for at, one in enumerate(RECORDS):
        copy, letter = letters[at]
        assert (letter.key, letter.value) == (one.key, one.value), one.name
        assert list(record_headers(letter.headers)) == list(one.headers), one.name
        if one.timestamp:
            assert copy.origin.timestamp_ms == (None if one.timestamp == -1 else one.timestamp), one.name

    topic = DeadTopic(cluster_of(world), world.group)
    for found in topic.by_id(f"{world.group}:{world.topic}:0:0"):
        assert found.letter.value == EVERY_BYTE
    for _, letter in letters.values():
        shown = topic.at(letter.partition, letter.offset).letter
        assert orjson.loads(orjson.dumps(plain(shown)))["offset"] == letter.offset
    for seen in tail(world.topic, kafka=world.kafka):
        assert orjson.dumps(plain(seen))
        assert (seen.timestamp is None) == (RECORDS[seen.offset].timestamp in (-1, LARGEST))

    mended.touch()
    assert Redriving(cluster_of(world), world.group, make_filter()).send().sent == len(RECORDS)
    assert world.run(pipeline).settled == len(RECORDS)
    assert Counter(world.trail.offsets()) == Counter(range(len(RECORDS)))


@pytest.mark.timeout(180)
def test_lag_is_known_where_times_are_absent_or_absurd(world: World) -> None:
    world.run(world.pipeline().filter(lambda _: False).sink(world.trail))
    world.admin.commit_for_empty_group(world.group, {Partition(world.topic, 0): (10, "")})
    group = lag(world.group, kafka=world.kafka)
    assert group.lag == len(RECORDS) - 10
    assert orjson.dumps(plain(group))


@pytest.mark.timeout(180)
def test_hostile_records_are_rows_of_a_dataframe(world: World, tmp_path: Path) -> None:
    def rows(df: Any) -> Any:
        return tg.bad(df, df.key.isNotNull(), "has a key")

    report = world.run(world.pipeline().dataframe(rows).sink(tg.parquet(str(tmp_path / "out"))))
    with_key = {at for at, one in enumerate(RECORDS) if one.key is not None}

    written = {row["offset"]: row for row in world.spark.read.parquet(str(tmp_path / "out")).collect()}
    assert set(written) == set(range(len(RECORDS))) - with_key
    assert {copy.origin.offset for copy, _ in world.copies("dead")} == with_key
    assert (report.settled + report.dead, world.mark()) == (len(RECORDS), len(RECORDS))
    for at, row in written.items():
        one = RECORDS[at]
        assert (None if row["value"] is None else bytes(row["value"])) == one.value, one.name
        assert len(row["headers"] or ()) == len(one.headers), one.name
        assert (row["timestamp"] is None) == (one.timestamp in (-1, LARGEST, YEAR_9999)), one.name


@pytest.mark.parametrize("decoder", [tg.json, tg.text])
def test_what_decoders_cannot_read_is_set_aside_and_nothing_else(world: World, decoder: Callable[..., Any]) -> None:
    report = world.run(world.pipeline().map(decoder).sink(world.trail).on_error(tg.dead_letter()))

    def is_readable(one: Hostile) -> bool:
        try:
            decoder(one.value)
        except tg.Undecodable:
            return False
        return True

    good = [at for at, one in enumerate(RECORDS) if is_readable(one)]
    assert world.trail.offsets() == good
    assert {copy.origin.offset for copy, _ in world.copies("dead")} == set(range(len(RECORDS))) - set(good)
    assert (report.settled, world.mark()) == (len(good), len(RECORDS))


def refuse(_: object) -> None:
    raise ValueError("no good: " + "\u20ac" * 5000)


def test_the_copy_of_a_record_as_large_as_its_topic_takes_is_taken(make_world: Callable[..., World]) -> None:
    world = make_world(1)
    value = EVERY_BYTE * (USUAL_BYTES // 256 - 1)
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap, "message.max.bytes": 2_000_000})
    producer.produce(world.topic, value)
    assert producer.flush(30) == 0
    report = world.run(
        world.pipeline()
        .map(refuse)
        .sink(world.trail)
        .on_error(tg.retry_later("1s"), tg.dead_letter())
        .parallel(order="key")
    )

    assert (report.dead, world.mark()) == (1, 1)
    [(_, letter)] = world.copies("dead")
    assert letter.value == value


@pytest.mark.parametrize("exactly_once", [True, False])
def test_the_copy_of_a_record_that_was_small_only_because_it_was_compressed_is_taken(
    make_world: Callable[..., World], exactly_once: bool
) -> None:
    world = make_world(1)
    value = b"all the same " * 400_000
    packing = {"compression.type": "gzip", "message.max.bytes": 10_000_000}
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap, **packing})
    producer.produce(world.topic, value)
    assert producer.flush(30) == 0
    assert len(value) > USUAL_BYTES + 65_536, "it would be taken anyway"
    world.admin.create_topic(f"{world.topic}-out", 1)
    sink = tg.kafka(f"{world.topic}-out", exactly_once=exactly_once)
    report = world.run(world.pipeline().map(refuse).sink(sink).on_error(tg.dead_letter()))

    assert (report.dead, world.mark()) == (1, 1)
    [(_, letter)] = world.copies("dead")
    assert letter.value == value
    assert Redriving(cluster_of(world), world.group, make_filter()).send().sent == 1


def test_a_header_whose_name_is_no_text_ends_no_worker_and_is_told(make_world: Callable[..., World]) -> None:
    """The client would hand out a pair with a hole in it, which ends the process that touches it."""
    world = make_world(1)
    # Many: Python makes a call quicker that it has seen often, and then looks less closely at what comes back.
    for name in (b"fine=0", *(b"\xff\xfe=1" for _ in range(20))):
        command = [b"kcat", b"-P", b"-b", world.kafka.bootstrap.encode(), b"-t", world.topic.encode(), b"-H", name]
        subprocess.run([*command, b"-H", b"kept=2"], input=b"value\n", check=True)

    def look(value: bytes) -> bytes:
        assert tg.current().headers
        return value

    report = world.run(world.pipeline().map(look).sink(world.trail).on_error(tg.retry(2, wait="1ms"), tg.dead_letter()))
    assert (report.settled, report.dead, world.mark()) == (1, 20, 21)
    assert world.trail.offsets() == [0]
    letters = world.copies("dead")
    assert sorted(copy.origin.offset for copy, _ in letters) == list(range(1, 21))
    for copy, letter in letters:
        assert (copy.error_type, letter.value) == ("Undecodable", b"value")
        assert "is no UTF-8 text" in copy.error_message
        assert list(record_headers(letter.headers)) == [("kept", b"2")], "what can be read is kept"
    assert [one.headers for one in tail(world.topic, kafka=world.kafka)][1:] == [(("kept", b"2"),)] * 20
