"""Rewinds of real groups: the plan is what happens, and nobody else is touched."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import tidegate as tg
from tests.support import wait_until
from tidegate.kafka.admin import Admin
from tidegate.kafka.commits import read_commits
from tidegate.records import Partition

if TYPE_CHECKING:
    from tidegate.dev.broker import Broker

HOUR_MS = 3_600_000
BASE_MS = 1_700_000_000_000


class Scene:
    """A topic of two partitions whose records are an hour apart; the first ten of partition 0 are gone."""

    def __init__(self, broker: Broker) -> None:
        self.kafka = tg.Kafka(broker.bootstrap)
        self.admin = Admin(self.kafka, 20.0)
        self.name = f"rewind-{uuid.uuid4().hex[:10]}"
        self.admin.create_topic(self.name, 2, {"retention.ms": "-1"})
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(100):
            for partition in range(2):
                producer.produce(self.name, str(number), partition=partition, timestamp=BASE_MS + number * HOUR_MS)
        assert producer.flush(30) == 0
        client = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in client.delete_records([TopicPartition(self.name, 0, 10)]).values():
            future.result(10)
        self.places = [Partition(self.name, number) for number in range(2)]
        self.stand(self.name, 50)
        self.stand(f"{self.name}-other", 33)

    def stand(self, group: str, mark: int) -> None:
        self.admin.commit_for_empty_group(group, dict.fromkeys(self.places, (mark, "")))

    def marks(self, group: str | None = None) -> dict[int, int]:
        found = self.admin.committed(group or self.name, self.places)
        return {place.number: commit.mark for place, commit in found.items()}

    def time(self, hours: float) -> str:
        return datetime.fromtimestamp((BASE_MS + hours * HOUR_MS) / 1000, UTC).isoformat()


@pytest.fixture
def scene(broker: Broker) -> Scene:
    return Scene(broker)


def test_every_way_of_saying_where_the_dry_run_is_the_result(scene: Scene) -> None:
    cases = {
        "beginning": {0: 10, 1: 0},
        "end": {0: 100, 1: 100},
        "70": {0: 70, 1: 70},
        "5": {0: 10, 1: 5},
        "5000": {0: 100, 1: 100},
        "-20": {0: 30, 1: 30},
        "-1000": {0: 10, 1: 0},
        "+20": {0: 70, 1: 70},
        scene.time(-5): {0: 10, 1: 0},
        scene.time(40): {0: 40, 1: 40},
        scene.time(40.5): {0: 41, 1: 41},
        scene.time(500): {0: 100, 1: 100},
    }
    for to, expected in cases.items():
        for partition in (None, 1):
            scene.stand(scene.name, 50)
            wanted = expected if partition is None else {0: 50, 1: expected[1]}
            planned = tg.rewind(scene.name, to, topic=scene.name, partition=partition, dry_run=True, kafka=scene.kafka)
            assert scene.marks() == {0: 50, 1: 50}, "a dry run moves nothing"
            done = tg.rewind(scene.name, to, topic=scene.name, partition=partition, kafka=scene.kafka)
            assert done.is_done
            assert done.moves == planned.moves
            assert scene.marks() == wanted, to
            assert {move.partition.number: move.to for move in done.moves}.items() <= wanted.items()
    assert scene.marks(f"{scene.name}-other") == {0: 33, 1: 33}, "another group stays where it is"


def test_without_a_topic_all_are_moved_but_the_groups_own(scene: Scene) -> None:
    own = f"{scene.name}.retry.1m"
    scene.admin.create_topic(own)
    producer = Producer({"bootstrap.servers": scene.kafka.bootstrap})
    for number in range(3):
        producer.produce(own, str(number))
    assert producer.flush(30) == 0
    scene.admin.commit_for_empty_group(scene.name, {Partition(own, 0): (1, "")})
    done = tg.rewind(scene.name, "beginning", kafka=scene.kafka)
    assert {move.partition for move in done.moves} == set(scene.places)
    assert done.waiting == 2
    assert scene.admin.committed(scene.name, [Partition(own, 0)])[Partition(own, 0)].mark == 1


def test_a_group_with_members_is_refused_and_says_who(scene: Scene) -> None:
    # Without auto-commit: a member that reads and commits every 5 s would move the marks this test compares.
    who = {"bootstrap.servers": scene.kafka.bootstrap, "group.id": scene.name, "client.id": "them"}
    member = Consumer({**who, "enable.auto.commit": False})
    member.subscribe([scene.name])
    wait_until(lambda: member.poll(0.1) is None and bool(member.assignment()), within=30, what="its partitions")
    with pytest.raises(tg.BrokerRefused, match="them"):
        tg.rewind(scene.name, "beginning", kafka=scene.kafka)
    assert scene.marks() == {0: 50, 1: 50}
    member.close()


def test_mistakes_are_named(scene: Scene) -> None:
    with pytest.raises(tg.TidegateError, match="has no commit"):
        tg.rewind("nobody-knows-it", "end", kafka=scene.kafka)
    with pytest.raises(tg.TopicMissing):
        tg.rewind(scene.name, "end", topic="no-such-topic", kafka=scene.kafka)
    with pytest.raises(tg.TopicMissing, match="partition"):
        tg.rewind(scene.name, "end", topic=scene.name, partition=7, kafka=scene.kafka)
    with pytest.raises(tg.SettingsError, match="of which topic"):
        tg.rewind(scene.name, "end", partition=1, kafka=scene.kafka)
    with pytest.raises(tg.SettingsError, match="cannot be shifted"):
        tg.rewind(f"{scene.name}-new", "-5", topic=scene.name, kafka=scene.kafka)


def tidegate(scene: Scene, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidegate.cli", *words, "--bootstrap", scene.kafka.bootstrap]
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=60)


def test_the_command_shows_the_plan_asks_and_reads_back(scene: Scene) -> None:
    unasked = tidegate(scene, "rewind", scene.name, "--to", "-10")
    assert unasked.returncode == 2
    assert "--yes" in unasked.stderr
    assert scene.marks() == {0: 50, 1: 50}
    dry = tidegate(scene, "rewind", scene.name, "--to", "-10", "--dry-run")
    assert dry.returncode == 0
    assert "20 records at most run again" in dry.stdout
    assert "nothing was moved" in dry.stdout
    done = tidegate(scene, "rewind", scene.name, "--to", "-10", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert [move["to"] for move in json.loads(done.stdout)["moves"]] == [40, 40]
    assert scene.marks() == {0: 40, 1: 40}


def test_watch_shows_the_commits_of_a_group_as_they_were_made(scene: Scene) -> None:
    tg.rewind(scene.name, "70", kafka=scene.kafka)
    seen = tidegate(scene, "watch", scene.name, "--from-beginning", "--until-end", "--json")
    shown = [(one["topic"], one["partition"], one["mark"]) for one in map(json.loads, seen.stdout.splitlines())]
    commits = read_commits(scene.kafka, scene.name)
    assert shown == [(one.partition.topic, one.partition.number, one.mark) for one in commits]
    assert (scene.name, 1, 70) in shown
    people = tidegate(scene, "watch", scene.name, "--topic", scene.name, "--from-beginning", "--until-end")
    assert f"{scene.name}[1]  70  (+20)" in people.stdout
    assert "other" not in people.stdout
