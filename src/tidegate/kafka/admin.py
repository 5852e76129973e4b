"""Topics, log ends and group offsets: what can be asked of a cluster without joining a group.

Answers are plain frozen data, and every error is ours.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the client does not mark what it re-exports
    AdminClient,
    DescribeClusterResult,
    ListOffsetsResultInfo,
    NewTopic,
    OffsetSpec,
    TopicDescription,
)

from tidegate.errors import BrokerUnreachable, GroupHasMembers, TidegateError, TopicMissing
from tidegate.kafka.answers import Asker
from tidegate.kafka.committed import CommittedReader
from tidegate.kafka.connection import Kafka
from tidegate.kafka.groups import (
    GroupInfo,
    GroupMember,
    Listed,
    ask_for_groups,
    described_group,
    is_broker_led,
    is_consumers,
    listed_group,
)
from tidegate.records import Commit, Partition

__all__ = ["Admin", "Commit", "GroupInfo", "GroupMember", "TopicInfo"]

K = TypeVar("K")
T = TypeVar("T")

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the client leaves it bare
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client leaves it bare

_GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
# A topic made a moment ago answers so until all parts of the cluster know its leaders.
NO_LEADER_YET = {
    *_GONE,
    KafkaError._NOENT,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
_NAP_SECONDS = 0.05
_MOST_GROUPS = 4
"""Groups whose offsets one admin keeps a connection for."""
_FIRST_WAIT_SECONDS = 2.0
_FOREIGN_COMMIT = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.NON_EMPTY_GROUP,
    KafkaError.REBALANCE_IN_PROGRESS,
}


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic. Its id tells a topic from another that had the same name before."""

    name: str
    topic_id: str
    partitions: int
    replication: int
    is_internal: bool = False

    def each_partition(self) -> tuple[Partition, ...]:
        """Return all partitions of the topic, by number."""
        return tuple(Partition(self.name, number) for number in range(self.partitions))

    def partition(self, number: int) -> Partition:
        """Return one partition of the topic; a number that it does not have is an error."""
        if not 0 <= number < self.partitions:
            raise TopicMissing(
                f"{Partition(self.name, number)} does not exist: the topic has {self.partitions} partitions",
                f"choose a partition from 0 to {self.partitions - 1}",
            )
        return Partition(self.name, number)


