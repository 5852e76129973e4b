"""What a group has committed, asked by a consumer that never joins.

Not by the admin client: its own call for this ends the whole process with a segmentation fault when the
coordinator moves or is just being made (librdkafka issue 5040): on a new cluster, or while a broker restarts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tidegate.errors import BrokerUnreachable, TidegateError
from tidegate.kafka.connection import NO_LINE, ClientLog, Kafka, translate
from tidegate.records import Commit, Partition

_SLICE_SECONDS = 1.0
_NAP_SECONDS = 0.05
_PROBE_SECONDS = 3.0
_TRY_AGAIN = NO_LINE | {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError._WAIT_COORD,
}
_REFUSED = {
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}


class CommittedReader:
    """One consumer for one group, kept between questions. It has no membership and reads no record."""

    def __init__(self, kafka: Kafka, group: str, timeout_seconds: float, *, require_stable: bool) -> None:
        self._kafka = kafka
        self._timeout = timeout_seconds
        self._group = group
        self._is_stable = require_stable
        self._where = f"reading the offsets of group {group}"
        settings = kafka.client(
            group_id=group,
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            # With read_committed the broker keeps a commit inside an open transaction back until that ends.
            isolation_level="read_committed" if require_stable else "read_uncommitted",
            # It is no member: a short interval that is meant for members must not be held against it.
            max_poll_interval_ms=86_400_000,
        )
        self._log: ClientLog = settings["logger"]
        try:
            self._consumer = Consumer(settings)
        except KafkaException as error:
            raise translate(error.args[0], self._where, self._kafka.bootstrap) from error

    def read(self, partitions: Iterable[Partition]) -> dict[Partition, Commit]:
        """Return what is committed; partitions without a commit are left out."""
        asked = list(partitions)
        try:
            return self._read(asked)
        except BrokerUnreachable as error:
            if self._is_stable and self._is_told_what_is_unstable(asked):
                # Seen for good after a lone broker restarted: by its own log it had ended the transaction.
                raise BrokerUnreachable(
                    f"a transaction that Kafka has not ended holds the offsets of group {self._group} back "
                    "(one that stays for minutes is ended with kafka-transactions.sh: find-hanging, abort)",
                    "it is tried again",
                ) from error
            raise

    def _read(self, partitions: list[Partition]) -> dict[Partition, Commit]:
        wanted = [TopicPartition(topic, number) for topic, number in partitions]
        found = {}
        for entry in self._ask(wanted) if wanted else []:
            if entry.error is not None:
                raise translate(entry.error, self._where, self._kafka.bootstrap)
            if entry.offset >= 0:
                found[Partition(entry.topic, entry.partition)] = Commit(entry.offset, entry.metadata or "")
        return found

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _is_told_what_is_unstable(self, partitions: list[Partition]) -> bool:
        """Whether Kafka answers where no transaction is waited for: why it waits the client does not say."""
        plain = CommittedReader(self._kafka, self._group, min(_PROBE_SECONDS, self._timeout), require_stable=False)
        try:
            plain.read(partitions)
        except TidegateError:
            return False
        else:
            return True
        finally:
            plain.close()

    def _refused_meanwhile(self) -> KafkaError | None:
        """Take what came beside the answer: log lines, and that the group is not ours to read."""
        event = self._consumer.poll(0)
        error = None if event is None else event.error()
        return error if error is not None and error.code() in _REFUSED else None

    def _ask(self, wanted: list[TopicPartition]) -> list[TopicPartition]:
        deadline = time.monotonic() + self._timeout
        self._log.forget_refusal()
        while True:
            try:
                return self._consumer.committed(wanted, timeout=min(_SLICE_SECONDS, self._timeout))
            except KafkaException as error:
                problem = self._log.refusal or self._refused_meanwhile() or error.args[0]
                if problem.code() not in _TRY_AGAIN or time.monotonic() > deadline:
                    blamed = self._log.blame(problem)
                    raise translate(
                        blamed, self._where, self._kafka.bootstrap, reason=self._log.last_failure
                    ) from error
                time.sleep(_NAP_SECONDS)
