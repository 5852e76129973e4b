"""The driver's one consumer: it holds the membership, gets the callbacks and commits.

One thread owns it. A synchronous commit from another thread while one polls hung.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tidegate.beside import THIS_MACHINE, Beside
from tidegate.errors import TidegateError
from tidegate.kafka.connection import NO_LINE, ClientLog, Kafka, translate
from tidegate.kafka.patience import NeverReturned, within
from tidegate.kafka.transactions import membership_of
from tidegate.records import Commit, Partition

logger = logging.getLogger("tidegate.member")

Partitions = list[Partition]

ANSWER_SECONDS = 200.0
"""The client waits for a coordinator as long as a session lasts, then sends a request up to three times of a minute."""
LEAST_POLL_SECONDS = 300.0
"""What the client itself allows between two polls."""
AWAY_SECONDS = 60.0
"""A member whose partitions were lost, and that hears nothing of the group for so long, is replaced by another."""
PROBE_SECONDS = 2.0
WARN_AGAIN_SECONDS = 30.0
ARRIVAL_SECONDS = 2.0
"""The client gives a commit up that is refused again and again after 0.6 s."""


@dataclass(frozen=True)
class Joining:
    """How to be a member of a group."""

    group: str
    session_seconds: float
    instance: str | None = None
    is_broker_led: bool = False
    """`group.protocol=consumer`: the broker divides the partitions and sets the session timeout."""
    busy_seconds: float = 0.0
    """For how long nobody may poll: giving partitions back waits for the work on them."""

    @property
    def longest_poll_seconds(self) -> float:
        """How long the client may stay without a poll, and others of the group with it."""
        return max(LEAST_POLL_SECONDS, self.busy_seconds + ANSWER_SECONDS)

    def client(self) -> dict[str, str | int]:
        """Return the client's settings for it."""
        # Otherwise: a record takes six minutes, we wait for it before we give its partition back, and after five the
        # client leaves the group: another process begins at the old mark, beside us.
        longest = {"max.poll.interval.ms": round(1000 * self.longest_poll_seconds)}
        if self.is_broker_led:
            return {"group.protocol": "consumer", **longest}
        settings: dict[str, str | int] = {
            **longest,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": round(self.session_seconds * 1000),
            "heartbeat.interval.ms": max(100, min(3000, round(self.session_seconds * 1000 / 3))),
        }
        return settings if self.instance is None else {**settings, "group.instance.id": self.instance}


@dataclass(frozen=True)
class Refused:
    """Why a commit was not taken, and whether the same one may be taken later."""

    error: TidegateError
    is_passing: bool


@dataclass(frozen=True)
class Callbacks:
    """What the owner of the member wants to hear; all are called from inside `poll`."""

    gained: Callable[[Partitions], None]
    revoked: Callable[[Partitions], None]
    """Called while the partitions are still ours: commits made inside still count."""
    lost: Callable[[Partitions], None]
    """Called when they are somebody else's already: nothing may be committed."""
    committed: Callable[[Mapping[Partition, Commit], Mapping[Partition, Refused]], None]


