"""Which node of Kafka a fault strikes, so that what becomes of it is our doing and not Kafka's own loss of data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidegate.kafka.connection import Kafka
from tidegate.kafka.leaders import read_all_replicas

if TYPE_CHECKING:
    from tidegate.dev.cluster import Cluster

NOT_WHOLE = "the replicas did not come in sync"


def choose_node(cluster: Cluster, draw: float) -> int | None:
    """Return the only node, or one of several by this draw; None while the others could not do without it.

    Two away at once leave partitions without a leader, which Kafka takes for deleted when a transaction ends: it would
    lose outputs by itself. And what was acknowledged lies on two nodes: both may not be emptied.
    """
    nodes = cluster.nodes
    if len(nodes) > 1 and not (cluster.is_running and cluster.is_whole()):
        return None
    return nodes[min(int(draw * len(nodes)), len(nodes) - 1)]


def duties_of(cluster: Cluster, number: int, groups: Iterable[str]) -> str:
    """Return in words what a node of several does for others: what goes elsewhere when it is struck."""
    if len(cluster.nodes) == 1:
        return ""
    found = read_all_replicas(Kafka(cluster.bootstrap))
    led = sum(one.leader == number for each in found.values() for one in each.values())
    coordinated = sorted(group for group in groups if cluster.coordinator_of(group) == number)
    return f"node {number}, which led {led} partitions and coordinated {', '.join(coordinated) or 'no group'}"
