"""Chosen partitions from chosen offsets: where they start, what is left alone, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer

import tidegate as tg
from tests.spark.conftest import World
from tests.support import wait_until
from tidegate.records import Partition


def source(world: World, places: dict[int, Any], *, always: bool = False, **more: Any) -> tg.Pipeline:
    chosen = tg.at({world.topic: places}, always=always)
    return tg.from_kafka(chosen, group=world.group, kafka=world.kafka, **more).sink(world.trail)


@pytest.fixture
def filled(make_world: Callable[..., World]) -> World:
    world = make_world(4)
    for partition in range(4):
        world.produce(range(5), partition)
    return world


def test_only_the_chosen_partitions_are_read_from_their_places_and_counted(filled: World) -> None:
    report = filled.run(source(filled, {0: 3, 1: "beginning", 2: "end"}))
    assert [filled.trail.offsets(number) for number in range(4)] == [[3, 4], [0, 1, 2, 3, 4], [], []]
    assert report.settled == 7
    assert set(report.marks) == {Partition(filled.topic, number) for number in (0, 1, 2)}
    assert [filled.mark(number) for number in range(4)] == [5, 5, 5, None], "the last is given no start"


def test_a_commit_of_the_group_outranks_the_place(filled: World) -> None:
    filled.run(source(filled, {0: 3}))
    filled.produce([5], 0)
    filled.run(source(filled, {0: 1}))
    assert filled.trail.offsets(0) == [3, 4, 5]


def test_always_rewinds_once_per_run(filled: World) -> None:
    filled.run(source(filled, {0: 3, 1: "end"}))
    report = filled.run(source(filled, {0: 2}, always=True))
    assert filled.trail.offsets(0) == [3, 4, 2, 3, 4]
    assert report.settled == 3
    assert filled.mark(0) == 5
    assert filled.mark(1) == 5, "other partitions stay where they are"


def test_always_is_refused_while_the_group_has_members(filled: World) -> None:
    filled.run(source(filled, {0: "end"}))
    rival = Consumer(
        {"bootstrap.servers": filled.kafka.bootstrap, "group.id": filled.group, "enable.auto.commit": False}
    )
    rival.subscribe([filled.topic])
    try:
        wait_until(lambda: bool(rival.poll(0.2) or rival.assignment()), within=60, what="the rival is a member")
        with pytest.raises(tg.BrokerRefused, match="has members") as caught:
            filled.run(source(filled, {0: 0}, always=True))
        assert "stop every process" in caught.value.cure
    finally:
        rival.close()
    assert filled.mark(0) == 5
    assert filled.trail.lines() == []


@pytest.mark.parametrize(
    ("places", "error", "words"),
    [
        ({0: 6}, tg.SettingsError, "goes from 0 to 5"),
        ({4: 0}, tg.TopicMissing, r"\[4\] does not exist"),
    ],
)
@pytest.mark.parametrize("always", [False, True])
def test_a_place_that_does_not_exist_is_refused_and_nothing_is_committed(
    filled: World, places: dict[int, Any], error: type[Exception], words: str, always: bool
) -> None:
    with pytest.raises(error, match=words):
        filled.run(source(filled, places, always=always))
    assert filled.admin.committed(filled.group) == {}


def test_a_member_gives_places_to_what_has_none_where_the_group_has_others(filled: World) -> None:
    rival = Consumer(
        {
            "bootstrap.servers": filled.kafka.bootstrap,
            "group.id": filled.group,
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
        }
    )
    other = f"{filled.topic}-other"
    filled.admin.create_topic(other)
    rival.subscribe([other])
    try:
        wait_until(lambda: bool(rival.poll(0.2) or rival.assignment()), within=60, what="the rival is a member")
        filled.run(source(filled, {0: 3, 1: "end"}))
    finally:
        rival.close()
    assert filled.trail.offsets(0) == [3, 4]
    assert [filled.mark(number) for number in range(4)] == [5, 5, None, None]
