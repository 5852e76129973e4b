"""The copies that a group wrote of records that failed, as they lie in its own topics."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.copies import Copy, read_headers
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.names import dead_topic, delay_of
from tidegate.ops.tail import tail
from tidegate.records import Partition


@dataclass(frozen=True, slots=True)
class CopySeen:
    """One copy: of which record, in which topic, written when."""

    partition: Partition
    """Where its record lay first."""
    record_offset: int
    topic: str
    at_ms: int
    """The broker's time."""
    is_dead: bool
    said: Copy
    """All that its headers say."""
    lies_at: tuple[int, int] | None = None
    """Partition and offset of the copy itself; None: not known."""


def read_copies(kafka: Kafka, group: str) -> list[CopySeen]:
    """Return every copy in the group's retry, redrive and dead-letter topics, in the order of each partition."""
    dead = dead_topic(group)
    names = [info.name for info in Admin(kafka).topics() if info.name == dead or delay_of(info.name, group) is not None]
    found = []
    for name in names:
        for record in tail(name, kafka=kafka):
            copy = read_headers(record.headers)
            if copy is None or record.timestamp is None:
                continue
            origin = copy.origin
            at_ms = round(record.timestamp.timestamp() * 1000)
            place = Partition(origin.topic, origin.partition)
            lies_at = (record.partition, record.offset)
            found.append(CopySeen(place, origin.offset, name, at_ms, name == dead, copy, lies_at))
    return found
