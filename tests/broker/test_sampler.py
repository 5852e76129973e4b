"""The sampler on a broker of its own, which may go and come back."""

from __future__ import annotations

import sys
import time
import uuid
from concurrent.futures import wait
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support import wait_until
from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.ops.cluster import Cluster
from tidegate.ops.produce import Message, produce
from tidegate.ops.sampler import Sampler
from tidegate.records import Partition

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUPS, PARTITIONS = 200, 50


class Scene:
    """A broker that may be stopped, a topic and a group of its own."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.kafka = Kafka(broker.bootstrap)
        self.cluster = Cluster(self.kafka, 3.0)
        self.name = f"sampler-{uuid.uuid4().hex[:8]}"
        self.admin = Admin(self.kafka, 30.0)
        self.admin.create_topic(self.name)
        self.place = Partition(self.name, 0)

    def write(self, count: int) -> None:
        produce(self.name, [Message(str(number), partition=0) for number in range(count)], kafka=self.kafka)

    def stand(self, mark: int) -> None:
        self.admin.commit_for_empty_group(self.name, {self.place: (mark, "")})

    def lag(self, sampler: Sampler) -> int | None:
        found = sampler.group(self.name)
        return None if found is None else found.lag


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker"), settings={"offsets.topic.num.partitions": "10"}) as running:
        yield running


@pytest.fixture
def scene(own_broker: Broker) -> Scene:
    return Scene(own_broker)


def counted(what: str) -> int:
    """Return how many threads (task) or open files and connections (fd) this process has."""
    return len(list(Path(f"/proc/self/{what}").iterdir()))


def test_before_the_first_look_nothing_is_known(scene: Scene) -> None:
    view = Sampler(scene.cluster).view()
    assert (view.at, view.age_seconds, view.groups, view.problem) == (None, None, (), None)


def test_lag_is_seen_to_grow_and_fall(scene: Scene) -> None:
    scene.stand(0)
    with Sampler(scene.cluster, every=0.2, points=1000) as sampler:
        wait_until(lambda: scene.lag(sampler) == 0, within=30, what="the group")
        scene.write(6)
        wait_until(lambda: scene.lag(sampler) == 6, within=30, what="six records wait")
        scene.stand(4)
        wait_until(lambda: scene.lag(sampler) == 2, within=30, what="two records wait")
        found = sampler.group(scene.name)
        points = sampler.lag_over_time(scene.name)
        view = sampler.view()
    assert found is not None
    assert found.partitions[0].lag_seconds is not None
    changes = [
        point.lag
        for before, point in zip([None, *points], points, strict=False)
        if before is None or before.lag != point.lag
    ]
    assert changes == [0, 6, 2]
    assert [point.at for point in points] == sorted(point.at for point in points)
    assert view.problem is None
    assert view.at is not None
    assert view.age_seconds is not None
    assert scene.name in {one.group for one in view.groups}
    assert sampler.group("nobody") is None
    assert sampler.lag_over_time("nobody") == ()


def test_lag_over_time_is_bounded_and_forgets_groups_that_are_gone(scene: Scene) -> None:
    scene.stand(0)
    with Sampler(scene.cluster, every=0.05, points=5) as sampler:
        wait_until(lambda: len(sampler.lag_over_time(scene.name)) == 5, within=30, what="five looks")
        first = sampler.lag_over_time(scene.name)[0]
        wait_until(lambda: sampler.lag_over_time(scene.name)[0].at > first.at, within=30, what="the oldest goes")
        assert len(sampler.lag_over_time(scene.name)) == 5
        client = AdminClient({"bootstrap.servers": scene.kafka.bootstrap})
        client.delete_consumer_groups([scene.name])[scene.name].result(20)
        wait_until(lambda: sampler.lag_over_time(scene.name) == (), within=30, what="the group is forgotten")
        assert sampler.group(scene.name) is None


def test_refresh_brings_a_look_that_began_after_it(scene: Scene) -> None:
    scene.stand(0)
    with Sampler(scene.cluster, every=3600) as sampler:
        wait_until(lambda: scene.lag(sampler) == 0, within=30, what="the first look")
        scene.write(3)
        sampler.refresh(within=30)
        assert scene.lag(sampler) == 3


def test_while_the_broker_is_away_the_last_figures_stay_with_the_reason_and_then_it_goes_on(scene: Scene) -> None:
    scene.write(5)
    scene.stand(2)
    with Sampler(scene.cluster, every=0.2) as sampler:
        wait_until(lambda: scene.lag(sampler) == 3, within=30, what="the group")
        scene.broker.stop()
        wait_until(lambda: sampler.view().problem is not None, within=60, what="it says that the broker is gone")
        gone = sampler.view()
        assert gone.problem is not None
        assert "does not answer" in gone.problem
        assert scene.lag(sampler) == 3, "the last known figures stay"
        assert {point.lag for point in sampler.lag_over_time(scene.name)} == {3}, (
            "and a broker that goes tells no others"
        )
        assert gone.age_seconds is not None
        wait_until(lambda: (sampler.view().age_seconds or 0) > (gone.age_seconds or 0), within=30, what="they grow old")
        assert sampler.view().at == gone.at
        scene.broker.start()
        wait_until(lambda: sampler.view().problem is None, within=60, what="it goes on by itself")
        scene.write(1)
        wait_until(lambda: scene.lag(sampler) == 4, within=30, what="new figures")


def test_the_time_of_an_outage_is_no_stall(scene: Scene) -> None:
    scene.write(5)
    who = {"bootstrap.servers": scene.kafka.bootstrap, "group.id": scene.name, "enable.auto.commit": False}
    with Consumer(who) as member, Sampler(scene.cluster, every=0.1) as sampler:
        member.subscribe([scene.name])
        wait_until(lambda: member.poll(0.1) is None and bool(member.assignment()), within=30, what="its partitions")
        member.commit(offsets=[TopicPartition(scene.name, 0, 1)], asynchronous=False)
        wait_until(lambda: scene.lag(sampler) == 4, within=30, what="the group")
        before, began = sampler.group(scene.name), time.monotonic()
        scene.broker.stop()
        stopped = time.monotonic()
        wait_until(lambda: sampler.view().problem is not None, within=60, what="the outage")
        wait_until(lambda: time.monotonic() > stopped + 10, within=30, what="ten seconds")
        scene.broker.start()
        wait_until(lambda: sampler.view().problem is None, within=60, what="the broker is back")
        after, passed = sampler.group(scene.name), time.monotonic() - began
    assert before is not None
    assert after is not None
    still = (after.partitions[0].still_seconds or 0) - (before.partitions[0].still_seconds or 0)
    # For ten seconds at least there was no broker; some of them pass until that is noticed.
    assert still < passed - 5, "what counts is the time in which the group could have moved"


@pytest.mark.skipif(sys.platform != "linux", reason="threads and connections are counted in /proc")
def test_two_hundred_groups_of_fifty_partitions_take_no_thread_and_no_connection_each(own_broker: Broker) -> None:
    scene = Scene(own_broker)
    big = f"{scene.name}-big"
    scene.admin.create_topic(big, PARTITIONS)
    client = AdminClient({"bootstrap.servers": scene.kafka.bootstrap})
    places = [TopicPartition(big, number, 0) for number in range(PARTITIONS)]
    missing = {f"{big}-{number}" for number in range(GROUPS)}

    def are_made() -> bool:
        """Commit for all of them at once, and again for those whose coordinator was not there yet."""
        asked = [client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(one, places)]) for one in missing]
        answers = {group: future for each in asked for group, future in each.items()}
        wait(answers.values(), timeout=60)
        missing.difference_update(group for group, future in answers.items() if future.exception() is None)
        return not missing

    wait_until(are_made, within=60, what="the groups")
    produce(big, [Message(b"x", partition=number) for number in range(PARTITIONS)], kafka=scene.kafka)
    threads, connections = counted("task"), counted("fd")
    with Sampler(scene.cluster, every=0.1) as sampler:
        wait_until(lambda: sampler.view().at is not None, within=60, what="the first look")
        began = time.monotonic()
        mine = [one for one in sampler.view().groups if one.group.startswith(big)]
        assert time.monotonic() - began < 2, "the overview answers from memory"
        assert counted("task") < threads + GROUPS / 8, "the clients' own threads included"
        assert counted("fd") < connections + GROUPS / 4
        sampler.refresh(within=60)
    assert len(mine) == GROUPS
    assert {(one.lag, len(one.partitions), one.verdict) for one in mine} == {(PARTITIONS, PARTITIONS, "stopped")}
