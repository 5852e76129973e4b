"""Outputs, copies and marks in one transaction of Kafka.

A transaction is begun, filled and ended in one go, by one thread, so it is never open while a user's function
runs. Its name (`transactional.id`) is the lane's: whoever begins the lane's next round shuts the last one out, and
only then reads where the partitions stand.
"""

from __future__ import annotations

import contextlib
import pickle
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from tidegate.errors import BrokerUnreachable, Reject, TidegateError, Unavailable
from tidegate.kafka.committed import CommittedReader
from tidegate.kafka.connection import ClientLog, Kafka, translate
from tidegate.kafka.patience import NeverReturned, within
from tidegate.kafka.writer import PACKING
from tidegate.records import Commit, Partition
from tidegate.store import Effect, Outgoing, Overtaken, Poisoned, Store

TRANSACTION_SECONDS = 15
"""The broker ends a transaction by itself after this long."""
DELIVERY_SECONDS = 10
ANSWER_SECONDS = 10.0
LATEST_SECONDS = TRANSACTION_SECONDS + 5.0
"""Then the broker has ended the transaction, whatever the client is still waiting for."""
MOST_BYTES = 500_000_000
"""What a record may hold is the broker's to say."""
BATCH_BYTES = 1_000_000
_QUEUE_WAIT_SECONDS = 0.1
_ANY_PARTITION = -1
MOST_TRIES = 4
FLUSH_SECONDS = 0.1

Noting = Callable[[KafkaError | None, Message | None], None]
Undelivered = list[tuple[KafkaError, Outgoing]]


