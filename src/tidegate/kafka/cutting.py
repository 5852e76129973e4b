"""Logs cut off at their old end, as retention does it."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import TopicPartition

from tidegate.kafka.admin import Admin
from tidegate.records import Partition


def delete_before(admin: Admin, offsets: Mapping[Partition, int]) -> None:
    """Delete the records before these offsets; the logs begin there."""
    places = [TopicPartition(place.topic, place.number, first) for place, first in offsets.items()]
    admin.ask(
        f"deleting records of topic {', '.join(sorted({place.topic for place in offsets}))}",
        lambda client, seconds: client.delete_records(places, request_timeout=seconds),
    )
