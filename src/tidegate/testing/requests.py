"""Pure: what a proxy has to know of Kafka's requests: their heads, and how a commit is refused."""

from __future__ import annotations

import struct
from dataclasses import dataclass

PRODUCE = 0
"""Records are written; those of a transaction too."""
LIST_OFFSETS = 2
"""The api key of the question where logs begin and end."""
METADATA = 3
"""The api key of the question who the brokers are, and which of them leads what."""
OFFSET_COMMIT = 8
"""The api key of commits."""
OFFSET_FETCH = 9
"""The api key of the question what is committed."""
END_TXN = 26
"""The api key of the end of a transaction: commit or abort."""
TXN_OFFSET_COMMIT = 28
"""The api key of commits inside a transaction."""

COORDINATOR_LOAD_IN_PROGRESS = 14
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27

_COMPACT_COMMITS = {OFFSET_COMMIT: range(8, 11), TXN_OFFSET_COMMIT: range(3, 6)}
_COMPACT_METADATA = range(9, 14)
_COMMITS_BY_TOPIC_ID = 10


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a client."""

    api_key: int
    version: int
    correlation_id: int
    frame: bytes
    """All of it but the length."""


def read_request(frame: bytes) -> Request:
    """Read the head of a request."""
    api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
    return Request(api_key, version, correlation_id, frame)


def is_commit(request: Request) -> bool:
    """Whether it stores marks of a group, by itself or inside a transaction."""
    return request.api_key in _COMPACT_COMMITS


def refused_commit(request: Request, error: int) -> bytes:
    """Return the answer that refuses each partition of a commit. The versions that today's clients send."""
    known = _COMPACT_COMMITS[request.api_key]
    if request.version not in known:
        raise NotImplementedError(
            f"commits of version {request.version} cannot be refused, only those of {known[0]} to {known[-1]}"
        )
    words = _Words(request.frame)
    words.take(8)  # api key, version, correlation id
    words.take(max(0, words.number(">h")))  # the client's name
    words.skip_tags()
    if request.api_key == TXN_OFFSET_COMMIT:
        words.text()  # transactional id
    words.text()  # group
    if request.api_key == TXN_OFFSET_COMMIT:
        words.take(8 + 2)  # producer, its epoch
    words.take(4)  # generation
    words.text()  # member
    words.text()  # instance
    has_ids = request.api_key == OFFSET_COMMIT and request.version >= _COMMITS_BY_TOPIC_ID
    topics = [_refused_topic(words, error, has_id=has_ids) for _ in range(words.count())]
    start = struct.pack(">ibi", request.correlation_id, 0, 0)  # no tags, no throttling
    return start + _array(topics) + b"\0"


def without_brokers(request: Request, answer: bytes) -> bytes:
    """Return what a broker says of its cluster, but for the brokers. The versions that today's clients ask: 9 to 13."""
    if request.version not in _COMPACT_METADATA:
        raise NotImplementedError(f"metadata of version {request.version} cannot be changed, only that of 9 to 13")
    words = _Words(answer)
    start = words.take(4)  # correlation id
    words.skip_tags()
    throttle = words.take(4)
    for _ in range(words.count()):
        words.take(4)  # node
        words.text()  # host
        words.take(4)  # port
        words.text()  # rack
        words.skip_tags()
    return start + b"\0" + throttle + _array([]) + words.rest()


def _refused_topic(words: _Words, error: int, *, has_id: bool) -> bytes:
    name = words.take(16) if has_id else words.text()
    partitions = []
    for _ in range(words.count()):
        partitions.append(words.take(4) + struct.pack(">hb", error, 0))
        words.take(8 + 4)  # offset, leader epoch
        words.text()  # metadata
        words.skip_tags()
    words.skip_tags()
    return name + _array(partitions) + b"\0"


class _Words:
    """Reads the parts of a request one after the other, in Kafka's compact coding."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._at = 0

    def take(self, size: int) -> bytes:
        part = self._frame[self._at : self._at + size]
        if len(part) < size:
            raise ValueError("a request ended before its time")
        self._at += size
        return part

    def rest(self) -> bytes:
        return self._frame[self._at :]

    def number(self, kind: str) -> int:
        return int(struct.unpack(kind, self.take(struct.calcsize(kind)))[0])

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def count(self) -> int:
        """The size of what follows; 0 for what is null."""
        return max(0, self.varint() - 1)

    def text(self) -> bytes:
        """A text with its own length in front, as it stands."""
        begin = self._at
        self.take(self.count())
        return self._frame[begin : self._at]

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())


def _array(items: list[bytes]) -> bytes:
    return _varint(len(items) + 1) + b"".join(items)


def _varint(value: int) -> bytes:
    coded = bytearray()
    while value >= 0x80:
        coded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*coded, value])
