"""A pattern's topics, those that come and go while it runs, and partitions that are added."""

from __future__ import annotations

import logging
import re
import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the client does not mark what it re-exports
    AdminClient,
    NewPartitions,
)

import tidegate as tg
from tests.spark.conftest import Beside, World
from tests.support import wait_until, ways
from tidegate.engine import lookout, topics
from tidegate.records import Partition


@pytest.fixture(autouse=True)
def looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookout, "LOOK_SECONDS", 0.5)
    monkeypatch.setattr(lookout, "EXPAND_SECONDS", 1.5)
    monkeypatch.setattr(topics, "GONE_SECONDS", 3.0)


def write(world: World, topic: str, *values: str, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap})
    for value in values:
        producer.produce(topic, value.encode(), partition=partition)
    assert producer.flush(30) == 0


def mark_of(world: World, topic: str, partition: int = 0) -> int | None:
    found = world.admin.committed(world.group).get(Partition(topic, partition))
    return None if found is None else found.mark


def everything_like(world: World, starting: str = "earliest") -> tg.Pipeline:
    pattern = re.compile(re.escape(world.topic) + r"(-\w+)?(\.\w+)*")
    source = tg.from_kafka(pattern, group=world.group, kafka=world.kafka, starting=starting)  # type: ignore[arg-type]
    return source.map(tg.text).sink(world.trail)


def places(world: World) -> set[tuple[str, int, int]]:
    rows = [line.split(" ", 4) for line in world.trail.lines()]
    return {(row[0], int(row[1]), int(row[2])) for row in rows}


def test_a_pattern_reads_what_matches_and_never_tidegates_own_topics(world: World) -> None:
    own = [f"{world.topic}.dead", f"{world.topic}.redrive", f"{world.topic}.retry.1m"]
    for name in [f"{world.topic}-b", *own, f"x{world.topic}"]:
        world.admin.create_topic(name)
        write(world, name, "in " + name)
    world.produce(["in a"])
    report = world.run(everything_like(world))
    assert places(world) == {(world.topic, 0, 0), (f"{world.topic}-b", 0, 0)}
    assert {partition.topic for partition in report.marks} == {world.topic, f"{world.topic}-b"}
    assert {at.topic for at in world.admin.committed(world.group)} == {world.topic, f"{world.topic}-b"}


def test_a_pattern_that_matches_nothing_is_an_error_that_names_it(world: World) -> None:
    source = tg.from_kafka(re.compile(r"no-such-\d+"), group=world.group, kafka=world.kafka)
    with pytest.raises(tg.TopicMissing, match=r"no-such-\\d\+"):
        world.run(source.sink(world.trail))
    assert world.admin.committed(world.group) == {}


@pytest.mark.parametrize("protocol", ways("classic", "consumer"))
def test_topics_come_and_go_while_a_pattern_runs(world: World, protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidegate.run")
    world.settings = {"group_protocol": protocol}
    later = f"{world.topic}-later"
    took: list[float] = []

    def go_on(count: int) -> None:
        write(world, world.topic, *(f"old {number}" for number in range(count)))

    def make_topic() -> None:
        wait_until(lambda: world.mark() == 1, within=60, what="latest was chosen for the first topic")
        go_on(1)
        wait_until(lambda: world.mark() == 2, within=60, what="the run is at work")
        world.admin.create_topic(later, 2)
        began = time.monotonic()
        write(world, later, "first", "second")
        write(world, later, "third", partition=1)
        go_on(3)
        wait_until(lambda: mark_of(world, later) == 2 and mark_of(world, later, 1) == 1, within=90, what="it was read")
        took.append(time.monotonic() - began)
        world.admin.delete_topic(later)
        wait_until(
            lambda: f"the pattern means {world.topic} now" in caplog.messages,
            within=60,
            what="the deleted topic has left the list",
        )
        go_on(1)
        wait_until(lambda: world.mark() == 6, within=60, what="the first topic goes on")
        world.admin.create_topic(later, 1)
        write(world, later, "anew")
        wait_until(lambda: mark_of(world, later) == 1, within=60, what="the topic that returned is a new one")

    world.produce(["before the start"])
    beside = Beside(make_topic)
    report = world.run(everything_like(world, "latest"), until="stopped")
    beside.check()
    assert report.exit_code == 0, "a topic that is deleted does not end the run of a pattern"
    ran = [line for line in world.trail.lines() if line.startswith(f"{later} ")]
    assert [line.split(" ", 4)[4] for line in ran].count("'first'") == 1
    assert len(ran) == 4, "each once"
    assert (report.lost, report.lost_uncounted) == (0, ()), "all of it was settled when it was deleted"
    assert {place for place in places(world) if place[0] == later} == {(later, 0, 0), (later, 0, 1), (later, 1, 0)}
    assert [line.split()[2] for line in world.trail.lines() if line.startswith(f"{world.topic} ")] == list("12345")
    assert took[0] < 30


def test_partitions_that_are_added_while_it_runs_are_read_from_their_beginning(world: World) -> None:
    took: list[float] = []

    def add() -> None:
        wait_until(lambda: world.mark() == 1, within=60, what="the run is at work")
        client = AdminClient({"bootstrap.servers": world.kafka.bootstrap})
        for future in client.create_partitions([NewPartitions(world.topic, 3)]).values():
            future.result(20)
        began = time.monotonic()
        wait_until(
            lambda: world.admin.describe([world.topic])[world.topic].partitions == 3, within=20, what="it has three"
        )
        world.produce(["a", "b"], partition=2)
        wait_until(lambda: world.mark(2) == 2, within=90, what="the new partition was read")
        took.append(time.monotonic() - began)

    world.produce(["before the start"])
    beside = Beside(add)
    report = world.run(world.pipeline().sink(world.trail), until="stopped")
    beside.check()
    assert report.exit_code == 0
    assert world.trail.offsets(2) == [0, 1]
    assert world.trail.offsets(0) == [0]
    assert took[0] < 30
