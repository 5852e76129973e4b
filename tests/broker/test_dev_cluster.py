"""Several development brokers as one cluster: each can be ended by itself, and the others go on."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidegate as tg
from tests.support import is_alive, wait_until
from tidegate.dev.cluster import OFFSETS, TRANSACTIONS, Cluster
from tidegate.engine.parts import ONE_REPLICA, check_outputs
from tidegate.errors import SettingsError, TopicMissing
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.kafka.leaders import read_replicas
from tidegate.kafka.transactions import fence
from tidegate.ops.produce import Message, produce
from tidegate.ops.tail import tail
from tidegate.records import Partition

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def whole(kafka_cluster: Cluster) -> Iterator[Cluster]:
    """Three nodes; what a test ended is there again after it."""
    yield kafka_cluster
    kafka_cluster.start()
    wait_until(lambda: kafka_cluster.is_whole(OFFSETS), within=60, what="three nodes in sync for the next test")


def new_topic(cluster: Cluster, partitions: int = 3) -> str:
    name = f"nodes-{uuid.uuid4().hex[:10]}"
    admin = Admin(Kafka(cluster.bootstrap), 20.0)
    admin.create_topic(name, partitions)
    admin.committed(name, [Partition(name, 0)])  # makes the topic of all commits, where nobody has yet
    return name


@pytest.mark.timeout(180)
def test_topics_and_kafkas_own_are_on_three_nodes(whole: Cluster) -> None:
    name = new_topic(whole)
    fence(Kafka(whole.bootstrap), name)  # makes the topic of all transactions
    for topic in (name, OFFSETS, TRANSACTIONS):
        found = read_replicas(Kafka(whole.bootstrap), topic)
        assert {len(one.nodes) for one in found.values()} == {3}, topic
    assert whole.coordinator_of(name) in whole.nodes
    assert whole.transactions_of(name) in whole.nodes
    with pytest.raises(TopicMissing):
        whole.leader_of(Partition("there-is-no-such-topic", 0))


@pytest.mark.timeout(180)
def test_questions_are_answered_although_the_node_that_was_asked_is_gone(whole: Cluster) -> None:
    name = new_topic(whole)
    # Each client is told by chance which node to ask: one of these was told the one that is killed.
    admins = [Admin(Kafka(whole.bootstrap), 10.0) for _ in range(9)]
    assert {admin.describe([name])[name].replication for admin in admins} == {3}
    whole.node(2).kill()

    for admin in admins:
        assert admin.describe([name])[name].partitions == 3


@pytest.mark.timeout(180)
def test_what_two_nodes_have_outlives_the_loss_of_the_third(whole: Cluster) -> None:
    name = new_topic(whole, 1)
    kafka = Kafka(whole.bootstrap)
    produce(name, [Message("one")], kafka=kafka)
    first = whole.leader_of(Partition(name, 0))
    assert first is not None
    pid = whole.node(first).pid
    whole.lose(first)
    assert pid is not None
    assert not is_alive(pid)
    assert first not in whole.running

    produce(name, [Message("two")], kafka=kafka)
    whole.node(first).start()
    wait_until(lambda: whole.is_whole(name), within=60, what="a copy of everything on the node that came back empty")
    assert [record.value for record in tail(name, kafka=kafka)] == [b"one", b"two"]


@pytest.mark.timeout(180)
def test_a_given_folder_keeps_the_topics_of_all_nodes(tmp_path: Path) -> None:
    with Cluster(tmp_path, nodes=2) as first:
        name = new_topic(first)
        produce(name, [Message("kept", partition=0)], kafka=Kafka(first.bootstrap))
    assert first.running == []
    with Cluster(tmp_path, nodes=2) as second:
        assert [record.value for record in tail(name, kafka=Kafka(second.bootstrap))] == [b"kept"]
        assert {len(one.nodes) for one in read_replicas(Kafka(second.bootstrap), name).values()} == {2}


def test_a_cluster_without_nodes_is_refused() -> None:
    with pytest.raises(SettingsError, match="cannot be"):
        Cluster(nodes=0)


@pytest.mark.timeout(180)
def test_an_output_on_one_node_of_three_is_no_place_for_exactly_once(
    whole: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    admin = Admin(Kafka(whole.bootstrap), 20.0)
    lone, safe = f"{new_topic(whole)}-lone", new_topic(whole)
    admin.create_topic(lone, replication=1)

    def said(topic: str, *, exactly_once: bool) -> str:
        caplog.clear()
        pipeline = tg.from_kafka(safe, group=safe).sink(tg.kafka(topic, exactly_once=exactly_once))
        assert check_outputs(pipeline.plan(), admin) == [topic]
        return caplog.text

    assert f"topic {lone} {ONE_REPLICA}" in said(lone, exactly_once=True)
    assert said(lone, exactly_once=False) == said(safe, exactly_once=True) == ""
