"""A group's dead letters, read from `GROUP.dead`: each with where it came from and why it failed."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

from tidegate.copies import Copy, Headers, Past, read_headers, record_headers, redriven_place
from tidegate.durations import seconds
from tidegate.errors import SettingsError, TopicMissing
from tidegate.kafka.scan import Scan
from tidegate.names import dead_topic, is_own, redrive_topic
from tidegate.ops.cluster import chosen_cluster
from tidegate.ops.redrive_memory import RedriveMemory, Remembered
from tidegate.ops.tail import parse_time
from tidegate.records import moment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidegate.kafka.admin import TopicInfo
    from tidegate.kafka.connection import Kafka
    from tidegate.kafka.scan import SeenRecord
    from tidegate.ops.cluster import Cluster
    from tidegate.records import Partition

_POLL_SECONDS = 0.25
_LARGEST = 2**63 - 1
_SUFFIX = dead_topic("")
_CLOCKS_APART_MS = 5_000

Place = tuple[int, int]
"""A partition and an offset in `GROUP.dead`."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record of a group's dead letters.

    Where `is_copy` is false, somebody else wrote it: it has no origin, no id and no error, only what lies there.
    """

    group: str
    partition: int
    """Its place in `GROUP.dead`, with `offset`."""
    offset: int
    written_at: datetime | None
    is_copy: bool
    was_redriven: bool
    """Whether this very letter was redriven. If it failed again, it is a new letter, with one redrive more."""
    stable_id: str | None
    origin_topic: str | None
    origin_partition: int | None
    origin_offset: int | None
    origin_timestamp: datetime | None
    error_type: str
    error_message: str
    traceback: str
    attempt: int
    """Attempts made since it was first read, or since its last redrive."""
    redrives: int
    first_failed_at: datetime | None
    history: tuple[Past, ...]
    key: bytes | None
    value: bytes | None
    headers: Headers
    """The record's own headers."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters are meant; what is None does not matter."""

    origin: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    key: bytes | None = None
    place: Place | None = None
    """The one in this place."""

    def takes(self, letter: DeadLetter) -> bool:
        """Whether this letter is meant. One whose time is not known is in no span of time."""
        written = letter.written_at
        return (
            (self.origin is None or letter.origin_topic == self.origin)
            and (self.error is None or _has_error(letter, self.error))
            and (self.since is None or (written is not None and written >= self.since))
            and (self.until is None or (written is not None and written < self.until))
            and (self.key is None or letter.key == self.key)
            and (self.place is None or (letter.partition, letter.offset) == self.place)
        )


@dataclass(frozen=True, slots=True)
class FoundLetter:
    """A dead letter, and what a redrive makes its copy from."""

    letter: DeadLetter
    copy: Copy | None
    raw_headers: Headers


def dead_letters(
    group: str,
    *,
    origin: str | None = None,
    error: str | None = None,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
    key: str | bytes | None = None,
    kafka: Kafka | None = None,
    limit: int | None = None,
) -> Iterator[DeadLetter]:
    """Give a group's dead letters up to the present end, partition by partition, the oldest of each first.

    `origin`: the topic it was first read from. `error`: the name of the error's type, or a part of its message.
    `since` (included) and `until` (not included): when it was written, as a time or as a duration before now
    (`"2h"`). `limit`: at most so many. It joins no group and changes nothing. A group without a dead-letter
    topic is an error: the name may be wrong, and "none" would be false comfort.
    """
    chosen = make_filter(origin=origin, error=error, since=since, until=until, key=key)
    check_limit(limit)
    topic = DeadTopic(chosen_cluster(kafka), group)
    return (found.letter for found in islice(topic.read(chosen), limit))


def make_filter(
    *,
    origin: str | None = None,
    error: str | None = None,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
    key: str | bytes | None = None,
    place: Place | None = None,
) -> Filter:
    """Turn what a caller wrote into a filter. A span of time that holds nothing is refused."""
    now = datetime.now(UTC)
    begin, end = _moment_of(since, "since", now), _moment_of(until, "until", now)
    if begin is not None and end is not None and begin >= end:
        raise SettingsError(f"since={since} is not before until={until}", "swap them, or leave one of them out")
    return Filter(origin, error or None, begin, end, key.encode() if isinstance(key, str) else key, place)


