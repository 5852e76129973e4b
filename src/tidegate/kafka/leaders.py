"""Which nodes have a topic's partitions, which lead them, and which coordinates a group or a transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient

from tidegate.errors import TopicMissing
from tidegate.kafka.connection import Kafka, translated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka.admin._metadata import PartitionMetadata

_ANSWER_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Replicas:
    """The nodes of one partition, by number."""

    nodes: tuple[int, ...]
    """All that should have it; the first is meant to lead."""
    in_sync: tuple[int, ...]
    leader: int | None


def read_replicas(kafka: Kafka, topic: str) -> dict[int, Replicas]:
    """Return where each partition of a topic lies, by partition number."""
    # Any node may answer this; the call that describes topics waits for one certain node, which may be gone.
    where = f"looking for the leaders of {topic}"
    with translated(where, kafka.bootstrap):
        found = AdminClient(kafka.client()).list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic]
    if found.error is not None or not found.partitions:
        raise TopicMissing(f"the topic {topic} does not exist", f"create it with: tidegate topics create {topic}")
    return _by_number(found.partitions)


def read_all_replicas(kafka: Kafka) -> dict[str, dict[int, Replicas]]:
    """Return where each partition of every topic lies, Kafka's own included."""
    with translated("looking for the leaders of all topics", kafka.bootstrap):
        found = AdminClient(kafka.client()).list_topics(timeout=_ANSWER_SECONDS).topics
    return {name: _by_number(one.partitions) for name, one in found.items()}


def _by_number(partitions: Mapping[int, PartitionMetadata]) -> dict[int, Replicas]:
    return {
        number: Replicas(tuple(one.replicas), tuple(one.isrs), one.leader if one.leader >= 0 else None)
        for number, one in partitions.items()
    }


def coordinating_partition(name: str, partitions: int) -> int:
    """Pure: return which partition of Kafka's own topic keeps this group, or the transactions of this name.

    Its leader is the coordinator. Kafka takes the hash that Java has for strings.
    """
    units = name.encode("utf-16-be")
    number = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        number = (31 * number + (high << 8 | low)) & 0xFFFF_FFFF
    signed = number - (1 << 32) if number >= 1 << 31 else number
    return 0 if signed == -(1 << 31) else abs(signed) % partitions
