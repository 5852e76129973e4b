"""Single records of many partitions, looked at by one consumer that joins no group and commits nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message, TopicPartition

from tidegate.kafka.connection import Kafka, translated
from tidegate.kafka.scan import looking
from tidegate.records import Partition

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAP_SECONDS = 0.02
_BATCH = 1000
_FETCH_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Peeked:
    """A record that can be read; `record_offset` None: there is none before `reached`."""

    record_offset: int | None
    timestamp_ms: int | None
    """None where the record has none."""
    reached: int


class Peeker:
    """Looks for the first or the last record between two offsets. Committed records only."""

    def __init__(self, kafka: Kafka) -> None:
        # Little is fetched: one record of each partition is wanted, and its batch comes whole in any case.
        settings = looking(kafka, fetch_wait_max_ms=10, fetch_message_max_bytes=_FETCH_BYTES, queued_min_messages=1)
        self._bootstrap = kafka.bootstrap
        with translated("connecting", self._bootstrap):
            self._consumer = Consumer(settings)

    def first(self, spans: Mapping[Partition, tuple[int, int]], deadline: float) -> dict[Partition, Peeked]:
        """Return the first record of each span [from, to); those that could not be read in time are left out."""
        return self._look(spans, deadline, is_first_enough=True)

    def last(self, spans: Mapping[Partition, tuple[int, int]], deadline: float) -> dict[Partition, Peeked]:
        """Return the last record of each span [from, to), by reading all of it."""
        return self._look(spans, deadline, is_first_enough=False)

    def close(self) -> None:
        """End the connection."""
        self._consumer.close()

    def _look(
        self, spans: Mapping[Partition, tuple[int, int]], deadline: float, *, is_first_enough: bool
    ) -> dict[Partition, Peeked]:
        if not spans:
            return {}
        done: dict[Partition, Peeked] = {}
        latest: dict[Partition, Peeked] = {}
        refused: set[Partition] = set()
        with translated("reading records", self._bootstrap):
            self._consumer.assign([TopicPartition(at.topic, at.number, start) for at, (start, _) in spans.items()])
            try:
                while len(done) + len(refused) < len(spans) and time.monotonic() < deadline:
                    for message in self._messages():
                        at = Partition(message.topic() or "", message.partition() or 0)
                        if at not in spans or at in done:
                            continue
                        if not _is_answer(message):
                            refused.add(at)
                            continue
                        seen = _taken(message, spans[at][1], latest.get(at))
                        latest[at] = seen
                        if seen.reached >= spans[at][1] or (is_first_enough and seen.record_offset is not None):
                            done[at] = seen
                            refused.discard(at)
            finally:
                self._consumer.unassign()
        return done

    def _messages(self) -> list[Message]:
        first = self._consumer.poll(_NAP_SECONDS)
        return [] if first is None else [first, *self._consumer.consume(_BATCH, 0)]


def _is_answer(message: Message) -> bool:
    error = message.error()
    return error is None or error.code() == KafkaError._PARTITION_EOF


def _taken(message: Message, end_offset: int, earlier: Peeked | None) -> Peeked:
    """Go on with one more message; what lies at the end or beyond only says how far it was read."""
    record_offset = message.offset() or 0
    before = Peeked(None, None, 0) if earlier is None else earlier
    if message.error() is not None or record_offset >= end_offset:
        return Peeked(before.record_offset, before.timestamp_ms, max(record_offset, before.reached))
    kind, milliseconds = message.timestamp()
    # Kafka stores -1 where a producer gave no time, and calls it one.
    is_known = kind != TIMESTAMP_NOT_AVAILABLE and milliseconds >= 0
    return Peeked(record_offset, milliseconds if is_known else None, record_offset + 1)
