"""Where a group begins is chosen once, committed before the first record, and never chosen again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the client does not mark what it re-exports
    AdminClient,
    NewPartitions,
)

import tidegate as tg
from tests.spark.conftest import World
from tidegate.records import Partition


def refuse(value: object) -> object:
    raise ValueError(f"refused {value!r}")


def test_latest_is_chosen_once_even_if_the_first_record_fails(world: World) -> None:
    world.produce(["old 1", "old 2"])
    report = world.run(world.pipeline("latest").sink(world.trail))
    assert report.settled == 0
    assert world.mark() == 2, "the chosen position is committed although nothing was settled"

    world.produce(["first"])
    report = world.run(world.pipeline("latest").map(refuse).sink(world.trail))
    assert report.failure is not None
    assert report.failure.record_offset == 2
    world.produce(["second", "third"])

    world.run(world.pipeline("latest").map(tg.text).sink(world.trail))
    assert world.trail.values() == ["'first'", "'second'", "'third'"], "a restart resumes at the failed one"


def test_latest_covers_every_partition_of_the_topic_from_the_start(make_world: Callable[..., World]) -> None:
    world = make_world(3)
    world.produce(["old"], partition=0)
    world.run(world.pipeline("latest").sink(world.trail))
    world.produce(["new"], partition=2)
    world.run(world.pipeline("latest").sink(world.trail))
    assert world.trail.offsets(2) == [0], "a partition that was empty has its position too"
    assert world.trail.offsets(0) == []


def test_earliest_begins_with_all_that_is_retained(world: World) -> None:
    world.produce(range(5))
    client = AdminClient({"bootstrap.servers": world.kafka.bootstrap})
    for future in client.delete_records([TopicPartition(world.topic, 0, 3)]).values():
        future.result(20)
    world.run(world.pipeline().sink(world.trail))
    assert world.trail.offsets() == [3, 4]


def test_none_without_a_commit_is_an_error_and_moves_nothing(world: World) -> None:
    world.produce([1])
    with pytest.raises(tg.NoStartingOffset, match="earliest"):
        world.run(world.pipeline("none").sink(world.trail))
    assert world.mark() is None
    assert world.trail.lines() == []


def test_none_with_a_commit_goes_on_from_there(world: World) -> None:
    world.produce([1])
    world.run(world.pipeline().sink(world.trail))
    world.produce([2])
    world.run(world.pipeline("none").sink(world.trail))
    assert world.trail.offsets() == [0, 1]


def test_a_partition_added_later_begins_at_its_beginning_whatever_starting_says(world: World) -> None:
    world.run(world.pipeline("latest").sink(world.trail))
    client = AdminClient({"bootstrap.servers": world.kafka.bootstrap})
    for future in client.create_partitions([NewPartitions(world.topic, 2)]).values():
        future.result(20)
    world.produce(["in the new one"], partition=1)
    world.run(world.pipeline("latest").sink(world.trail))
    assert world.trail.offsets(1) == [0]
    assert world.mark(1) == 1


def test_records_lost_to_retention_stop_the_run_and_are_counted(world: World) -> None:
    world.produce(range(10))
    world.run(world.pipeline().sink(world.trail))
    world.produce(range(10))
    client = AdminClient({"bootstrap.servers": world.kafka.bootstrap})
    for future in client.delete_records([TopicPartition(world.topic, 0, 15)]).values():
        future.result(20)
    with pytest.raises(tg.RecordsLost, match="5 records"):
        world.run(world.pipeline().sink(world.trail))
    assert world.mark() == 10
    assert world.trail.offsets() == list(range(10))


def test_a_topic_made_anew_is_not_mistaken_for_the_old_one(world: World) -> None:
    world.produce(range(3))
    world.run(world.pipeline().sink(world.trail))
    [old] = world.admin.committed(world.group).values()
    world.admin.delete_topic(world.topic)
    world.admin.create_topic(world.topic, 1)
    world.produce(range(9))
    # The broker drops the group's offsets with the topic; a tool that copies offsets brings them back.
    world.admin.commit_for_empty_group(world.group, {Partition(world.topic, 0): (old.mark, old.metadata)})
    with pytest.raises(tg.RecordsLost, match="made anew"):
        world.run(world.pipeline().sink(world.trail))
    assert world.trail.offsets() == [0, 1, 2]