class Transactions(Store):
    """The transactions of one lane, in one Python worker."""

    keeps_progress = True
    takes_copies = True

    def __init__(
        self, kafka: Kafka, group: str, name: str, batch_bytes: int | None = None, *, is_packed: bool = False
    ) -> None:
        """`is_packed`: compress, since copies may fit only so, as their records did."""
        self._batch_bytes = batch_bytes
        self._is_packed = is_packed
        self._kafka = kafka
        self._group = group
        self._name = name
        self._producer: Producer | None = None
        self._round: int | None = None
        """In which it began last."""
        self._undelivered: Undelivered = []
        """The outputs of this transaction that were not written, and why: its own error does not say it."""
        self._marks: CommittedReader | None = None
        self._membership: object = None

    def follow(self, before: int | None, round_number: int) -> None:
        """Take the name anew where another worker, or the driver, has borne it since.

        Otherwise: two workers of Spark's take turns at a lane; each finds out only when it seals that the other has
        taken its name, all its round's work for nothing; and so on until the lane counts as stalled.
        """
        if self._round != before:
            self.discard()
        self._round = round_number

    def begin(self, partitions: Sequence[Partition], membership: bytes) -> Mapping[Partition, Commit]:
        """Shut out whoever bore this name before, then read the marks."""
        self._membership = pickle.loads(membership)  # noqa: S301  # made by our own driver, sent with this very task
        if self._producer is None:
            batch_bytes, is_packed = self._batch_bytes, self._is_packed
            self._producer = _open(self._kafka, self._name, self._undelivered, batch_bytes, is_packed=is_packed)
        if self._marks is None:
            self._marks = CommittedReader(self._kafka, self._group, ANSWER_SECONDS, require_stable=True)
        return self._marks.read(partitions)

    def seal(self, effects: Sequence[Effect], commits: Mapping[Partition, Commit]) -> Mapping[int, BaseException]:
        """Write effects and marks in one transaction."""
        for _ in range(MOST_TRIES):
            producer = self._producer
            if producer is None:
                break
            try:
                self._write(producer, effects, commits)
            except KafkaException as error:
                if self._may_try_again(producer, error.args[0]):
                    continue
                if isinstance(error, _MarksRefused) and not self._refusals():
                    raise self._end_of_marks(error.args[0]) from error
                return self._blame(error.args[0], effects)
            except NeverReturned as error:
                self.discard()
                self.is_stuck = True
                raise Overtaken(f"its transaction was given up: {error}") from error
            return {}
        raise Overtaken("the transactions of this lane have ended")

    def _write(self, producer: Producer, effects: Sequence[Effect], commits: Mapping[Partition, Commit]) -> None:
        self._undelivered.clear()
        producer.begin_transaction()
        for effect in effects:
            for output in outputs_of(effect):
                produce(producer, output)
        if commits:
            self._send_marks(producer, commits)
        # The commit itself would wait for what can no longer be delivered behind a record that was refused.
        while producer.flush(FLUSH_SECONDS):
            if refusals := self._refusals():
                raise KafkaException(refusals[0][0])
        self._commit(producer)

    def _send_marks(self, producer: Producer, commits: Mapping[Partition, Commit]) -> None:
        """Put the marks into the transaction.

        The client does not look at the time limit while it waits for the group's coordinator, and where that broker
        has left the cluster it waits for ever (librdkafka issues 5456 and 5511).
        """
        try:
            within(
                LATEST_SECONDS,
                "send_offsets_to_transaction",
                lambda: producer.send_offsets_to_transaction(_offsets(commits), self._membership, ANSWER_SECONDS),
            )
        except KafkaException as error:
            raise _MarksRefused(*error.args) from error

    def _end_of_marks(self, problem: KafkaError) -> Exception:
        """No output is to blame: a right is missing, marks are too large, the group moved on, or a topic is gone."""
        self.discard()
        if problem.code() in _FINAL | _NEVER_TAKEN:
            return translate(problem, f"the marks of group {self._group}", self._kafka.bootstrap)
        return Overtaken(f"its marks were not taken: {problem.str()}")

    def end(self) -> None:
        """There is nothing left to do."""

    def discard(self) -> None:
        """Bear the name no more: the next round makes its producer anew."""
        self._producer = None

    @staticmethod
    def _commit(producer: Producer) -> None:
        """Commit; a passing trouble is waited out: only the broker knows how it ended."""
        deadline = time.monotonic() + TRANSACTION_SECONDS
        while True:
            try:
                producer.commit_transaction(ANSWER_SECONDS)
            except KafkaException as error:
                problem: KafkaError = error.args[0]
                if not problem.retriable() or problem.txn_requires_abort() or time.monotonic() > deadline:
                    raise
            else:
                return

    def _may_try_again(self, producer: Producer, problem: KafkaError) -> bool:
        """Abort; True if that put everything right.

        The client goes wrong once after a transaction in which the broker refused a record: it has counted that
        record. The abort makes it ask for a new epoch of its own, which it gets only if nobody has its name by now.
        Where all outputs were delivered its commit may have been asked for, and done: done again, they are there twice.
        """
        is_aborted = _abort(producer)
        with contextlib.suppress(KafkaException):  # a fenced producer says so here once more
            producer.poll(0)  # what was not delivered, and why
        if not is_aborted:
            self.discard()
        was_cut_short = bool(self._undelivered) and not self._refusals()
        return is_aborted and was_cut_short and problem.code() in _LOST_COUNT

    def _refusals(self) -> list[tuple[KafkaError, Outgoing]]:
        return [one for one in self._undelivered if one[0].code() in _REFUSED | _MAY_PASS]

    def _blame(self, problem: KafkaError, effects: Sequence[Effect]) -> Mapping[int, BaseException]:
        """Tell whose fault it was that a transaction was aborted."""
        refusals = self._refusals()
        error = refusals[0][0] if refusals else problem
        if self._producer is None or error.code() not in _REFUSED | _MAY_PASS:
            # Whatever it was: with a new producer, and the marks read anew, nothing can be wrong.
            self.discard()
            if problem.code() in _FINAL:
                raise translate(problem, f"the transactions of group {self._group}", self._kafka.bootstrap)
            raise Overtaken(f"its transaction was ended: {problem.str()}")
        refusal = refusal_of(error)
        if len(effects) != 1:
            raise Poisoned(str(refusal), _suspect(effects, [one[:3] for _, one in refusals])) from refusal
        return {0: refusal}


class _MarksRefused(KafkaException):
    """What the broker said of the marks, not of the outputs."""


def fence(kafka: Kafka, name: str) -> None:
    """Shut out whoever bears this name: a transaction it has open is aborted, and it can begin no other."""
    _open(kafka, name, [])


def membership_of(metadata: object) -> bytes:
    """Return the member's group metadata as bytes, for a round."""
    return pickle.dumps(metadata)


