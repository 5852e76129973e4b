"""Reading partitions from given offsets on, without a group: for looking, never for work."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message, TopicPartition

from tidegate.errors import BrokerUnreachable
from tidegate.headers import readable_headers
from tidegate.kafka.connection import ClientLog, Kafka, translate, translated
from tidegate.records import Partition, moment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

_NAP_SECONDS = 0.2  # how often a silent scan looks whether its patience has ended


@dataclass(frozen=True, slots=True)
class SeenRecord:
    """One record as it lies in its topic; the field names are those of `Record`."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: datetime | None


def looking(kafka: Kafka, **more: str | int) -> dict[str, Any]:
    """Return the settings of a consumer that reads committed records, joins no group and commits nothing."""
    ours: dict[str, str | int] = {
        "group_id": "tidegate-scan",  # the client insists on a name; nothing is ever asked of this group
        "enable_auto_commit": False,
        "enable_auto_offset_store": False,
        "auto_offset_reset": "error",
        "max_poll_interval_ms": 86_400_000,  # it is no member, so nobody waits for it
        "isolation_level": "read_committed",
        "enable_partition_eof": True,
        "fetch_queue_backoff_ms": 10,
    }
    return kafka.client(**{**ours, **more})


class Scan:
    """Some partitions, read from `starts` on; committed records only. Joins no group and commits nothing.

    With `until`, it is done when every partition has reached its end offset. Transaction markers and
    compaction leave gaps there, so the end is known by position and not by the last record.
    """

    def __init__(
        self,
        kafka: Kafka,
        starts: Mapping[Partition, int],
        *,
        until: Mapping[Partition, int] | None = None,
        timeout_seconds: float = 10.0,
    ) -> None:
        self._bootstrap = kafka.bootstrap
        self._timeout = timeout_seconds
        self._until = until
        self._unfinished = {at for at, start in starts.items() if until is None or start < until[at]}
        settings = looking(kafka)
        self._log: ClientLog = settings["logger"]
        with translated("connecting", self._bootstrap):
            self._consumer = Consumer(settings)
            self._consumer.assign([TopicPartition(at.topic, at.number, starts[at]) for at in self._unfinished])
        self._last_answer = self._last_asked = time.monotonic()

    @property
    def is_done(self) -> bool:
        """Whether every partition has been read up to its end offset."""
        return not self._unfinished

    def read(self, wait_seconds: float) -> SeenRecord | None:
        """Return the next record, or None if none came in time or the scan is done."""
        now = time.monotonic()
        deadline = now + wait_seconds
        # While the caller was busy elsewhere nobody asked, so this time counts as no silence.
        self._last_answer += now - self._last_asked
        try:
            return self._read_until(deadline)
        finally:
            self._last_asked = time.monotonic()

    def _read_until(self, deadline: float) -> SeenRecord | None:
        while not self.is_done:
            message = self._consumer.poll(min(_NAP_SECONDS, max(0.0, deadline - time.monotonic())))
            if message is not None:
                record = self._take(message)
                if record is not None:
                    return record
            self._check_alive()
            if time.monotonic() >= deadline:
                return None
        return None

    def close(self) -> None:
        """End the connection."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, message: Message) -> SeenRecord | None:
        at = Partition(message.topic() or "", message.partition() or 0)
        if (error := message.error()) is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._reached(at, message.offset() or 0)
                return None
            problem = translate(self._log.blame(error), f"reading {at}", self._bootstrap)
            if not isinstance(problem, BrokerUnreachable):
                raise problem
            return None  # the client connects again by itself; _check_alive ends the patience
        record_offset = message.offset() or 0
        if self._until is not None and record_offset >= self._until[at]:
            self._reached(at, record_offset)
            return None
        self._reached(at, record_offset + 1)
        return _seen(message)

    def _reached(self, at: Partition, position: int) -> None:
        self._last_answer = time.monotonic()
        if self._until is not None and position >= self._until[at]:
            self._unfinished.discard(at)

    def _check_alive(self) -> None:
        """While an end is still to be reached, silence means that the broker is gone: EOF would have come."""
        if self._until is None or self.is_done:
            return
        if time.monotonic() - self._last_answer > self._timeout:
            gone = self._log.blame(KafkaError(KafkaError._TIMED_OUT))
            raise translate(gone, "reading", self._bootstrap, reason=self._log.last_failure)


def _seen(message: Message) -> SeenRecord:
    kind, milliseconds = message.timestamp()
    return SeenRecord(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=message.key(),
        value=message.value(),
        headers=tuple((name, value.encode() if isinstance(value, str) else value) for name, value in _headers(message)),
        timestamp=None if kind == TIMESTAMP_NOT_AVAILABLE else moment(milliseconds),
    )


def _headers(message: Message) -> list[tuple[str, str | bytes | None]]:
    return list(readable_headers(message))
