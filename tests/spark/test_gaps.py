"""Offsets are not record counts: compaction and transactions leave holes, and lag still ends at 0."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition

import tidegate as tg
from tests.spark.conftest import World
from tests.support import wait_until
from tidegate.records import Partition


def transaction(world: World, values: list[object], *, end: str) -> Producer:
    """Write values in one transaction; `end` is commit, abort or open."""
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(20)
    producer.begin_transaction()
    for value in values:
        producer.produce(world.topic, str(value).encode(), partition=0)
    producer.flush(20)
    if end == "commit":
        producer.commit_transaction(20)
    elif end == "abort":
        producer.abort_transaction(20)
    return producer


def end_of(world: World) -> int:
    partition = Partition(world.topic, 0)
    return world.admin.ends([partition])[partition]


def test_aborted_records_and_markers_are_passed(world: World) -> None:
    transaction(world, [1, 2], end="commit")
    transaction(world, [666, 667], end="abort")
    transaction(world, [3], end="commit")
    transaction(world, [668], end="abort")
    report = world.run(world.pipeline().map(tg.json).sink(world.trail))
    assert world.trail.values() == ["1", "2", "3"]
    assert world.trail.offsets() == [0, 1, 6]
    assert end_of(world) == 10, "three markers and three aborted records lie between and behind"
    assert world.mark() == 10, "lag is 0"
    assert report.settled == 3


def test_a_topic_that_ends_with_nothing_but_an_aborted_transaction_is_caught_up(world: World) -> None:
    transaction(world, [1], end="abort")
    world.run(world.pipeline().sink(world.trail))
    assert world.trail.lines() == []
    assert world.mark() == end_of(world) == 2


def test_an_open_transaction_does_not_keep_a_run_from_its_end(world: World) -> None:
    world.produce([1, 2])
    holder = transaction(world, [3], end="open")
    world.produce([4])
    world.run(world.pipeline().map(tg.json).sink(world.trail))
    assert world.trail.values() == ["1", "2"], "what lies behind an open transaction is not committed yet"
    assert world.mark() == 2
    holder.commit_transaction(20)
    world.run(world.pipeline().map(tg.json).sink(world.trail))
    assert world.trail.values() == ["1", "2", "3", "4"]
    assert world.mark() == end_of(world) == 5


def first_retained_gap(world: World) -> list[int]:
    """Read the topic with a foreign consumer and return the offsets that are still there."""
    consumer = Consumer(
        {"bootstrap.servers": world.kafka.bootstrap, "group.id": "foreign", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(world.topic, 0, 0)])
    found = []
    while (message := consumer.poll(10)) is not None and message.error() is None:
        found.append(message.offset())
    consumer.close()
    return [one for one in found if one is not None]


def test_a_compacted_topic_is_read_to_its_end(make_world: Callable[..., World]) -> None:
    world = make_world(
        1,
        {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "100",
            "delete.retention.ms": "100",
            "max.compaction.lag.ms": "200",
        },
    )
    world.produce(range(200), key=b"same")
    world.produce(["a"], key=b"other")

    def compacted() -> bool:
        world.produce(["tick"], key=b"tick")  # a segment is closed only by a later record
        return len(first_retained_gap(world)) < 50

    wait_until(compacted, within=90, what="the broker compacted the topic")
    there = first_retained_gap(world)
    world.run(world.pipeline().sink(world.trail))
    assert world.trail.offsets()[-1] == there[-1]
    assert set(world.trail.offsets()) <= set(range(end_of(world)))
    assert len(world.trail.offsets()) < 200, "the test must have met a gap"
    assert world.mark() == end_of(world)
