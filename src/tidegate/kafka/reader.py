"""Reads assigned partitions inside a Python worker. Never joins a group, never commits."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tidegate.context import Message
from tidegate.kafka.connection import NO_LINE, ClientLog, Kafka
from tidegate.records import Partition

logger = logging.getLogger("tidegate.reader")

MOST_AT_ONCE = 2000
"""Records taken from the client in one call: enough to make the call cheap, few enough to hold."""


MOST_READERS = 2
"""Readers that one worker keeps: more than one only where several pipelines share a Spark session."""


HEARD_SECONDS = 30.0
"""A reader that heard nothing for longer is given its partitions anew: it hears of each, or is found to be deaf."""
DEAF_SECONDS = 15.0
"""A reader that was given partitions hears a record or an end of each at once. One that hears nothing is replaced."""


class ReadFailed(Exception):
    """Kafka will not give these records: the topic is gone, the rights are missing."""


def worker_settings(kafka: Kafka, group: str) -> dict[str, Any]:
    """Return the settings of a consumer that reads assigned partitions in a Python worker."""
    return kafka.client(
        group_id=group,
        enable_auto_commit=False,
        enable_auto_offset_store=False,
        isolation_level="read_committed",
        enable_partition_eof=True,
        # The default would jump to the end in silence where the offset is out of range.
        auto_offset_reset="error",
        # The default of 1,000 ms starves the application: half the throughput.
        fetch_queue_backoff_ms=10,
        fetch_wait_max_ms=100,
        # The default of five minutes is how long a topic that returned would stay unknown.
        topic_metadata_refresh_interval_ms=5_000,
        # A reader is polled only during rounds; it is no member, so nobody waits for it.
        max_poll_interval_ms=86_400_000,
    )


class Reader:
    """One assigned consumer of one Python worker, kept between rounds with what it has prefetched."""

    def __init__(self, kafka: Kafka, group: str) -> None:
        settings = worker_settings(kafka, group)
        self._log: ClientLog = settings["logger"]
        self._consumer = Consumer(settings)
        self._era = ""
        self._positions: dict[Partition, int] = {}
        self._leftover: list[Message] = []
        self._ends: dict[Partition, int] = {}
        self._stopped: set[Partition] = set()
        self._held: set[Partition] = set()
        self.lost: dict[Partition, int] = {}
        """Partitions whose records at the asked offset are gone, with the log's start."""
        self._heard_at = 0.0
        self._deaf_seconds: float | None = None
        """For how long it has waited since it was given partitions, and heard nothing of any."""
        self.has_failed = False
        """What it believes of its topics may stay wrong for long: it is replaced before the next round."""

    def begin(self, marks: Mapping[Partition, int], era: str) -> None:
        """Stand at these marks. Where the last round of the same era ended there, what was prefetched is used.

        In another era (a new run, a partition that went and came back) what lies in memory may no
        longer be what lies in the log.
        """
        self.lost = {}
        stood, self._positions = self._positions, {}
        was_heard = time.monotonic() - self._heard_at < HEARD_SECONDS
        if era == self._era and stood == dict(marks) and not self._stopped & set(marks) and was_heard:
            return
        self._era = era
        self._leftover = []
        self._ends = {}
        self._deaf_seconds = self._deaf_seconds or 0.0
        self._consumer.assign([TopicPartition(tp.topic, tp.number, mark) for tp, mark in marks.items()])
        # A pause outlives its assignment: without this the partition would never be read again.
        self._consumer.resume([TopicPartition(*tp) for tp in self._stopped | self._held if tp in marks])
        self._held = set()
        self._stopped = {tp for tp in self._stopped if tp not in marks}

    def read(self, most: int, wait_seconds: float) -> list[Message]:
        """Return what is there, at most `most`; wait for the first record only."""
        if self._leftover:
            taken, self._leftover = self._leftover[:most], self._leftover[most:]
            return taken
        first = self._consumer.poll(wait_seconds)
        if first is None:
            self._check_let_in()
            self._note_silence(wait_seconds)
            return []
        self._deaf_seconds, self._heard_at = None, time.monotonic()
        self._log.heard()
        more = min(most, MOST_AT_ONCE) - 1
        batch: list[Any] = [first, *self._consumer.consume(more, 0)] if more else [first]
        return [message for message in batch if message.error() is None or self._note(message)]

    def put_back(self, messages: list[Message]) -> None:
        """Keep records that were read but not begun for the next round."""
        self._leftover = messages + self._leftover

    def stand_at(self, partition: Partition, position: int) -> None:
        """Note, at the end of a round, how far the work on a partition has come: what follows lies in memory."""
        self._positions[partition] = position

    def take_ends(self, unfinished: Callable[[], Collection[Partition]]) -> dict[Partition, int]:
        """Return the log ends that were reached, markers and gaps included; each is given once.

        An end is held back while records of its partition wait in memory, here or with the caller: the mark
        would jump over them.
        """
        if not self._ends:
            return {}
        waiting = {(message.topic(), message.partition()) for message in self._leftover} | set(unfinished())
        ready = {partition: end for partition, end in self._ends.items() if partition not in waiting}
        for partition in ready:
            del self._ends[partition]
        return ready

    def stop(self, partition: Partition) -> None:
        """Read no more of this partition in this round; the next round begins anew at its mark."""
        self._stopped.add(partition)
        self._leftover = [m for m in self._leftover if (m.topic(), m.partition()) != partition]
        self._consumer.pause([TopicPartition(*partition)])

    def hold(self, partition: Partition) -> None:
        """Read no more of this partition for now: enough of it waits in memory."""
        self._held.add(partition)
        self._consumer.pause([TopicPartition(*partition)])

    def release(self, partition: Partition) -> None:
        """Read on in a partition that was held."""
        if partition in self._held:
            self._held.discard(partition)
            self._consumer.resume([TopicPartition(*partition)])

    def close(self) -> None:
        """Close the consumer."""
        # Beside the work: a client whose broker is gone may wait for it.
        threading.Thread(target=self._consumer.close, name="tidegate-reader-end", daemon=True).start()

    def _check_let_in(self) -> None:
        """Raise if no broker takes this client: it would try on and on."""
        if (refusal := self._log.refusal) is not None:
            self._log.forget_refusal()
            raise ReadFailed(refusal.str())

    def _note_silence(self, seconds: float) -> None:
        """Doubt a client that hears nothing. One that was told that there is no broker was seen to ask nobody again.

        Where Kafka itself is away, another client hears nothing either, and costs nothing but itself.
        """
        if self._deaf_seconds is not None:
            self._deaf_seconds += seconds
            self.has_failed |= self._deaf_seconds > DEAF_SECONDS

    def _note(self, message: Any) -> bool:  # the client's class is not exported as a type
        """Take note of an event that is no record; always False."""
        error = message.error()
        partition = Partition(message.topic() or "", message.partition() if message.partition() is not None else -1)
        if error.code() == KafkaError._PARTITION_EOF:
            self._ends[partition] = message.offset()
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self.lost[partition] = self._beginning(partition)
        elif error.retriable() or error.code() in PASSING:
            logger.debug("reading goes on", extra={"action": "read_disturbed", "error": error.str()})
        else:
            self.has_failed = True
            raise ReadFailed(f"{partition}: {error.str()}")
        return False

    def _beginning(self, partition: Partition) -> int:
        """Return where a log begins; -1 where nobody says so in time. That a mark is not in it is known without."""
        try:
            bounds: tuple[int, int] | None = self._consumer.get_watermark_offsets(
                TopicPartition(*partition), timeout=10
            )
        except KafkaException:
            return -1
        return -1 if bounds is None else bounds[0]


PASSING = NO_LINE | {KafkaError._RESOLVE, KafkaError._MAX_POLL_EXCEEDED}
"""What a reader waits out."""

_readers: dict[bytes, Reader] = {}


def worker_reader(kafka: Kafka, group: str, key: bytes) -> Reader:
    """Return this worker's reader, made after the fork and kept between rounds for all that have its key."""
    if key in _readers and _readers[key].has_failed:
        _readers.pop(key).close()
    if key not in _readers:
        while len(_readers) >= MOST_READERS:
            _readers.pop(next(iter(_readers))).close()
        try:
            _readers[key] = Reader(kafka, group)
        except KafkaException as error:
            raise ReadFailed(str(error.args[0])) from error
    return _readers[key]
