"""Reads a planned stretch of one partition inside a Python worker, exactly to its end. Never joins, never commits.

The same stretch read twice gives the same records: this is what lets Spark run a reading task again. What cannot be
read to the end is an error, never a shorter answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tidegate.context import Message
from tidegate.kafka.connection import ClientLog, Kafka
from tidegate.kafka.reader import PASSING, worker_settings
from tidegate.records import Partition

MOST_AT_ONCE = 2_000
POLL_SECONDS = 1.0
SILENCE_SECONDS = 30.0
"""For so long Kafka may give nothing of records that are known to be there."""
MOST_READERS = 2


class RecordsGone(Exception):
    """Records of the stretch are no longer in the log."""

    def __init__(self, partition: Partition, log_start: int) -> None:
        super().__init__(f"{partition.topic} {partition.number} {log_start}")


class Unread(Exception):
    """Kafka does not give the records now: it is away, slow, or does not let us in."""


class RangeReader:
    """One assigned consumer of one Python worker, for one stretch after the other."""

    def __init__(self, kafka: Kafka, group: str) -> None:
        settings = worker_settings(kafka, group)
        self._log: ClientLog = settings["logger"]
        self._consumer = Consumer(settings)

    def read(self, partition: Partition, start: int, end: int) -> Iterator[list[Message]]:
        """Give the records from `start` up to `end`, in lists; return only when the end is reached."""
        self._consumer.assign([TopicPartition(partition.topic, partition.number, start)])
        try:
            position, heard_at = start, time.monotonic()
            while position < end:
                found, reached = self._next(partition, end)
                if reached > position:
                    position, heard_at = reached, time.monotonic()
                elif time.monotonic() - heard_at > SILENCE_SECONDS:
                    raise Unread(f"{partition}: nothing came behind offset {position}, {end - position} before the end")
                if found:
                    yield found
        finally:
            self._consumer.unassign()

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _next(self, partition: Partition, end: int) -> tuple[list[Message], int]:
        """Return what came of the stretch, and up to where it is read for certain (-1: nothing is known)."""
        first = self._consumer.poll(POLL_SECONDS)
        if first is None:
            if (refusal := self._log.refusal) is not None:
                self._log.forget_refusal()
                raise Unread(refusal.str())
            return [], -1
        batch: list[Any] = [first, *self._consumer.consume(MOST_AT_ONCE - 1, 0)]
        found: list[Message] = []
        reached = -1
        for message in batch:
            if Partition(message.topic(), message.partition()) != partition:
                continue  # left over from the stretch before
            if message.error() is not None:
                reached = max(reached, self._heed(message, partition))
            elif message.offset() >= end:
                return found, end  # what lies between the last record and this one is a gap
            else:
                found.append(message)
                reached = message.offset() + 1
        return found, reached

    def _heed(self, message: Any, partition: Partition) -> int:  # the client's class is not exported as a type
        """Take note of an event that is no record; return up to where the log is read for certain."""
        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            # Markers and aborted records before it were passed by the client.
            return int(message.offset())
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            low, _ = self._consumer.get_watermark_offsets(TopicPartition(*partition), timeout=10)
            raise RecordsGone(partition, low)
        if error.retriable() or error.code() in PASSING:
            return -1
        raise Unread(f"{partition}: {error.str()}")


_readers: dict[bytes, RangeReader] = {}


def range_reader(kafka: Kafka, group: str, key: bytes) -> RangeReader:
    """Return this worker's reader, made after the fork and kept for all stretches that have its key."""
    if key not in _readers:
        while len(_readers) >= MOST_READERS:
            _readers.pop(next(iter(_readers))).close()
        try:
            _readers[key] = RangeReader(kafka, group)
        except KafkaException as error:
            raise Unread(str(error.args[0])) from error
    return _readers[key]


def forget_reader(key: bytes) -> None:
    """Make a new reader next time: what this one believes of its topics may be wrong for long."""
    if key in _readers:
        _readers.pop(key).close()