def check_limit(limit: int | None) -> None:
    """Refuse a limit that would show nothing."""
    if limit is not None and limit < 1:
        raise SettingsError(f"limit={limit} leaves nothing", "make it 1 or more, or leave it out")


class DeadTopic:
    """A group's dead letters as they are now: ends, and what was redriven, are read once.

    The redrive topic says what was redriven; the history knows it still where that topic has forgotten.
    """

    def __init__(self, cluster: Cluster, group: str, until: Mapping[Partition, int] | None = None) -> None:
        self.group = group
        self.cluster = cluster
        self.info = _dead_topic(cluster, group)
        places = self.info.each_partition()
        self._beginnings = cluster.admin.beginnings(places)
        ends = cluster.admin.ends(places)
        self.ends = ends if until is None else {at: min(end, until.get(at, end)) for at, end in ends.items()}
        """Where it ends for this look; given as `until`, a later look sees no letter that is newer."""
        self._redriven = _redriven(cluster, group)
        self.memory = RedriveMemory(cluster, group)
        self._remembered = self.memory.known()

    def read(self, chosen: Filter) -> Iterator[FoundLetter]:
        """Give the letters that are meant, in the order of their places."""
        return (found for found in self.each(chosen) if chosen.takes(found.letter))

    def each(self, chosen: Filter, first: Place | None = None) -> Iterator[FoundLetter]:
        """Give all letters among which those that are meant lie, from the place `first` on."""
        starts = self._beginnings
        if chosen.since is not None:
            # Below zero Kafka means other things than times.
            since = self.cluster.admin.offsets_at(starts, max(0, int(chosen.since.timestamp() * 1000)))
            starts = {at: max(start, since[at]) for at, start in starts.items()}
        if first is not None:
            starts = {at: _from(first, at, start) for at, start in starts.items()}
        for at in self.info.each_partition():
            if chosen.place is not None and chosen.place[0] != at.number:
                continue
            until = self.ends
            if chosen.place is not None:
                until = {at: min(self.ends[at], chosen.place[1] + 1)}
                starts = {**starts, at: max(starts[at], chosen.place[1])}
            yield from map(self._found, _records(self.cluster, {at: starts[at]}, until))

    def at(self, number: int, record_offset: int) -> FoundLetter:
        """Return the letter in this place; none there is an error."""
        at = self.info.partition(number)
        if self._beginnings[at] <= record_offset < self.ends[at]:
            for record in _records(self.cluster, {at: record_offset}, {at: record_offset + 1}):
                return self._found(record)
        raise SettingsError(
            f"there is no dead letter at {number}:{record_offset} of {self.info.name}",
            f"list what is there with: tidegate dead list {self.group}",
        )

    def by_id(self, stable_id: str) -> list[FoundLetter]:
        """Return the letters of one record, the oldest first: it may have failed again after a redrive."""
        found = [one for one in self.read(Filter()) if one.letter.stable_id == stable_id]
        if not found:
            raise SettingsError(
                f"no dead letter in {self.info.name} has the id {stable_id!r}",
                f"name it by its place or its id, as shown by: tidegate dead list {self.group}",
            )
        return sorted(found, key=lambda one: one.letter.redrives)

    def _found(self, record: SeenRecord) -> FoundLetter:
        copy = read_headers(record.headers)
        at = self._redriven.get(record.partition, {}).get(record.offset)
        letter = _letter(self.group, record, copy, redriven_ms=at)
        if not letter.was_redriven and Remembered.of(letter) in self._remembered:
            letter = replace(letter, was_redriven=True)
        return FoundLetter(letter, copy, record.headers)


def _from(first: Place, at: Partition, start: int) -> int:
    """Return where to begin in a partition, so that nothing before the place `first` comes."""
    if at.number < first[0]:
        return _LARGEST
    return max(start, first[1]) if at.number == first[0] else start