class Member:
    """Membership in the group, without ever reading a record."""

    def __init__(
        self,
        kafka: Kafka,
        joining: Joining,
        callbacks: Callbacks,
        beside: Beside = THIS_MACHINE,
        open_consumer: Callable[[dict[str, Any]], Consumer] = Consumer,
    ) -> None:
        self._now, self._sleep = beside.now, beside.sleep
        self._kafka = kafka
        self._group = joining.group
        self._callbacks = callbacks
        settings = {
            **kafka.client(
                group_id=joining.group,
                enable_auto_commit=False,
                enable_auto_offset_store=False,
                topic_metadata_refresh_interval_ms=10_000,
                isolation_level="read_committed",
            ),
            **joining.client(),
        }
        self._log: ClientLog = settings["logger"]
        self._settings, self._open = settings, open_consumer
        self._topics: list[str] = []
        self._clients = 0
        self._consumer = self._connect()
        self._current = self._clients
        self._away_since: float | None = None
        """Since when we have asked to join, or have lost what we had, without any answer of the group since."""
        self._has_group = False
        self._patience_seconds = AWAY_SECONDS
        self._join_seconds = joining.longest_poll_seconds
        self._sent: dict[Partition, Commit] | None = None
        self._sent_at = 0.0
        self._answer_seconds = joining.session_seconds + ANSWER_SECONDS
        self._warned_at = -WARN_AGAIN_SECONDS
        self._is_leaving = False
        self.stray_records = 0
        """Records that reached the member although everything is paused: a bug, counted."""

    def join(self, topics: Iterable[str]) -> None:
        """Subscribe; the group answers in `poll`."""
        self._topics = list(topics)
        if self._away_since is None and not self._has_group:
            # Longer than after a loss: the others may be giving partitions back, and that may take them so long.
            self._away_since, self._patience_seconds = self._now(), self._join_seconds
        self._subscribe(self._consumer)

    def poll(self, seconds: float = 0.0) -> None:
        """Serve the callbacks; raise what cannot be waited out."""
        is_away = self._away_since is not None and self._now() - self._away_since > self._patience_seconds
        if is_away and not self._is_leaving:
            self._renew()
        message = self._consumer.poll(seconds)
        if (refusal := self._log.refusal) is not None:
            self._log.forget_refusal()
            raise translate(refusal, "group membership", self._kafka.bootstrap)
        if self._log.take_outage() and self._now() - self._warned_at > WARN_AGAIN_SECONDS:
            self._warned_at = self._now()
            logger.warning(
                "Kafka at %s does not answer; the run waits for it", self._kafka.bootstrap, extra={"action": "away"}
            )
        if message is None:
            return
        error = message.error()
        if error is None:
            self.stray_records += 1
            logger.error("a record reached the member", extra={"action": "stray_record"})
        elif error.fatal() or error.code() in _FINAL:
            raise translate(error, f"joining group {self._group}", self._kafka.bootstrap)

    @property
    def membership(self) -> bytes:
        """By which the broker knows this member, in the group as it is now: a transaction goes with it."""
        return membership_of(self._consumer.consumer_group_metadata())

    @property
    def member_id(self) -> str:
        """The name that the group gave us; empty before it has, and when we leave.

        A client that is being closed would answer this question never, where its broker is gone.
        """
        return "" if self._is_leaving else self._consumer.memberid() or ""

    @property
    def is_committing(self) -> bool:
        """Whether a commit is on its way; its answer comes through `poll`.

        While the client may still send it, no other one may be sent: the older could arrive last, and the mark would
        move back. One that is never answered must not hold all later ones back for ever either.
        """
        return self._sent is not None and self._now() - self._sent_at < self._answer_seconds

    def commit(self, positions: Mapping[Partition, Commit]) -> None:
        """Send one commit; the answer comes through `poll`, to the callback `committed`."""
        try:
            self._consumer.commit(offsets=_offsets(positions), asynchronous=True)
            self._sent, self._sent_at = dict(positions), self._now()
        except KafkaException as error:
            self._callbacks.committed({}, dict.fromkeys(positions, self._refused(error.args[0])))

    def commit_now(self, positions: Mapping[Partition, Commit]) -> dict[Partition, Refused]:
        """Commit and wait for the broker's answer; return what it refused."""
        self._let_arrive(positions)
        try:
            answers = self._consumer.commit(offsets=_offsets(positions), asynchronous=False) or []
        except KafkaException as error:
            return dict.fromkeys(positions, self._refused(error.args[0]))
        return {_partition(answer): self._refused(answer.error) for answer in answers if answer.error is not None}

    def _let_arrive(self, partitions: Iterable[Partition]) -> None:
        """Wait for a commit of these partitions that is on its way.

        Otherwise: a loading coordinator refuses it, ours is taken, the client sends the refused one again by itself,
        and the older mark lies over the newer. Its answer comes through `poll`, which ends the process when it is
        called from inside a callback; so the broker is asked whether it has it.
        """
        awaited = {tp: one for tp, one in (self._sent or {}).items() if tp in set(partitions)}
        while awaited and self._now() < self._sent_at + ARRIVAL_SECONDS and self._committed(awaited) != awaited:
            self._sleep(0.02)  # between two questions

    def _committed(self, partitions: Iterable[Partition]) -> dict[Partition, Commit]:
        asked = [TopicPartition(one.topic, one.number) for one in partitions]
        try:
            answers = self._consumer.committed(asked, timeout=ARRIVAL_SECONDS)
        except KafkaException:
            return {}
        return {_partition(one): Commit(one.offset, one.metadata or "") for one in answers}

    def leave(self, within_seconds: float = 10.0) -> None:
        """Leave the group, so that the partitions go to others at once. Everything must be committed before.

        The client waits without a limit for a broker that is gone; the group then notices by itself.
        """
        self._is_leaving = True
        try:
            within(within_seconds, "leave", self._close)
        except NeverReturned:
            logger.warning("the group could not be told that we leave", extra={"action": "leave_failed"})

    def _close(self) -> None:
        try:
            self._consumer.close()
        except (KafkaException, RuntimeError) as error:
            logger.warning("leaving the group failed: %s", error, extra={"action": "leave_failed"})

    def _connect(self) -> Consumer:
        self._clients += 1
        return self._open({**self._settings, "on_commit": partial(self._on_commit, self._clients)})

    def _subscribe(self, consumer: Consumer) -> None:
        consumer.subscribe(self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def _renew(self) -> None:
        """Let another client join, where Kafka answers it.

        One that hears once that there is no broker, from the only one while that is shut out by its controller, was
        seen to ask nobody any more, and never to join again.
        """
        self._away_since = self._now()
        fresh = self._connect()
        if not self._is_answered(fresh):
            self._drop(fresh)
            return
        logger.warning(
            "the group has not answered for %.0f s although Kafka does: another client joins it",
            self._patience_seconds,
            extra={"action": "member_renewed"},
        )
        old, self._consumer, self._current, self._sent = self._consumer, fresh, self._clients, None
        self._subscribe(fresh)
        self._drop(old)

    @staticmethod
    def _is_answered(consumer: Consumer) -> bool:
        try:
            return bool(consumer.list_topics(timeout=PROBE_SECONDS).brokers)
        except KafkaException:
            return False

    @staticmethod
    def _drop(consumer: Consumer) -> None:
        """Close a client that may wait for ever for its broker, beside us."""
        threading.Thread(target=consumer.close, name="tidegate-drop", daemon=True).start()

    def _on_commit(self, client: int, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if client != self._current:
            return  # of a client that was replaced
        sent = self._sent or {}
        if {_partition(one): one.offset for one in partitions} != {tp: one.mark for tp, one in sent.items()}:
            return  # the answer to an earlier one that was given up
        self._sent = None
        refused = {_partition(one): self._refused(one.error) for one in partitions if one.error is not None}
        if error is not None:
            refused |= dict.fromkeys(sent, self._refused(error))
        else:
            self._log.heard()
        taken = {partition: commit for partition, commit in sent.items() if partition not in refused}
        self._callbacks.committed(taken, refused)

    def _refused(self, error: KafkaError) -> Refused:
        passing = bool(error.retriable()) or error.code() in _PASSING
        return Refused(translate(error, "committing offsets", self._kafka.bootstrap), passing)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Offset 0 is never fetched: the marks are read later, by tasks with consumers of their own.
        # The pause must follow the assign, every time: before it, it silently does nothing.
        given = [TopicPartition(one.topic, one.partition, 0) for one in partitions]
        consumer.incremental_assign(given)
        if given:
            consumer.pause(given)
        self._log.heard()
        if consumer is self._consumer:
            self._away_since, self._has_group = None, True
            self._callbacks.gained([_partition(one) for one in partitions])

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if not self._is_leaving and consumer is self._consumer:
            self._callbacks.revoked([_partition(one) for one in partitions])
        consumer.incremental_unassign(partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if not self._is_leaving and consumer is self._consumer:
            self._away_since, self._has_group, self._patience_seconds = self._now(), False, AWAY_SECONDS
            self._callbacks.lost([_partition(one) for one in partitions])
        consumer.incremental_unassign(partitions)


def open_member(kafka: Kafka, joining: Joining, callbacks: Callbacks) -> Member:
    """Make the member; a setting that the client refuses is told in one sentence."""
    try:
        return Member(kafka, joining, callbacks)
    except KafkaException as error:
        raise translate(error.args[0], "group membership", kafka.bootstrap) from error


_FINAL = {
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError._FATAL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    KafkaError.INVALID_SESSION_TIMEOUT,
    KafkaError.GROUP_MAX_SIZE_REACHED,
    KafkaError.FENCED_INSTANCE_ID,
}
_PASSING = NO_LINE | {
    KafkaError._WAIT_COORD,
    KafkaError._NO_OFFSET,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.STALE_MEMBER_EPOCH,  # the same where the broker leads: it has moved the group on meanwhile
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT,
}


def _offsets(positions: Mapping[Partition, Commit]) -> list[TopicPartition]:
    return [TopicPartition(tp.topic, tp.number, one.mark, one.metadata) for tp, one in positions.items()]


def _partition(one: TopicPartition) -> Partition:
    return Partition(one.topic, one.partition)
