"""The commits of consumer groups as they lie in Kafka's own topic, `__consumer_offsets`.

The decoder is pure. Layouts: Kafka's `OffsetCommitKey.json` and `OffsetCommitValue.json`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.kafka.admin import Admin
from tidegate.kafka.scan import Scan
from tidegate.records import Partition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.kafka.connection import Kafka
    from tidegate.kafka.scan import SeenRecord

COMMITS_TOPIC = "__consumer_offsets"
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class CommitSeen:
    """One commit. A mark of None is a tombstone: the group's offset was deleted or has expired."""

    group: str
    partition: Partition
    mark: int | None
    metadata: str
    committed_at_ms: int
    log_offset: int
    """The commit's own place in its partition of `__consumer_offsets`: the order of a group's commits."""


@dataclass(frozen=True, slots=True)
class CommitKey:
    """Whose commit it is."""

    group: str
    partition: Partition


@dataclass(frozen=True, slots=True)
class CommitValue:
    """What was committed."""

    mark: int
    leader_epoch: int
    metadata: str
    committed_at_ms: int


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """What a coordinator stored about a group of the classic protocol."""

    group: str
    empty_since_ms: int | None
    """Since when it has had no members; None where it has some, where nobody ever joined it, or it is gone."""


class LayoutError(ValueError):
    """The bytes are of a version that this decoder does not know."""


def decode_key(key: bytes) -> CommitKey | None:
    """Return whose commit a record is; None for the other things a coordinator stores (members, assignments)."""
    reader = _Bytes(key)
    if reader.number(">h") > 1:
        return None
    return CommitKey(reader.text(), Partition(reader.text(), reader.number(">i")))


def decode_value(value: bytes) -> CommitValue:
    """Return what a commit stores, for every version that Kafka has written so far (0 to 4)."""
    reader = _Bytes(value)
    version = reader.number(">h")
    if not 0 <= version <= 4:
        raise LayoutError(f"a commit of version {version}; known are 0 to 4")
    mark = reader.number(">q")
    leader_epoch = reader.number(">i") if version >= 3 else -1
    metadata = reader.compact_text() if version >= 4 else reader.text()
    # What follows (an expiry in version 1, a topic id in 4) is of no use here.
    return CommitValue(mark, leader_epoch, metadata, reader.number(">q"))


def decode_commit(key: bytes | None, value: bytes | None, log_offset: int) -> CommitSeen | None:
    """Return the commit that a record of `__consumer_offsets` is, or None if it is none."""
    decoded = decode_key(key) if key else None
    if decoded is None:
        return None
    if value is None:
        return CommitSeen(decoded.group, decoded.partition, None, "", -1, log_offset)
    found = decode_value(value)
    # confluent-kafka sends the zero byte that ends its C text along, and hides it again when it reads.
    metadata = found.metadata.removesuffix("\0")
    return CommitSeen(decoded.group, decoded.partition, found.mark, metadata, found.committed_at_ms, log_offset)


def decode_group(key: bytes | None, value: bytes | None) -> GroupSeen | None:
    """Return what a record of `__consumer_offsets` says about a classic group, or None if it is no such record."""
    reader = _Bytes(key or b"\xff\xff")
    if reader.number(">h") != 2:
        return None
    group = reader.text()
    if value is None:
        return GroupSeen(group, None)
    fields = _Bytes(value)
    version = fields.number(">h")
    if not 2 <= version <= 4:
        return GroupSeen(group, None)  # older ones do not say since when
    is_compact = version >= 4
    text = fields.compact_text if is_compact else fields.text
    protocol_type = text()
    fields.number(">i")  # the generation
    text()  # the way in which partitions are shared out
    text()  # the leader
    since = fields.number(">q")
    members = fields.compact_count() if is_compact else fields.number(">i")
    return GroupSeen(group, since if protocol_type and since >= 0 and members == 0 else None)


def commits_partition(group: str, partitions: int) -> int:
    """Return the partition of `__consumer_offsets` that holds this group: Java's hash of its name."""
    encoded = group.encode("utf-16-be")
    hashed = 0
    for (unit,) in struct.iter_unpack(">H", encoded):
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed & 0x80000000 else hashed
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


def watch_commits(
    kafka: Kafka,
    group: str | None = None,
    *,
    from_beginning: bool = False,
    stop_at_end: bool = False,
    timeout_seconds: float = 10.0,
) -> Iterator[CommitSeen | None]:
    """Give the commits of one group, or of all, as they come; None whenever nothing has come for half a second.

    With `stop_at_end` it ends where the topic ended when it began. Commits inside a transaction are
    given when it is committed. Kafka keeps only the last commits of the far past (the topic is compacted).
    """
    admin = Admin(kafka, timeout_seconds)
    topics = {info.name: info for info in admin.topics()}
    if COMMITS_TOPIC not in topics:
        return  # no group has ever committed here
    places = topics[COMMITS_TOPIC].each_partition()
    if group is not None:
        places = (places[commits_partition(group, len(places))],)
    ends = admin.ends(places)
    starts = admin.beginnings(places) if from_beginning else ends
    with Scan(kafka, starts, until=ends if stop_at_end else None, timeout_seconds=timeout_seconds) as scan:
        while not scan.is_done:
            record = scan.read(_POLL_SECONDS)
            commit = None if record is None else _commit_of(record)
            if record is None and not scan.is_done:
                yield None
            elif commit is not None and group in (None, commit.group):
                yield commit


def read_commits(kafka: Kafka, group: str, *, timeout_seconds: float = 10.0) -> list[CommitSeen]:
    """Return every retained commit of the group up to now, in the order in which they were made."""
    seen = watch_commits(kafka, group, from_beginning=True, stop_at_end=True, timeout_seconds=timeout_seconds)
    return [commit for commit in seen if commit is not None]


def _commit_of(record: SeenRecord) -> CommitSeen | None:
    return decode_commit(record.key, record.value, record.offset)


class _Bytes:
    """Reads one field after the other."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def number(self, layout: str) -> int:
        (value,) = struct.unpack(layout, self._take(struct.calcsize(layout)))
        return int(value)

    def text(self) -> str:
        """Read a text; one that is missing is empty."""
        return self._take(max(0, self.number(">h"))).decode()

    def compact_text(self) -> str:
        """Read a text of the flexible versions: its length plus one as a varint, then its bytes."""
        return self._take(self.compact_count()).decode()

    def compact_count(self) -> int:
        return max(0, self._varint() - 1)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    def _take(self, size: int) -> bytes:
        taken = self._content[self._at : self._at + size]
        if size < 0 or len(taken) < size:
            raise LayoutError(f"{len(self._content)} bytes end in the middle of a field")
        self._at += size
        return taken
