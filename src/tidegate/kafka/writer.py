"""Writing records so that each is acknowledged by all in-sync replicas, once and in order, or reported."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer

from tidegate.errors import BrokerUnreachable
from tidegate.kafka.connection import ClientLog, Kafka, translate, translated
from tidegate.records import Partition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.errors import TidegateError
    from tidegate.store import Outgoing

PACKING = "zstd"
"""How copies are compressed, whatever the client's settings say: a copy may fit only so."""
_ANY_PARTITION = -1
_NO_TIMESTAMP = 0
_QUEUE_WAIT_SECONDS = 0.1
_THROWN_AWAY = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL}


@dataclass(frozen=True, slots=True)
class Ack:
    """What became of one record: its offset, or why it was not written."""

    partition: Partition
    record_offset: int | None = None
    appended_at_ms: int | None = None
    """The broker's clock, where the topic keeps the time at which it was written."""
    error: TidegateError | None = None


class Writer:
    """An idempotent producer. Every record gets exactly one `Ack`, from inside `send`, `poll` or `flush`.

    An `Ack` with an error means: not known to be written. A record whose answer was lost may still be there.
    """

    def __init__(
        self,
        kafka: Kafka,
        *,
        delivery_seconds: float = 30.0,
        most_bytes: int | None = None,
        is_packed: bool = False,
    ) -> None:
        """`is_packed`: compress, since a topic's limit is for compressed bytes, and a record may fit only so."""
        self._bootstrap = kafka.bootstrap
        settings = kafka.client(
            enable_idempotence=True,
            acks="all",
            delivery_timeout_ms=max(1, int(delivery_seconds * 1000)),
            **({} if most_bytes is None else {"message_max_bytes": most_bytes}),
            **({"compression_type": PACKING} if is_packed else {}),
        )
        self._log: ClientLog = settings["logger"]
        self._fatal: KafkaError | None = None
        with translated("connecting", self._bootstrap):
            self._producer = Producer(settings)

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_ack: Callable[[Ack], None],
    ) -> None:
        """Queue one record. A full queue is waited for: this is what holds a fast caller back."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            try:
                ack = self._ack(topic, error, message)
            except SystemError as disturbed:
                # The client calls this with its own fatal error still raised: the first call in here trips over it.
                self._note_fatal(disturbed.__cause__)
                ack = self._ack(topic, error, message)
            on_ack(ack)

        chosen = _ANY_PARTITION if partition is None else partition
        while True:
            try:
                self._producer.produce(
                    topic,
                    value=value,
                    key=key,
                    partition=chosen,
                    headers=list(headers),
                    timestamp=_NO_TIMESTAMP if timestamp_ms is None else timestamp_ms,
                    on_delivery=delivered,
                )
            except BufferError:
                self.poll(_QUEUE_WAIT_SECONDS)
            except KafkaException as error:  # refused before it was queued: too large, or no such partition
                on_ack(Ack(Partition(topic, chosen), error=self._ours(error.args[0], topic)))
                return
            else:
                self.poll()
                return

    @property
    def is_broken(self) -> bool:
        """Whether it will write nothing more: a new one is needed."""
        return self._fatal is not None

    def poll(self, wait_seconds: float = 0.0) -> None:
        """Hand out the acks that have come, waiting for the first if none has."""
        try:
            self._producer.poll(wait_seconds)
        except (KafkaException, SystemError) as error:
            self._note_fatal(error)

    def flush(self, timeout_seconds: float) -> int:
        """Wait until every record has its ack; return how many still have none."""
        try:
            return self._producer.flush(timeout_seconds)
        except (KafkaException, SystemError) as error:
            self._note_fatal(error)
            return self._producer.flush(timeout_seconds)

    def _ack(self, topic: str, error: KafkaError | None, message: Message) -> Ack:
        number = message.partition()
        at = Partition(topic, _ANY_PARTITION if number is None else number)
        if error is not None:
            return Ack(at, error=self._ours(error, topic))
        kind, milliseconds = message.timestamp()
        return Ack(at, message.offset(), milliseconds if kind == TIMESTAMP_LOG_APPEND_TIME else None)

    def _note_fatal(self, error: BaseException | None) -> None:
        """Keep what ended this producer: its records come back as thrown away, which says nothing.

        The client raises it from whichever call comes next, and where our callback took it already, a SystemError.
        """
        found = error.args[0] if isinstance(error, KafkaException) else KafkaError(KafkaError._FATAL)
        if found.code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            found = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "your user may write to no topic")
        self._fatal = self._fatal or found

    def _ours(self, error: KafkaError, topic: str) -> TidegateError:
        blamed = (self._fatal if error.code() in _THROWN_AWAY else None) or self._log.blame(error)
        return translate(blamed, f"writing to {topic}", self._bootstrap, reason=self._log.last_failure)


MOST_COPY_BYTES = 500_000_000
"""What a copy may hold is the broker's to say: it takes what the origin's topic took, and a little more."""
COPY_SECONDS = 10.0

_writers: dict[bytes, Writer] = {}


def copy_writer(kafka: Kafka) -> Writer:
    """Return a new writer for copies."""
    return Writer(kafka, delivery_seconds=COPY_SECONDS, most_bytes=MOST_COPY_BYTES, is_packed=True)


def worker_writer(kafka: Kafka, key: bytes) -> Writer:
    """Return this worker's writer for copies, made after the fork and kept between rounds for all that have its key."""
    if key in _writers and _writers[key].is_broken:
        del _writers[key]
    if key not in _writers:
        _writers.clear()
        _writers[key] = copy_writer(kafka)
    return _writers[key]


def write_all(writer: Writer, records: Sequence[Outgoing]) -> dict[int, BaseException]:
    """Write records and wait for their acknowledgements; return which failed, by place."""
    failed: dict[int, BaseException] = {}
    unanswered = set(range(len(records)))

    def note(number: int, ack: Ack) -> None:
        unanswered.discard(number)
        if ack.error is not None:
            failed[number] = ack.error

    for number, one in enumerate(records):
        answer = functools.partial(note, number)
        writer.send(one.topic, one.value, one.key, one.headers, partition=one.partition, on_ack=answer)
    writer.flush(COPY_SECONDS + 2)
    late = BrokerUnreachable("no acknowledgement came", "it is tried again")
    return {**failed, **dict.fromkeys(unanswered, late)}
