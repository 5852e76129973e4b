"""The writing side of a redrive: paced, bounded, and every acknowledgement counted."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tidegate.copies import PREFIX, redriven_note, write_headers
from tidegate.engine.own_topics import made_topics, make_topic
from tidegate.errors import BrokerRefused, BrokerUnreachable, TidegateError
from tidegate.kafka.configs import TopicConfigs
from tidegate.kafka.connection import Kafka
from tidegate.kafka.writer import MOST_COPY_BYTES, Ack, Writer
from tidegate.names import redrive_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.kafka.admin import Admin, TopicInfo
    from tidegate.ops.cluster import Cluster
    from tidegate.ops.dead_letters import DeadLetter, FoundLetter, Place
    from tidegate.ops.redrive_memory import RedriveKeeper

_MOST_OPEN = 1000
_MOST_OPEN_BYTES = 32 * 1024 * 1024
_NAP_SECONDS = 0.1
_SHORTEST_POLL_SECONDS = 0.001  # the client counts in milliseconds
_CATCH_UP_SECONDS = 0.05
_DELIVERY_SECONDS = 30.0
_DEFAULT_BATCH = 1_000_000  # the client's own


class Pace:
    """Pure: when the next may go. Evenly spread; what was missed in a stall is made up for a twentieth of a second."""

    def __init__(self, per_second: float | None) -> None:
        self._gap = 0.0 if per_second is None else 1 / per_second
        self._due: float | None = None

    def wait(self, now: float) -> float:
        """Return how many seconds are left until the next may go; 0 or less: now."""
        return 0.0 if self._due is None else self._due - now

    def went(self, now: float) -> None:
        """Note that one has gone."""
        due = now if self._due is None else max(self._due, now - _CATCH_UP_SECONDS)
        self._due = due + self._gap


class Sending:
    """The writing side of a redrive: paced, with few on their way, and each acknowledgement counted."""

    def __init__(
        self,
        writer: Writer,
        target: TopicInfo,
        memory: TopicInfo,
        pace: Pace,
        on_progress: Callable[[int], None] | None,
        remember: RedriveKeeper | None = None,
    ) -> None:
        self.sent = 0
        self.failure: TidegateError | None = None
        self.failed_place: Place | None = None
        self._writer = writer
        self._target = target
        self._memory = memory
        self._is_elsewhere = target.name != memory.name
        self._pace = pace
        self._on_progress = on_progress
        self._remember = remember
        self._told = 0
        self._open = self._open_bytes = 0
        # One for all of this redrive: a record that has two letters, since its copy was sent twice, has one pass.
        self._number = int(time.time() * 1000)
        self._to_note: deque[Place] = deque()

    def send(self, found: FoundLetter) -> None:
        """Send one letter when there is room and its turn has come; not if another has failed by then."""
        while self.failure is None and (self._open >= _MOST_OPEN or self._open_bytes >= _MOST_OPEN_BYTES):
            self._look(_NAP_SECONDS)
        while self.failure is None and (wait := self._pace.wait(time.monotonic())) > 0:
            if wait < _SHORTEST_POLL_SECONDS:
                time.sleep(wait)
            else:
                self._look(min(wait, _NAP_SECONDS))
        if self.failure is None:
            self._pace.went(time.monotonic())
            self._write(found)
            self._look(0.0)

    def finish(self) -> None:
        """Wait for every acknowledgement, and for those of the notes."""
        for _ in range(2):
            # The client reports a record as timed out within its own limit; the extra second lets that report come.
            if self._writer.flush(_DELIVERY_SECONDS + 1.0):
                self._fail(None, BrokerUnreachable("no answer came in time", "look whether the broker runs"))
            self._look(0.0)

    def _write(self, found: FoundLetter) -> None:
        letter = found.letter
        place = (letter.partition, letter.offset)
        headers = headers_elsewhere(found) if self._is_elsewhere else headers_back(found, self._number)
        size = len(letter.key or b"") + len(letter.value or b"") + sum(len(value or b"") for _, value in headers)
        self._open += 1
        self._open_bytes += size
        self._writer.send(
            self._target.name,
            letter.value,
            letter.key,
            headers,
            partition=self._partition_elsewhere(letter) if self._is_elsewhere else self._partition_back(place),
            on_ack=partial(self._take, letter, size),
        )

    def _partition_back(self, place: Place) -> int:
        return place[0] % self._memory.partitions

    def _partition_elsewhere(self, letter: DeadLetter) -> int | None:
        """Back in its own topic it goes to its own partition; elsewhere its key chooses."""
        number = letter.origin_partition
        is_home = letter.origin_topic == self._target.name and number is not None and number < self._target.partitions
        return number if is_home else None

    def _take(self, letter: DeadLetter, size: int, ack: Ack) -> None:
        place = (letter.partition, letter.offset)
        self._open_bytes -= size
        if ack.error is None:
            self.sent += 1
            if self._remember is not None:
                self._remember.note(letter)
            if self._is_elsewhere:
                # Open until it is noted, so that a kill repeats no more than may be open. The note is written outside
                # of this callback: the writer is busy calling it.
                self._to_note.append(place)
                return
        else:
            self._fail(place, ack.error)
        self._open -= 1

    def _look(self, wait_seconds: float) -> None:
        self._writer.poll(wait_seconds)
        while self._to_note:
            place = self._to_note.popleft()
            self._writer.send(
                self._memory.name,
                None,
                headers=redriven_note(place),
                partition=self._partition_back(place),
                on_ack=partial(self._take_note, place),
            )
        if self._remember is not None:
            self._remember.write_if_many()
        if self._on_progress is not None and self.sent > self._told:
            self._told = self.sent
            self._on_progress(self.sent)

    def _take_note(self, place: Place, ack: Ack) -> None:
        self._open -= 1
        if ack.error is not None:
            self._fail(place, ack.error)

    def _fail(self, place: Place | None, error: TidegateError) -> None:
        if self.failure is None:
            self.failure, self.failed_place = error, place


def headers_back(found: FoundLetter, number: int) -> list[tuple[str, bytes | None]]:
    """Return the headers of a redriven copy: it walks the row from its start, with one redrive more.

    The traceback stays behind in the dead letter: with one header more, a letter as large as its topic allows
    would be refused. One that is sent once more has the number of this redrive, as after a rewind: a table that
    knows its first pass would let the second have no effect.
    """
    if found.copy is None:
        raise ValueError("a record that is no copy of ours cannot be redriven")
    copy = replace(
        found.copy,
        attempt=0,
        delay=None,
        traceback="",
        redrives=found.copy.redrives + 1,
        redriven_from=(found.letter.partition, found.letter.offset),
        replay=max(number, found.copy.replay + 1) if found.letter.was_redriven else found.copy.replay,
    )
    return write_headers(copy, found.letter.headers)


def headers_elsewhere(found: FoundLetter) -> list[tuple[str, bytes | None]]:
    """Return the headers for another topic: the record's own, its id, and how often it was redriven."""
    own = ((name, value) for name, value in found.raw_headers if not name.startswith(PREFIX))
    stable_id = (found.letter.stable_id or "").encode()
    return [*own, (f"{PREFIX}id", stable_id), (f"{PREFIX}redrives", str(found.letter.redrives + 1).encode())]


