"""Outputs to Kafka, at least once: each record is settled when all replicas have what its sinks made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tidegate.errors import BrokerUnreachable, Reject
from tidegate.kafka.connection import Kafka, translate
from tidegate.kafka.transactions import DELIVERY_SECONDS, MOST_BYTES, Noting, batch_size, produce, refusal_of, refused
from tidegate.records import Commit, Partition
from tidegate.store import Effect, Store


class Outputs(Store):
    """One idempotent producer of one Python worker."""

    keeps_progress = False
    takes_copies = False

    def __init__(self, kafka: Kafka, batch_bytes: int | None = None) -> None:
        self._batch_bytes = batch_bytes
        self._kafka = kafka
        self._producer: Producer | None = None

    def begin(self, partitions: Sequence[Partition], membership: bytes) -> Mapping[Partition, Commit]:  # noqa: ARG002  # it keeps no marks
        """Make the producer."""
        if self._producer is None:
            settings = self._kafka.client(
                enable_idempotence=True,
                acks="all",
                batch_size=batch_size(self._batch_bytes),
                # What `flush` does not miss and nobody reports was written; a report each would cost as much as that.
                delivery_report_only_error=True,
                delivery_timeout_ms=DELIVERY_SECONDS * 1000,
                message_max_bytes=MOST_BYTES,
            )
            try:
                self._producer = Producer(settings)
            except KafkaException as error:
                raise translate(error.args[0], "connecting", self._kafka.bootstrap) from None
        return {}

    def seal(self, effects: Sequence[Effect], commits: Mapping[Partition, Commit]) -> Mapping[int, BaseException]:  # noqa: ARG002  # as above
        """Write all outputs and wait for their acknowledgements."""
        if self._producer is None:
            self.begin((), b"")
        producer = self._producer
        if producer is None:
            raise BrokerUnreachable("no producer", "try again")
        failed = self._write(producer, dict(enumerate(effects)))
        for number, error in list(failed.items()):
            if isinstance(error, Reject):
                # The broker refuses all that was sent together, for one of them or for their sum.
                del failed[number]
                failed |= self._write(producer, {number: effects[number]})
        return failed

    def _write(self, producer: Producer, effects: Mapping[int, Effect]) -> dict[int, BaseException]:
        failed: dict[int, BaseException] = {}
        try:
            for number, effect in effects.items():
                noting = self._noting(number, failed)
                for output in effect.outputs:
                    try:
                        produce(producer, output, noting)
                    except KafkaException as error:
                        if error.args[0].fatal() or error.args[0].code() == KafkaError._FATAL:
                            raise
                        noting(error.args[0], None)  # refused before it was queued: too large, or no such partition
            unanswered = producer.flush(DELIVERY_SECONDS + 2)
        except (KafkaException, SystemError) as error:
            # The producer itself has ended; what was not acknowledged is written again by a new one.
            self.discard()
            problem = _ended_by(producer, error)
            if problem is not None and problem.code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                # So the broker answers who may write to no topic at all: as where the right to one topic is missing.
                no_right = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "your user may write to no topic")
                raise refusal_of(no_right) from error
            why = error if problem is None else problem.str()
            raise BrokerUnreachable(f"writing outputs was interrupted: {why}", "it is tried again") from error
        if unanswered:
            self.discard()
            raise BrokerUnreachable(f"{unanswered} outputs were not acknowledged", "they are written again")
        return failed

    def end(self) -> None:
        """There is nothing left to do."""

    def discard(self) -> None:
        """Make the producer anew."""
        self._producer = None

    def _noting(self, number: int, failed: dict[int, BaseException]) -> Noting:
        def delivered(error: KafkaError | None, _message: Message | None) -> None:
            if error is not None:
                failed[number] = refused(error, self._kafka.bootstrap)

        return delivered


def _ended_by(producer: Producer, error: BaseException) -> KafkaError | None:
    """Return what ended a producer: its own error, which may lie beneath what it was told with, or come only now.

    The client raises it from whichever call comes next; where our callback trips over it, that is a SystemError, and
    what is handed over after it is told only that there is an error.
    """
    step: BaseException | None = error
    while step is not None and not isinstance(step, KafkaException):
        step = step.__cause__ or step.__context__
    if step is None or step.args[0].code() != KafkaError._FATAL:
        return None if step is None else step.args[0]
    try:
        producer.poll(0)
    except KafkaException as told:
        step = told
    except SystemError as told:
        return _ended_by(producer, told)
    problem: KafkaError = step.args[0]
    return problem
