"""Records that are gone before they were settled: each policy, while stopped and while running, and how many."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import tidegate as tg
from tests.spark.conftest import Beside, World, channel
from tests.support import PROOF, wait_until
from tidegate.engine import lookout, topics
from tidegate.records import Partition


@pytest.fixture(autouse=True)
def looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookout, "LOOK_SECONDS", 0.5)


def take_by_retention(world: World, before: int) -> None:
    client = AdminClient({"bootstrap.servers": world.kafka.bootstrap})
    for future in client.delete_records([TopicPartition(world.topic, 0, before)]).values():
        future.result(20)
    at = Partition(world.topic, 0)
    assert world.admin.beginnings([at])[at] == before


def make_anew(world: World, count: int) -> None:
    """Delete the topic and make it again, with so many records."""
    old = world.admin.describe([world.topic])[world.topic].topic_id
    world.admin.delete_topic(world.topic)
    world.admin.create_topic(world.topic, 1)
    assert world.admin.describe([world.topic])[world.topic].topic_id != old
    world.produce([f"new {number}" for number in range(count)])


def topic_of_commit(world: World) -> str:
    return world.admin.committed(world.group)[Partition(world.topic, 0)].metadata


def new_id(world: World) -> str:
    return world.admin.describe([world.topic])[world.topic].topic_id


def gate(path: Path, at: str) -> Callable[[object], object]:
    """Return a function that holds one record until the file appears."""

    def hold(value: object) -> object:
        if value == at:
            path.with_suffix(".held").touch()
            while not path.exists():
                time.sleep(0.02)
        return value

    return hold


# --- retention


@pytest.mark.parametrize(("lost", "run", "mark"), [("earliest", [15, 16, 17, 18, 19], 20), ("latest", [], 20)])
def test_a_stopped_group_goes_on_after_retention_as_it_was_told(
    world: World, lost: str, run: list[int], mark: int
) -> None:
    world.produce(range(10))
    world.run(world.pipeline().sink(world.trail))
    world.produce(range(10))
    take_by_retention(world, 15)
    report = world.run(world.pipeline(lost=lost).sink(world.trail))
    assert world.trail.offsets() == [*range(10), *run]
    assert report.lost == (5 if lost == "earliest" else 10), "latest passes what is still there as well"
    assert world.mark() == mark
    world.produce(["later"])
    assert world.run(world.pipeline().sink(world.trail)).lost == 0
    assert world.trail.offsets()[-1] == 20


def held_by_retention(world: World, lost: str) -> tg.Pipeline:
    """Make a pipeline whose reader holds few records at a time, and whose first record waits for a file."""
    world.produce(["first"])
    for _ in range(40):
        world.produce(["x" * 2000])
    kafka = tg.Kafka(world.kafka.bootstrap, {"queued.max.messages.kbytes": 1, "fetch.message.max.bytes": 2500})
    source = tg.from_kafka(world.topic, group=world.group, kafka=kafka, lost=lost)  # type: ignore[arg-type]
    return source.map(tg.text).map(gate(world.trail.path.with_suffix(".gate"), "first")).map(len).sink(world.trail)


def take_while_running(world: World) -> None:
    wait_until(world.trail.path.with_suffix(".held").exists, within=60, what="the first record is in work")
    take_by_retention(world, 35)
    world.trail.path.with_suffix(".gate").touch()


@channel("plain")
def test_a_run_goes_on_after_retention_took_what_it_had_not_read_yet(world: World, live: bool) -> None:
    world.settings = {"live": live}

    def take() -> None:
        take_while_running(world)
        wait_until(lambda: world.mark() == 41, within=60, what="the rest is settled")

    beside = Beside(take)
    report = world.run(held_by_retention(world, "earliest"), until="stopped")
    beside.check()
    ran = world.trail.offsets()
    before = [one for one in ran if one < 35]
    assert before == list(range(len(before))), "what it had in memory"
    assert len(before) < 35, "retention took some that it had not read"
    assert ran[len(before) :] == list(range(35, 41))
    assert report.lost == 35 - len(before)


def test_a_run_stops_when_retention_took_what_it_had_not_read_yet(world: World) -> None:
    beside = Beside(lambda: take_while_running(world), stops=False)
    with pytest.raises(tg.RecordsLost, match="the log begins at 35") as caught:
        world.run(held_by_retention(world, "stop"), until="stopped")
    beside.check()
    ran = world.trail.offsets()
    assert ran == list(range(len(ran)))
    assert world.mark() == len(ran) < 35, "what was settled is committed, and no more"
    assert f"{35 - len(ran)} records are lost" in str(caught.value)


# --- a topic made anew


@pytest.mark.parametrize("count", [2, 9], ids=["shorter", "longer"])
@pytest.mark.parametrize("lost", ["earliest", "latest"])
def test_a_stopped_group_goes_on_with_a_topic_made_anew_as_it_was_told(world: World, lost: str, count: int) -> None:
    world.produce(range(5))
    world.run(world.pipeline().sink(world.trail))
    [old] = world.admin.committed(world.group).values()
    make_anew(world, count)
    # The broker drops the group's offsets with the topic; a tool that copies offsets brings them back.
    world.admin.commit_for_empty_group(world.group, {Partition(world.topic, 0): (old.mark, old.metadata)})
    report = world.run(world.pipeline(lost=lost).sink(world.trail))
    expected = range(count) if lost == "earliest" else range(0)
    assert world.trail.offsets() == [*range(5), *expected]
    assert world.mark() == count
    assert new_id(world) in topic_of_commit(world)
    assert report.lost_uncounted == (Partition(world.topic, 0),), "nobody saw where the old log ended"
    again = world.run(world.pipeline().sink(world.trail))
    assert (again.settled, again.lost, again.lost_uncounted) == (0, 0, ())


EVERY_TWO = [("live", "earliest", 2), ("live", "latest", 9), ("plain", "earliest", 9), ("plain", "latest", 2)]
"""Each two of channel, policy and length meet in one of these; all three ways to meet are for the proof."""
THE_OTHERS = [("live", "earliest", 9), ("live", "latest", 2), ("plain", "earliest", 2), ("plain", "latest", 9)]


@pytest.mark.parametrize(("channel", "lost", "count"), [*EVERY_TWO, *(THE_OTHERS if PROOF else ())])
def test_a_run_goes_on_with_a_topic_made_anew_as_it_was_told(world: World, channel: str, lost: str, count: int) -> None:
    world.settings = {"live": channel == "live"}
    world.produce([f"old {number}" for number in range(5)])

    def change() -> None:
        wait_until(lambda: world.mark() == 5, within=60, what="the old topic is settled")
        make_anew(world, count)
        wait_until(
            lambda: world.mark() == count and new_id(world) in topic_of_commit(world),
            within=60,
            what="the group stands in the new topic",
        )
        world.produce(["later"])
        wait_until(lambda: world.mark() == count + 1, within=60, what="it goes on from there")

    beside = Beside(change)
    report = world.run(world.pipeline(lost=lost).map(tg.text).sink(world.trail), until="stopped")
    beside.check()
    values = world.trail.values()
    assert values[:5] == [f"'old {number}'" for number in range(5)]
    assert values[-1] == "'later'"
    if lost == "earliest":
        assert set(values[5:-1]) == {f"'new {number}'" for number in range(count)}
    assert report.lost_uncounted == ()
    assert report.lost == (0 if lost == "earliest" else count), "the old one was settled to its end"


def test_what_the_old_topic_still_held_is_counted(world: World) -> None:
    world.produce([f"old {number}" for number in range(10)])
    hold = gate(world.trail.path.with_suffix(".gate"), "old 3")

    def change() -> None:
        wait_until(world.trail.path.with_suffix(".held").exists, within=60, what="a record of the old topic is held")
        make_anew(world, 2)
        world.trail.path.with_suffix(".gate").touch()
        wait_until(lambda: world.mark() == 2 and new_id(world) in topic_of_commit(world), within=60, what="it went on")

    beside = Beside(change)
    report = world.run(world.pipeline(lost="earliest").map(tg.text).map(hold).sink(world.trail), until="stopped")
    beside.check()
    old = [value for value in world.trail.values() if "old" in value]
    assert old == [f"'old {number}'" for number in range(len(old))]
    assert report.lost == 10 - len(old)
    assert world.trail.values()[len(old) :] == ["'new 0'", "'new 1'"]


@pytest.mark.parametrize("count", [2, 9], ids=["shorter", "longer"])
def test_a_run_stops_when_its_topic_is_made_anew_and_so_does_the_next(world: World, count: int) -> None:
    world.produce([f"old {number}" for number in range(5)])

    def change() -> None:
        wait_until(lambda: world.mark() == 5, within=60, what="the old topic is settled")
        make_anew(world, count)

    beside = Beside(change, stops=False)
    pipeline = world.pipeline().map(tg.text).sink(world.trail)
    with pytest.raises(tg.RecordsLost, match="made anew"):
        world.run(pipeline, until="stopped")
    beside.check()
    assert (world.mark() or 0) >= 5, "the mark is where it was in the old topic"
    assert new_id(world) not in topic_of_commit(world)
    with pytest.raises(tg.RecordsLost, match="made anew"):
        world.run(pipeline)
    world.run(world.pipeline(lost="earliest").map(tg.text).sink(world.trail))
    assert {f"'new {number}'" for number in range(count)} <= set(world.trail.values())
    assert world.mark() == count


def test_only_what_was_made_anew_is_moved_and_every_partition_of_it(make_world: Callable[..., World]) -> None:
    world, other = make_world(3), make_world(1)
    for partition in range(3):
        world.produce([f"old {number}" for number in range(4)], partition)
    other.produce(["other 0"])

    def marks() -> list[int]:
        found = world.admin.committed(world.group)
        return [found[at].mark for at in sorted(found) if at.topic == world.topic]

    def change() -> None:
        wait_until(lambda: marks() == [4, 4, 4], within=60, what="the old topic is settled")
        world.admin.delete_topic(world.topic)
        world.admin.create_topic(world.topic, 3)
        for partition in range(3):
            world.produce([f"new {number}" for number in range(partition + 2)], partition)
        wait_until(lambda: marks() == [2, 3, 4], within=60, what="every partition stands in the new topic")
        wait_until(lambda: len(world.trail.lines()) >= 12 + 1 + 9, within=60, what="all of the new topic has run")
        other.produce(["other 1"])
        at = Partition(other.topic, 0)
        wait_until(lambda: world.admin.committed(world.group)[at].mark == 2, within=60, what="the other topic flows")

    beside = Beside(change)
    names = [world.topic, other.topic]
    source = tg.from_kafka(names, group=world.group, kafka=world.kafka, lost="earliest")
    report = world.run(source.map(tg.text).sink(world.trail), until="stopped")
    beside.check()
    assert sorted(value for value in world.trail.values() if "other" in value) == ["'other 0'", "'other 1'"]
    assert len([value for value in world.trail.values() if "old" in value]) == 12
    assert (report.lost, report.lost_uncounted) == (0, ())


def test_a_topic_made_anew_with_fewer_partitions_goes_on_with_those_it_has(make_world: Callable[..., World]) -> None:
    world = make_world(2)
    for partition in range(2):
        world.produce([f"old {number}" for number in range(4)], partition)

    def change() -> None:
        wait_until(lambda: (world.mark(0), world.mark(1)) == (4, 4), within=60, what="the old topic is settled")
        make_anew(world, 3)
        wait_until(lambda: world.mark(0) == 3 and new_id(world) in topic_of_commit(world), within=60, what="it goes on")
        world.produce(["later"])
        wait_until(lambda: world.mark(0) == 4, within=60, what="it goes on from there")

    beside = Beside(change)
    report = world.run(world.pipeline(lost="earliest").map(tg.text).sink(world.trail), until="stopped")
    beside.check()
    assert report.exit_code == 0
    assert world.trail.values()[8:] == ["'new 0'", "'new 1'", "'new 2'", "'later'"]
    assert (report.lost, report.lost_uncounted) == (0, ())


def test_a_topic_that_is_deleted_for_good_ends_the_run_and_names_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "GONE_SECONDS", 3.0)
    world.produce(range(3))

    def delete() -> None:
        wait_until(lambda: world.mark() == 3, within=60, what="the topic is settled")
        world.admin.delete_topic(world.topic)

    beside = Beside(delete, stops=False)
    with pytest.raises(tg.TopicMissing, match=f"{world.topic} was deleted"):
        world.run(world.pipeline(lost="earliest").sink(world.trail), until="stopped")
    beside.check()
    assert world.trail.offsets() == [0, 1, 2]
