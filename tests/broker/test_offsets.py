"""Where a group stands, as any tool would see it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support import wait_until
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.ops.offsets import PartitionOffsets, offsets
from tidegate.ops.plain import plain
from tidegate.ops.produce import Message, produce
from tidegate.records import Partition

if TYPE_CHECKING:
    from tidegate.dev.broker import Broker


@pytest.fixture
def kafka(broker: Broker) -> Kafka:
    return Kafka(broker.bootstrap)


@pytest.fixture
def topic(kafka: Kafka) -> str:
    name = f"offsets-{uuid.uuid4().hex[:12]}"
    Admin(kafka).create_topic(name, partitions=3)
    produce(name, [Message(str(number), partition=0) for number in range(10)], kafka=kafka)
    return name


def test_mark_end_and_lag_of_each_committed_partition(kafka: Kafka, topic: str) -> None:
    zero, one = Partition(topic, 0), Partition(topic, 1)
    Admin(kafka).commit_for_empty_group(topic, {zero: (4, "v1:ahead"), one: (0, "")})
    found = offsets(topic, kafka=kafka)

    assert (found.group, found.state, found.lag, found.members) == (topic, "empty", 6, ())
    assert found.partitions == (
        PartitionOffsets(zero, 4, 0, 10, 6, 0, "v1:ahead", None),
        PartitionOffsets(one, 0, 0, 0, 0, 0, "", None),
    )


def test_what_retention_has_taken_is_counted_as_lost(kafka: Kafka, topic: str) -> None:
    at = Partition(topic, 0)
    Admin(kafka).commit_for_empty_group(topic, {at: (2, "")})
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in client.delete_records([TopicPartition(topic, 0, 7)]).values():
        future.result(10)

    assert offsets(topic, kafka=kafka).partitions == (PartitionOffsets(at, 2, 7, 10, 8, 5, "", None),)


def test_a_member_is_named_also_where_it_has_not_committed_yet(kafka: Kafka, topic: str) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": topic, "client.id": "them"}
    with Consumer({**settings, "enable.auto.commit": False}) as member:
        member.subscribe([topic])

        def has_partitions() -> bool:
            member.poll(0.05)
            return bool(member.assignment())

        wait_until(has_partitions, within=30, what="the member has its partitions")
        found = offsets(topic, kafka=kafka)

    assert found.state == "stable"
    assert [(each.partition.number, each.mark, each.lag, each.member) for each in found.partitions] == [
        (number, None, None, "them@127.0.0.1") for number in range(3)
    ]
    assert found.lag == 0


def test_a_group_that_nobody_used_is_dead_and_empty(kafka: Kafka, topic: str) -> None:
    found = offsets(f"{topic}-not", kafka=kafka)

    assert (found.state, found.lag, found.partitions) == ("dead", 0, ())


def test_the_cluster_comes_from_the_settings_where_none_is_named(
    broker: Broker, kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Admin(kafka).commit_for_empty_group(topic, {Partition(topic, 0): (4, "")})
    monkeypatch.setenv("TIDEGATE_BOOTSTRAP", broker.bootstrap)

    assert offsets(topic) == offsets(topic, kafka=kafka)


def test_json_has_the_names_of_the_fields_and_a_partition_as_topic_and_number(kafka: Kafka, topic: str) -> None:
    Admin(kafka).commit_for_empty_group(topic, {Partition(topic, 0): (4, "m")})

    assert plain(offsets(topic, kafka=kafka)) == {
        "group": topic,
        "state": "empty",
        "lag": 6,
        "members": [],
        "partitions": [
            {
                "topic": topic,
                "partition": 0,
                "mark": 4,
                "beginning": 0,
                "end_offset": 10,
                "lag": 6,
                "lost": 0,
                "metadata": "m",
                "member": None,
            }
        ],
    }