def _open(
    kafka: Kafka, name: str, undelivered: Undelivered, batch_bytes: int | None = None, *, is_packed: bool = False
) -> Producer:
    settings = kafka.client(
        **({"compression_type": PACKING} if is_packed and not kafka.has_compression else {}),
        batch_size=batch_size(batch_bytes),
        # A report for each record that was written would cost as much as writing it.
        delivery_report_only_error=True,
        # Sooner than the delivery: a topic that is missing must not look like a broker that does not answer.
        topic_metadata_propagation_max_ms=DELIVERY_SECONDS * 500,
        transactional_id=name,
        transaction_timeout_ms=TRANSACTION_SECONDS * 1000,
        delivery_timeout_ms=DELIVERY_SECONDS * 1000,
        message_max_bytes=MOST_BYTES,
    )
    # When no broker is connected, the client would begin anew with the bootstrap servers and throw away the brokers
    # that it knew. A transaction waits for one of these: it hung after every cut (librdkafka issue 5511). All other
    # clients must begin anew: else a consumer that is told once that no broker is there never reads again.
    settings.setdefault("metadata.recovery.strategy", "none")
    log: ClientLog = settings["logger"]

    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            undelivered.append((error, Outgoing(message.topic() or "", message.value(), message.key())))

    settings["on_delivery"] = note
    try:
        producer = Producer(settings)
        producer.init_transactions(ANSWER_SECONDS)
    except KafkaException as error:
        blamed = log.blame(error.args[0])
        if blamed.code() in _TAKEN:
            raise BrokerUnreachable(f"the transactions {name} are being taken over", "it is tried again") from None
        raise translate(
            blamed, f"beginning the transactions {name}", kafka.bootstrap, reason=log.last_failure
        ) from None
    return producer


def produce(producer: Producer, output: Outgoing, delivered: Noting | None = None) -> None:
    """Hand one output to the client, waiting for room; `delivered` hears what became of it, else the producer's own."""
    topic, value, key, headers, partition = output
    number = _ANY_PARTITION if partition is None else partition
    while True:
        try:
            if headers:
                producer.produce(topic, value, key, number, delivered, headers=list(headers))
            else:  # to hand over an empty list takes as long as all the rest
                producer.produce(topic, value, key, number, delivered)
        except BufferError:
            producer.poll(_QUEUE_WAIT_SECONDS)
        else:
            return


def _abort(producer: Producer) -> bool:
    """Abort the transaction; False if that is not certain."""
    try:
        producer.abort_transaction(ANSWER_SECONDS)
    except KafkaException:
        return False
    return True


def _offsets(commits: Mapping[Partition, Commit]) -> list[TopicPartition]:
    return [TopicPartition(tp.topic, tp.number, one.mark, one.metadata) for tp, one in commits.items()]


def batch_size(most_bytes: int | None) -> int:
    """Return how much the client may send together, so that a topic that takes so much takes it."""
    return max(1, min(BATCH_BYTES, (most_bytes or BATCH_BYTES) * 9 // 10))


def outputs_of(effect: Effect) -> Sequence[Outgoing]:
    """Return what is to be written for a record."""
    return effect.outputs if effect.copy is None else (effect.copy,)


def _suspect(effects: Sequence[Effect], refused: Collection[tuple[object, ...]]) -> int | None:
    """Return the first effect that looks like something that was refused."""
    places = (at for at, effect in enumerate(effects) if any(one[:3] in refused for one in outputs_of(effect)))
    return next(places, None)


def refusal_of(problem: KafkaError) -> Exception:
    """Return why a record's outputs were not taken: for good, or because something is missing that may come."""
    what = f"the broker does not take what it writes: {problem.str()}"
    return Unavailable(what) if problem.code() in _MAY_PASS else Reject(what)


def refused(problem: KafkaError, bootstrap: str) -> Exception:
    """Return why one output was not taken, where the broker told which."""
    if problem.code() in _REFUSED | _MAY_PASS:
        return refusal_of(problem)
    translated: TidegateError = translate(problem, "writing outputs", bootstrap)
    return (
        translated
        if isinstance(translated, BrokerUnreachable)
        else BrokerUnreachable(translated.happened, translated.cure)
    )


_REFUSED = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.POLICY_VIOLATION,
    KafkaError._INVALID_ARG,
    KafkaError._UNKNOWN_PARTITION,
}
"""The same record would be refused again."""
_MAY_PASS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
}
"""Its topic is missing, or a right: both may come."""
_TAKEN = {
    KafkaError._FENCED,
    KafkaError._STATE,
    KafkaError._IN_PROGRESS,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.CONCURRENT_TRANSACTIONS,
}
"""Somebody of the same name began at the same moment: who asks last has it."""
_LOST_COUNT = {KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.UNKNOWN_PRODUCER_ID, KafkaError._STATE}
"""The client's count of what it sent is not the broker's."""
_NEVER_TAKEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.OFFSET_METADATA_TOO_LARGE,
    KafkaError.INVALID_COMMIT_OFFSET_SIZE,
}
"""The next round's marks would be refused like these."""
_FINAL = {
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