class Admin:
    """Asks a cluster, and waits at most `timeout_seconds` for each answer."""

    def __init__(self, kafka: Kafka, timeout_seconds: float = 10.0) -> None:
        self._kafka = kafka
        self._timeout = timeout_seconds
        self._committed: dict[tuple[str, bool], CommittedReader] = {}
        self._asker = Asker(kafka, timeout_seconds)

    @property
    def _client(self) -> AdminClient:
        return self._asker.client

    def ask(self, where: str, call: Callable[[AdminClient, float], Mapping[K, Future[T]]]) -> dict[K, T]:
        """Ask the cluster anything, with the patience and the errors of all questions here.

        `call` gets the client and how many seconds it may take.
        """
        return self._asker.ask(where, lambda: call(self._client, self._timeout))

    def cluster_id(self) -> str:
        """Return Kafka's own id of this cluster."""
        return str(self._described_cluster().cluster_id)

    def node_count(self) -> int:
        """Return how many nodes of this cluster take requests now."""
        return len(self._described_cluster().nodes)

    def _described_cluster(self) -> DescribeClusterResult:
        found: dict[int, DescribeClusterResult] = self._asker.ask(
            "asking who it is", lambda: {0: self._client.describe_cluster(request_timeout=self._timeout)}
        )
        return found[0]

    def topics(self) -> list[TopicInfo]:
        """Return every topic of the cluster by name, internal ones included."""
        names = self.topic_names()
        found = self._describe(names, "listing topics")
        return [info for name in names if (info := found[name]) is not None]

    def describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Return these topics; one that does not exist is an error that names it."""
        wanted = list(dict.fromkeys(names))
        found = self._describe(wanted, "describing topics")
        if missing := [name for name in wanted if found[name] is None]:
            raise self._missing(missing)
        return {name: info for name, info in found.items() if info is not None}

    def existing(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Return those of these topics that exist."""
        found = self._describe(list(dict.fromkeys(names)), "describing topics")
        return {name: info for name, info in found.items() if info is not None}

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None, replication: int = -1
    ) -> None:
        """Create a topic and wait until it can be used. A replication of -1 is the broker's default."""
        where = f"creating topic {name}"
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replication, config=dict(config or {}))
        self._asker.ask(
            where,
            lambda: self._client.create_topics([topic], request_timeout=self._timeout, operation_timeout=self._timeout),
        )
        self._asker.until(where, lambda: self._describe([name], where)[name] is not None)
        self._list_offsets([Partition(name, number) for number in range(partitions)], _EARLIEST, where)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records, and wait until it is gone."""
        self.describe([name])
        where = f"deleting topic {name}"
        self._asker.ask(
            where,
            lambda: self._client.delete_topics([name], request_timeout=self._timeout, operation_timeout=self._timeout),
        )
        self._asker.until(where, lambda: self._describe([name], where)[name] is None)

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the first offset that is still retained, for each partition."""
        return self._list_offsets(partitions, _EARLIEST, "reading beginnings")

    def ends(self, partitions: Iterable[Partition], *, committed_only: bool = True) -> dict[Partition, int]:
        """Return each partition's end offset: the offset of the next record.

        With `committed_only`, an open transaction ends the log where it began: a reader gets no further.
        """
        return self._list_offsets(partitions, _LATEST, "reading ends", committed_only=committed_only)

    def offsets_at(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """Return the first offset with this timestamp or a later one; the end offset where there is none."""
        wanted = list(partitions)
        found = self._list_offsets(wanted, OffsetSpec.for_timestamp(timestamp_ms), "looking up a time")
        later = [partition for partition, record_offset in found.items() if record_offset < 0]
        return {**found, **(self.ends(later) if later else {})}

    def committed(
        self, group: str, partitions: Iterable[Partition] | None = None, *, require_stable: bool = False
    ) -> dict[Partition, Commit]:
        """Return what the group has committed, for these partitions or for all; those without a commit are left out.

        With `require_stable`, a commit inside an open transaction is waited for, up to the timeout.
        """
        key = (group, require_stable)
        if key not in self._committed:
            while len(self._committed) >= _MOST_GROUPS:
                self._committed.pop(next(iter(self._committed))).close()
            self._committed[key] = CommittedReader(self._kafka, group, self._timeout, require_stable=require_stable)
        asked = [one for info in self.topics() for one in info.each_partition()] if partitions is None else partitions
        return self._committed[key].read(asked)

    def commit_for_empty_group(self, group: str, positions: Mapping[Partition, tuple[int, str]]) -> None:
        """Store marks and their metadata, in one request, for a group that has no members.

        Raises `GroupHasMembers` otherwise: the broker takes commits from members only, then.
        """
        if not positions:
            return
        where = f"storing offsets for group {group}"
        entries = [
            TopicPartition(topic, number, mark, metadata=metadata)
            for (topic, number), (mark, metadata) in positions.items()
        ]
        request = ConsumerGroupTopicPartitions(group, entries)

        def store() -> None:
            answers = self._client.alter_consumer_group_offsets([request], request_timeout=self._timeout)
            for entry in self._asker.answer(answers[group]).topic_partitions or []:
                if entry.error is not None:
                    raise KafkaException(entry.error)

        try:
            self._asker.patiently(store)
        except KafkaException as error:
            if error.args[0].code() in _GONE:
                self._check_exist(list(positions))  # says which one
            raise self._commit_refusal(error.args[0], group, where) from error

    def group_members(self, group: str) -> GroupInfo:
        """Return the group's state and members; a group that nobody ever used is `dead` and empty."""
        found = self._groups(group, f"describing group {group}")
        return found.get(group, GroupInfo(group, "dead", ()))

    def all_groups(self) -> dict[str, GroupInfo]:
        """Return the state and the members of every consumer group, by name."""
        return self._groups(None, "describing groups")

    def _groups(self, group: str | None, where: str) -> dict[str, GroupInfo]:
        listed = [one for one in self._list_groups(group, where) if is_consumers(one)]
        found = {one.id: listed_group(one) for one in listed if not is_broker_led(one)}
        others = [one.id for one in listed if is_broker_led(one)]
        if others:
            # Asked only where a broker has just answered, since it may end the process: see `kafka/groups.py`.
            answers = self._asker.ask(
                where, lambda: self._client.describe_consumer_groups(others, request_timeout=self._timeout)
            )
            found |= {name: described_group(name, one) for name, one in answers.items()}
        return found

    def _list_groups(self, group: str | None, where: str) -> list[Listed]:
        deadline = time.monotonic() + self._timeout
        while True:
            # This call gives up at once where no broker is there: one that restarts is waited for here.
            left = max(0.1, deadline - time.monotonic())
            try:
                return ask_for_groups(self._client, group, min(_FIRST_WAIT_SECONDS, left))
            except KafkaException as error:
                problem = self._asker.ours(error, where)
                if not isinstance(problem, BrokerUnreachable) or time.monotonic() > deadline:
                    raise problem from error
                time.sleep(_NAP_SECONDS)

    def groups(self) -> list[str]:
        """Return the names of all consumer groups that the cluster knows."""
        where = "listing groups"
        answer = self._asker.ask(where, lambda: {"": self._client.list_consumer_groups(request_timeout=self._timeout)})[
            ""
        ]
        if answer.errors:
            raise self._asker.translate(answer.errors[0], where)
        return sorted(listing.group_id for listing in answer.valid)

    def topic_names(self) -> list[str]:
        """Return the names of all topics, in one question."""
        # This call cannot be ended before its time, and a client that is let in nowhere would wait for all of it.
        for patience in (min(_FIRST_WAIT_SECONDS, self._timeout), self._timeout):
            try:
                return sorted(self._client.list_topics(timeout=patience).topics)
            except KafkaException as error:
                problem = self._asker.ours(error, "listing topics")
                if patience == self._timeout or not isinstance(problem, BrokerUnreachable):
                    raise problem from error
        return []

    def _describe(self, names: list[str], where: str) -> dict[str, TopicInfo | None]:
        if not names:
            return {}
        answers: dict[str, TopicInfo | None] = {}
        try:
            futures = self._client.describe_topics(TopicCollection(names), request_timeout=self._timeout)
        except (KafkaException, ValueError) as error:
            raise self._asker.ours(error, where) from error
        for name, future in futures.items():
            try:
                answers[name] = _topic_info(self._asker.answer(future))
            except KafkaException as error:
                if error.args[0].code() not in _GONE:
                    refused = error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
                    raise self._asker.ours(error, f"describing topic {name}" if refused else where) from error
                answers[name] = None
        return answers

    def _list_offsets(
        self, partitions: Iterable[Partition], spec: OffsetSpec, where: str, *, committed_only: bool = True
    ) -> dict[Partition, int]:
        wanted = {TopicPartition(topic, number): spec for topic, number in partitions}
        if not wanted:
            return {}
        isolation = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                answers = self._asker.answers(
                    self._client.list_offsets(wanted, isolation_level=isolation, request_timeout=self._timeout)
                )
                return {Partition(at.topic, at.partition): _offset(found) for at, found in answers.items()}
            except KafkaException as error:
                if error.args[0].code() not in NO_LEADER_YET:
                    raise self._asker.ours(error, where) from error
                self._check_exist([Partition(at.topic, at.partition) for at in wanted])
                if time.monotonic() > deadline:
                    raise self._asker.ours(error, where) from error
                time.sleep(_NAP_SECONDS)

    def _check_exist(self, partitions: list[Partition]) -> None:
        found = self.describe(partition.topic for partition in partitions)
        for partition in partitions:
            found[partition.topic].partition(partition.number)

    def _missing(self, names: list[str]) -> TopicMissing:
        one = len(names) == 1
        known = [name for name in self.topic_names() if not name.startswith("__")]
        close = [found for name in names for found in difflib.get_close_matches(name, known, n=1, cutoff=0.75)]
        happened = f"the topic{'' if one else 's'} {', '.join(names)} {'does' if one else 'do'} not exist"
        hint = f" (did you mean {', '.join(dict.fromkeys(close))}?)" if close else ""
        creates = " && ".join(f"tidegate topics create {name}" for name in names)
        return TopicMissing(f"{happened}{hint}", f"create {'it' if one else 'them'} with: {creates}")

    def _commit_refusal(self, error: KafkaError, group: str, where: str) -> TidegateError:
        if error.code() in _FOREIGN_COMMIT:
            return GroupHasMembers(
                f"group {group} has members, and the broker takes commits from them alone",
                "stop every process of the group first",
            )
        return self._asker.translate(error, where)


def _offset(found: ListOffsetsResultInfo) -> int:
    """Return the offset that was told.

    A question that is cut off on its way has no error and no offset. Taken for one, the log would look cut off.
    """
    if found.offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE))
    return int(found.offset)


def _topic_info(found: TopicDescription) -> TopicInfo:
    replication = len(found.partitions[0].replicas) if found.partitions else 0
    return TopicInfo(found.name, str(found.topic_id), len(found.partitions), replication, bool(found.is_internal))
