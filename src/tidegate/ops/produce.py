"""Putting records into a topic from Python, with a report of what was delivered where."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from tidegate.durations import seconds
from tidegate.errors import BrokerUnreachable, DeliveryFailed, SettingsError, TidegateError
from tidegate.kafka.writer import Ack, Writer
from tidegate.ops.cluster import chosen_cluster
from tidegate.records import Partition

if TYPE_CHECKING:
    from datetime import datetime

    from tidegate.kafka.admin import TopicInfo
    from tidegate.kafka.connection import Kafka

_LONGEST_NAP_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Message:
    """A record to produce, where a value alone does not say enough.

    Text is written as UTF-8, bytes as they are, None as a null; any other value as JSON.
    """

    value: object
    key: str | bytes | None = None
    headers: Mapping[str, str | bytes | None] = field(default_factory=dict)
    partition: int | None = None
    timestamp: datetime | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """What one partition took."""

    partition: Partition
    count: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """What was acknowledged, per partition, and why the rest was not."""

    topic: str
    count: int
    partitions: tuple[Delivered, ...]
    failures: tuple[str, ...] = ()


def produce(
    topic: str,
    records: Iterable[object],
    *,
    kafka: Kafka | None = None,
    every: str | float | None = None,
    timeout: str | float = 30.0,
    on_ack: Callable[[Ack], None] | None = None,
) -> Delivery:
    """Write records (values, or `Message`s) to a topic that exists, and wait until all are acknowledged.

    `every="2s"` writes one each two seconds. `timeout` bounds the wait for each record's acknowledgement.
    Nothing more is sent after the first failure; then `DeliveryFailed` carries the report. A record that
    failed because no answer came may have been written all the same.
    """
    pace = 0.0 if every is None else seconds(every)
    patience = seconds(timeout)
    cluster = chosen_cluster(kafka)
    found = cluster.admin.describe([topic])[topic]
    sending = _Sending(found, Writer(cluster.kafka, delivery_seconds=patience), on_ack)
    try:
        sending.send_all(records, pace)
    finally:
        sending.finish(patience)  # also when `records` itself raised: what was queued is on its way
    return sending.report()


class _Sending:
    """One call of `produce`: what was sent so far and what came back."""

    def __init__(self, topic: TopicInfo, writer: Writer, on_ack: Callable[[Ack], None] | None) -> None:
        self._topic = topic
        self._writer = writer
        self._on_ack = on_ack
        self._arrived: dict[Partition, Delivered] = {}
        self._failures: list[TidegateError] = []

    def send_all(self, records: Iterable[object], pace: float) -> None:
        due = time.monotonic()
        for record in records:
            while (wait := due - time.monotonic()) > 0:
                self._writer.poll(min(wait, _LONGEST_NAP_SECONDS))
            due = max(due + pace, time.monotonic())
            if self._failures:
                return
            try:
                self._send(record if isinstance(record, Message) else Message(record))
            except TidegateError as error:
                self._take(Ack(Partition(self._topic.name, -1), error=error))

    def _send(self, message: Message) -> None:
        if message.partition is not None:
            self._topic.partition(message.partition)
        self._writer.send(
            self._topic.name,
            _encoded(message.value),
            _bytes(message.key),
            [(name, _bytes(value)) for name, value in message.headers.items()],
            partition=message.partition,
            timestamp_ms=None if message.timestamp is None else _milliseconds(message.timestamp),
            on_ack=self._take,
        )

    def finish(self, patience: float) -> None:
        # The client reports a record as timed out within its own limit; the extra second lets that report come.
        unanswered = self._writer.flush(patience + 1.0)
        self._failures += [BrokerUnreachable("no answer came in time", "look whether the broker runs")] * unanswered

    def report(self) -> Delivery:
        arrived = tuple(self._arrived[at] for at in sorted(self._arrived))
        reasons = tuple(failure.happened for failure in self._failures)
        delivery = Delivery(self._topic.name, sum(each.count for each in arrived), arrived, reasons)
        if self._failures:
            sent = delivery.count + len(reasons)
            raise DeliveryFailed(
                f"{len(reasons)} of {sent} records were not delivered to {self._topic.name}: {reasons[0]}",
                self._failures[0].cure,
                delivery,
            )
        return delivery

    def _take(self, ack: Ack) -> None:
        if ack.error is not None:
            self._failures.append(ack.error)
        elif ack.record_offset is not None:
            before = self._arrived.get(ack.partition)
            self._arrived[ack.partition] = Delivered(
                ack.partition,
                1 if before is None else before.count + 1,
                ack.record_offset if before is None else min(before.first_offset, ack.record_offset),
                ack.record_offset if before is None else max(before.last_offset, ack.record_offset),
            )
        if self._on_ack is not None:
            self._on_ack(ack)


def _encoded(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise SettingsError(
            f"a value of type {type(value).__name__} cannot be written: {error}",
            "pass bytes, text, None or something that JSON can hold",
        ) from None


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _milliseconds(timestamp: datetime) -> int:
    if timestamp.tzinfo is None:
        raise SettingsError("the timestamp has no time zone", "pass an aware datetime, datetime.now(UTC) for example")
    return int(timestamp.timestamp() * 1000)
