"""Why exactly once needs outputs with more than one replica: what Kafka itself does to a transaction.

Should this fail with a newer Kafka, it has learned to wait for a leader: then the warning and its page can go.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from tests.support import visible, wait_until
from tidegate.dev.cluster import Cluster
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.kafka.transactions import _open

SECONDS = 20.0
TOPIC = "out"


class Scene:
    """A producer with transactions, and an output that lies on one node, which is not its coordinator's."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.kafka = Kafka(cluster.bootstrap)
        self.admin = Admin(self.kafka, SECONDS)
        self.producer = _open(self.kafka, "lane", [])
        self.admin.create_topic(TOPIC, partitions=6, replication=1)
        places = list(self.admin.describe([TOPIC])[TOPIC].each_partition())
        wait_until(lambda: all(map(cluster.leader_of, places)), within=SECONDS, what="leaders")
        coordinator = cluster.transactions_of("lane")
        self.place = next(one for one in places if cluster.leader_of(one) != coordinator)

    def write(self, value: bytes) -> None:
        self.producer.begin_transaction()
        self.producer.produce(TOPIC, value, partition=self.place.number)
        assert self.producer.flush(SECONDS) == 0

    def lose_the_leader(self) -> int:
        node = self.cluster.leader_of(self.place)
        assert node is not None
        self.cluster.node(node).kill()
        wait_until(lambda: self.cluster.leader_of(self.place) is None, within=60, what="no leader")
        return node

    def bring_back(self, node: int) -> None:
        self.cluster.node(node).start()
        wait_until(lambda: self.cluster.leader_of(self.place) is not None, within=60, what="the leader again")
        wait_until(self._answers, within=60, what="answers")

    def _answers(self) -> bool:
        try:
            self.write(b"later")
        except Exception:  # noqa: BLE001  # the client has to find the node again
            return False
        return True

    def seen(self) -> list[bytes | None]:
        return [one.value for one in visible(self.admin, self.kafka, TOPIC) if one.partition == self.place.number]


End = Callable[[Producer, float], None]


def seen_after(end: End, end_of_the_next: End) -> list[bytes | None]:
    """End a transaction while its partition has no leader, and the next one when it has; return what readers see."""
    with Cluster() as cluster:
        scene = Scene(cluster)
        scene.write(b"first")
        node = scene.lose_the_leader()
        end(scene.producer, SECONDS)
        scene.bring_back(node)
        end_of_the_next(scene.producer, SECONDS)
        return scene.seen()


@pytest.mark.timeout(300)
def test_what_was_aborted_without_a_leader_is_seen_after_the_next_commit() -> None:
    assert seen_after(Producer.abort_transaction, Producer.commit_transaction) == [b"first", b"later"]


@pytest.mark.timeout(300)
def test_what_was_committed_without_a_leader_is_gone_after_the_next_abort() -> None:
    assert seen_after(Producer.commit_transaction, Producer.abort_transaction) == []
