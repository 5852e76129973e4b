"""Kafka to Kafka: outputs, copies and marks in one transaction, or outputs at least once."""

from __future__ import annotations

import json
import os
from collections import Counter

import pytest
from confluent_kafka import Consumer, TopicPartition

import tidegate as tg
from tests.spark.conftest import World
from tests.support import PROOF, visible
from tidegate.kafka.scan import SeenRecord


def outputs(world: World, topic: str | None = None) -> list[SeenRecord]:
    """What readers with read_committed see."""
    return visible(world.admin, world.kafka, topic or f"{world.topic}-out")


def values(world: World, topic: str | None = None) -> list[str]:
    return [(one.value or b"").decode() for one in outputs(world, topic)]


def make_out(world: World, most_bytes: int = 1_000_000) -> str:
    world.admin.create_topic(f"{world.topic}-out", 1, {"max.message.bytes": str(most_bytes)})
    return f"{world.topic}-out"


@pytest.mark.parametrize(
    ("exactly_once", "live"), [(True, True), (False, False), *([(True, False), (False, True)] if PROOF else ())]
)
def test_every_record_has_its_output_once_and_the_group_stands_at_the_end(
    world: World, exactly_once: bool, live: bool
) -> None:
    world.settings["live"] = live
    out = make_out(world)
    world.produce(range(3000), key=b"k")
    sink = tg.kafka(
        out, headers=lambda value: {"from": str(value)}, key=lambda value: f"k{value}", exactly_once=exactly_once
    )
    report = world.run(world.pipeline().map(tg.json).filter(lambda v: v % 10).map(lambda v: v * 2).sink(sink))
    assert report.settled == 3000
    seen = outputs(world)
    expected = [v * 2 for v in range(3000) if v % 10]
    assert [int(one.value or b"") for one in seen] == expected
    assert [one.key for one in seen] == [f"k{v}".encode() for v in expected]
    assert seen[0].headers == (("from", b"2"),)
    assert world.mark() == 3000
    assert sorted(world.commits()) == world.commits()
    if exactly_once:
        log_end = end_of(world, out)
        assert log_end > len(expected), "transactions leave markers"


def end_of(world: World, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": world.kafka.bootstrap, "group.id": "ends"})
    _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    consumer.close()
    return high


def test_a_second_run_goes_on_after_the_first(world: World) -> None:
    out = make_out(world)
    pipeline = world.pipeline().sink(tg.kafka(out, exactly_once=True))
    world.produce(range(10))
    world.run(pipeline)
    world.produce(range(10, 20))
    world.run(pipeline)
    assert values(world) == [str(v) for v in range(20)]
    assert world.mark() == 20


@pytest.mark.parametrize(
    ("exactly_once", "live"), [(True, False), (False, True), *([(True, True), (False, False)] if PROOF else ())]
)
def test_a_record_that_the_broker_refuses_goes_its_way_alone(world: World, exactly_once: bool, live: bool) -> None:
    world.settings["live"] = live
    out = make_out(world, 2000)
    bad = {137, 1600}
    world.produce([json.dumps({"n": n, "pad": os.urandom(3000).hex() if n in bad else ""}) for n in range(2000)])
    pipeline = (
        world.pipeline()
        .map(tg.json)
        .sink(tg.kafka(out, exactly_once=exactly_once))
        .on_error(tg.retry(2), tg.dead_letter())
    )
    report = world.run(pipeline)
    assert report.settled == 1998
    assert report.dead == 2
    assert Counter(json.loads(v)["n"] for v in values(world)) == Counter(set(range(2000)) - bad)
    dead = world.copies("dead")
    assert sorted(copy.origin.offset for copy, _ in dead) == sorted(bad)
    assert {copy.error_type for copy, _ in dead} == {"Reject"}
    assert "too large" in dead[0][0].error_message
    assert world.mark() == 2000


def test_a_refused_record_stops_the_run_by_default_with_all_before_it_visible(world: World) -> None:
    out = make_out(world, 2000)
    world.produce(["x" * 5000 if n == 7 else f"{n}" for n in range(20)])
    report = world.run(world.pipeline().sink(tg.kafka(out, exactly_once=True)))
    assert report.exit_code == 3
    assert report.failure is not None
    assert report.failure.record_offset == 7
    assert values(world) == [str(n) for n in range(7)]
    assert world.mark() == 7


@pytest.mark.parametrize("exactly_once", [True, False], ids=["exactly", "at least"])
@pytest.mark.parametrize("order", ["partition", "key", "none"])
def test_failing_records_have_one_copy_and_no_output(world: World, exactly_once: bool, order: str) -> None:
    out = make_out(world)
    world.produce(range(1000), key=b"one")

    def work(value: int) -> int:
        if value % 100 == 5:
            raise ValueError("no")
        return value

    steps = (tg.dead_letter(),) if order == "partition" else (tg.retry_later("1s"), tg.dead_letter())
    pipeline = (
        world.pipeline()
        .map(tg.json)
        .map(work)
        .sink(tg.kafka(out, exactly_once=exactly_once))
        .parallel(1 if order == "partition" else 4, order=order)  # type: ignore[arg-type]
        .on_error(*steps)
    )
    report = world.run(pipeline)
    failing = {v for v in range(1000) if v % 100 == 5}
    assert Counter(map(int, values(world))) == Counter(set(range(1000)) - failing)
    if order == "key":
        assert list(map(int, values(world))) == sorted(set(range(1000)) - failing)
    dead = Counter(copy.origin.offset for copy, _ in world.copies("dead"))
    assert dead == Counter(failing)
    assert report.dead == len(failing)
    assert world.mark() == 1000


def test_children_and_several_sinks_go_together_and_other_sinks_run_once(world: World) -> None:
    out = make_out(world)
    second = f"{world.topic}-second"
    world.admin.create_topic(second)
    world.produce(range(50))
    pipeline = (
        world.pipeline()
        .map(tg.json)
        .flat_map(lambda v: [f"{v}a", f"{v}b"])
        .sink(tg.kafka(out, exactly_once=True))
        .sink(world.trail)
        .sink(tg.kafka(lambda _: second, exactly_once=True), when=lambda v: v.endswith("a"))
    )
    world.run(pipeline)
    assert values(world) == [f"{v}{c}" for v in range(50) for c in "ab"]
    assert values(world, second) == [f"{v}a" for v in range(50)]
    assert Counter(world.trail.ids()) == Counter((0, at) for at in range(50) for _ in "ab")


def test_a_missing_topic_is_an_error_before_anything_is_read(world: World) -> None:
    world.produce([1])
    with pytest.raises(tg.TopicMissing, match="no-such-topic"):
        world.run(world.pipeline().sink(tg.kafka("no-such-topic", exactly_once=True)))
    assert world.mark() is None
