"""Follow the commits of all groups in `__consumer_offsets`, with one consumer for the whole cluster.

Asking each group for its offsets takes a connection per group; this takes one for all of them, and also tells
when a commit was made. What it says about a group counts only when it has read all that is there
(`is_caught_up`): until then, and while an open transaction holds back what follows it, the group itself must be asked.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tidegate.errors import BrokerUnreachable
from tidegate.kafka.commits import COMMITS_TOPIC, LayoutError, commits_partition, decode_commit, decode_group
from tidegate.kafka.connection import ClientLog, Kafka, translate, translated
from tidegate.kafka.scan import looking
from tidegate.records import Partition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.kafka.admin import Admin

_NAP_SECONDS = 0.05
_BATCH = 2000


@dataclass(frozen=True, slots=True)
class FollowedCommit:
    """The last commit for one partition of a group."""

    mark: int
    metadata: str
    committed_at_ms: int
    moved_at_ms: int
    """When the first of the commits with this mark was made that Kafka still has."""


class CommitsFollower:
    """What every group has committed, as far as it was read. Joins no group."""

    def __init__(self, kafka: Kafka, admin: Admin, group: str | None = None) -> None:
        """With a group, only what lies beside its commits is read."""
        self._kafka = kafka
        self._admin = admin
        self._group = group
        self._consumer: Consumer | None = None
        self._log: ClientLog | None = None
        self._partitions: int | None = None
        self._forget()

    def _forget(self) -> None:
        self._positions: dict[int, int] = {}
        self._ends: Mapping[Partition, int] = {}
        self._unreadable: set[int] = set()
        self._commits: dict[str, dict[Partition, FollowedCommit]] = {}
        self._empty_since_ms: dict[str, int] = {}

    def catch_up(self, budget_seconds: float) -> None:
        """Read what has come since, for at most so long."""
        deadline = time.monotonic() + budget_seconds
        places = self._places()
        self._ends = self._admin.ends(places, committed_only=False)
        if any(self._positions.get(at.number, 0) > end for at, end in self._ends.items()):
            self.close()  # not the log that was read before
        if self._consumer is None and places:
            self._begin(places)
        wanted = {at.number: end for at, end in self._admin.ends(places).items()}
        while any(self._positions[number] < end for number, end in wanted.items()) and time.monotonic() < deadline:
            self._read()

    def is_caught_up(self, group: str) -> bool:
        """Whether all commits of this group have been read that were there at the last look."""
        if not self._partitions:
            return self._partitions == 0  # the topic comes with the first commit of all
        number = commits_partition(group, self._partitions)
        end = self._ends.get(Partition(COMMITS_TOPIC, number))
        return end is not None and number not in self._unreadable and self._positions.get(number, -1) >= end

    def commits(self, group: str) -> dict[Partition, FollowedCommit]:
        """Return the last commits of the group, as far as they were read."""
        return self._commits.get(group, {})

    def empty_since_ms(self, group: str) -> int | None:
        """Return since when a classic group has had no members; None where it has some, or nobody knows."""
        return self._empty_since_ms.get(group)

    def reconnect(self, admin: Admin) -> None:
        """Ask for ends through another connection from now on; the consumer connects again by itself."""
        self._admin = admin

    def close(self) -> None:
        """End the connection, and forget what was read."""
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = None
        self._forget()

    def _places(self) -> tuple[Partition, ...]:
        if not self._partitions:
            info = self._admin.existing([COMMITS_TOPIC]).get(COMMITS_TOPIC)
            self._partitions = 0 if info is None else info.partitions
        if self._group is not None and self._partitions:
            return (Partition(COMMITS_TOPIC, commits_partition(self._group, self._partitions)),)
        return tuple(Partition(COMMITS_TOPIC, number) for number in range(self._partitions))

    def _begin(self, places: tuple[Partition, ...]) -> None:
        settings = looking(self._kafka, fetch_wait_max_ms=50)
        self._log = settings["logger"]
        starts = self._admin.beginnings(places)
        with translated("connecting", self._kafka.bootstrap):
            self._consumer = Consumer(settings)
            self._consumer.assign([TopicPartition(at.topic, at.number, start) for at, start in starts.items()])
        self._positions = {at.number: start for at, start in starts.items()}

    def _read(self) -> None:
        if self._consumer is None:
            return
        first = self._consumer.poll(_NAP_SECONDS)
        if first is not None:
            for message in (first, *self._consumer.consume(_BATCH, 0)):
                self._take(message)

    def _take(self, message: Message) -> None:
        number, record_offset = message.partition() or 0, message.offset() or 0
        error = message.error()
        if error is None:
            self._positions[number] = record_offset + 1
            self._learn(number, message)
        elif error.code() == KafkaError._PARTITION_EOF:
            self._positions[number] = record_offset
        else:
            blamed = error if self._log is None else self._log.blame(error)
            problem = translate(blamed, "following the commits of all groups", self._kafka.bootstrap)
            if not isinstance(problem, BrokerUnreachable):  # the client connects again by itself
                raise problem

    def _learn(self, number: int, message: Message) -> None:
        key, value = message.key(), message.value()
        try:
            commit = decode_commit(key, value, message.offset() or 0)
            group = None if commit is not None else decode_group(key, value)
        except (LayoutError, UnicodeDecodeError):
            self._unreadable.add(number)  # a version that is newer than this program: ask the groups themselves
            return
        if group is not None:
            self._note_empty(group.group, group.empty_since_ms)
        if commit is None:
            return
        known = self._commits.setdefault(commit.group, {})
        if commit.mark is None:
            known.pop(commit.partition, None)
            if not known:
                del self._commits[commit.group]
            return
        earlier = known.get(commit.partition)
        moved = commit.committed_at_ms if earlier is None or earlier.mark != commit.mark else earlier.moved_at_ms
        known[commit.partition] = FollowedCommit(commit.mark, commit.metadata, commit.committed_at_ms, moved)

    def _note_empty(self, group: str, since_ms: int | None) -> None:
        if since_ms is None:
            self._empty_since_ms.pop(group, None)
        else:
            self._empty_since_ms[group] = since_ms