def _dead_topic(cluster: Cluster, group: str) -> TopicInfo:
    name = dead_topic(group)
    found = cluster.admin.existing([name])
    if name not in found:
        close = difflib.get_close_matches(
            name, [info.name for info in cluster.admin.topics() if _is_dead(info.name)], 1
        )
        hint = f"did you mean {close[0].removesuffix(_SUFFIX)}? A" if close else "check the group's name; a"
        raise TopicMissing(
            f"group {group} has no dead letters: the topic {name} does not exist",
            f"{hint} pipeline with on_error(..., tg.dead_letter()) makes the topic at its start",
        )
    return found[name]


def _is_dead(topic: str) -> bool:
    return is_own(topic) and topic.endswith(_SUFFIX)


def _redriven(cluster: Cluster, group: str) -> dict[int, dict[int, int]]:
    """Return which places the redrive topic speaks of, and when each was last written there (milliseconds)."""
    places: dict[int, dict[int, int]] = {}
    name = redrive_topic(group)
    info = cluster.admin.existing([name]).get(name)
    if info is None:
        return places
    partitions = info.each_partition()
    for record in _records(cluster, cluster.admin.beginnings(partitions), cluster.admin.ends(partitions)):
        if (place := redriven_place(record.headers)) is not None:
            at = _LARGEST if record.timestamp is None else int(record.timestamp.timestamp() * 1000)
            of_partition = places.setdefault(place[0], {})
            of_partition[place[1]] = max(at, of_partition.get(place[1], 0))
    return places


def _records(cluster: Cluster, starts: Mapping[Partition, int], ends: Mapping[Partition, int]) -> Iterator[SeenRecord]:
    starts = {at: start for at, start in starts.items() if start < ends[at]}
    if not starts:
        return
    with Scan(cluster.kafka, starts, until=ends, timeout_seconds=cluster.timeout_seconds) as scan:
        while not scan.is_done:
            if (record := scan.read(_POLL_SECONDS)) is not None:
                yield record


def _letter(group: str, record: SeenRecord, copy: Copy | None, *, redriven_ms: int | None) -> DeadLetter:
    origin = None if copy is None else copy.origin
    return DeadLetter(
        group=group,
        partition=record.partition,
        offset=record.offset,
        written_at=record.timestamp,
        is_copy=copy is not None,
        was_redriven=redriven_ms is not None and _is_of_this_letter(redriven_ms, record.timestamp),
        stable_id=None if copy is None else copy.stable_id,
        origin_topic=None if origin is None else origin.topic,
        origin_partition=None if origin is None else origin.partition,
        origin_offset=None if origin is None else origin.offset,
        origin_timestamp=None if origin is None else moment(origin.timestamp_ms),
        error_type="" if copy is None else copy.error_type,
        error_message="" if copy is None else copy.error_message,
        traceback="" if copy is None else copy.traceback,
        attempt=0 if copy is None else copy.attempt,
        redrives=0 if copy is None else copy.redrives,
        first_failed_at=None if copy is None or not copy.first_failed_at_ms else moment(copy.first_failed_at_ms),
        history=() if copy is None else copy.history,
        key=record.key,
        value=record.value,
        headers=record.headers if copy is None else record_headers(record.headers),
    )


def _is_of_this_letter(redriven_ms: int, written_at: datetime | None) -> bool:
    """Whether a redrive of this place was one of this letter.

    A dead-letter topic that was deleted and made anew has other letters in the same places, written after the
    redrive. Brokers' clocks may differ a little.
    """
    return written_at is None or redriven_ms >= written_at.timestamp() * 1000 - _CLOCKS_APART_MS


def _has_error(letter: DeadLetter, wanted: str) -> bool:
    names = (letter.error_type, letter.error_type.rpartition(".")[2])
    return wanted in names or wanted.casefold() in letter.error_message.casefold()


def _moment_of(given: str | datetime | None, name: str, now: datetime) -> datetime | None:
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise SettingsError(f"{name} has no time zone", "pass an aware datetime, datetime.now(UTC) for example")
        return given
    if given is None:
        return None
    try:
        return parse_time(given)
    except ValueError:
        pass
    try:
        return now - timedelta(seconds=seconds(given))
    except (SettingsError, OverflowError):
        raise SettingsError(
            f"{name}={given!r} is no time", "write a time like 2026-01-31T12:00Z (UTC), or how long ago, like 2h"
        ) from None