def made_redrive_topic(admin: Admin, group: str, dead: TopicInfo) -> TopicInfo:
    """Return the group's redrive topic; made if no pipeline of the group has made it yet."""
    name = redrive_topic(group)
    if name not in admin.existing([name]):
        config = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "delete", "retention.ms": "-1"}
        if (largest := _largest_record(admin, dead.name)) is not None:
            config["max.message.bytes"] = str(largest)
        make_topic(admin, name, dead.partitions, config, dead.replication)
    return made_topics(admin, [name])[name]


def writer_for(cluster: Cluster, target: TopicInfo, memory: TopicInfo) -> Writer:
    """Return a writer that may send what the topics take: the client's own limits are other ones.

    A batch counts as one message for the broker, so none may grow past what both topics take.
    """
    limits = [limit for info in (target, memory) if (limit := _largest_record(cluster.admin, info.name)) is not None]
    sizes = {"batch.size": min(_DEFAULT_BATCH, *limits)} if limits else {}
    return Writer(
        Kafka(cluster.kafka.bootstrap, {**sizes, **cluster.kafka.settings}),
        delivery_seconds=_DELIVERY_SECONDS,
        most_bytes=MOST_COPY_BYTES,
        is_packed=True,
    )


def _largest_record(admin: Admin, topic: str) -> int | None:
    try:
        return int(TopicConfigs(admin).read([topic])[topic]["max.message.bytes"])
    except (BrokerRefused, KeyError):
        return None  # no right to ask: then the client's own limit counts
