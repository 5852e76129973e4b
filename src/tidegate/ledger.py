"""Pure: the mark and *ahead* of one partition, and how a commit's metadata carries them.

No client, no clock, no thread. Proved by a table and by random schedules in `tests/unit/test_ledger.py`.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from tidegate.records import Done, Partition, PlannedRound, Position

METADATA_BYTES = 4000
"""Most that a commit's metadata may hold. Kafka refuses the whole commit call above 4,096 by default."""

FULL_CHARACTERS = 1000
"""Where *ahead* takes this much, reading stops: one more batch may still add twice as much."""
FEW = 100

Ranges = tuple[tuple[int, int], ...]


class Ledger:
    """The open and settled offsets of one partition.

    `mark` follows Kafka: it is the first offset *not* yet settled.
    A gap is not a hold. Compaction and transaction markers leave holes, so the
    ledger waits only for offsets it was given, never for a range it assumed.
    """

    def __init__(self, position: Position) -> None:
        self._read: deque[int] = deque()
        self._settled: set[int] = set()
        self._end = position.mark
        self._before = position.ahead
        self._done: dict[int, Done] = dict(position.done)
        self.replay = position.replay
        self._looked = (-1, -1, False)

    def read(self, record_offset: int) -> bool:
        """Take responsibility for a record; False if an earlier round has settled it already."""
        if record_offset < self._end:
            raise ValueError(f"offset {record_offset} was read twice: the ledger stands at {self._end}")
        self._end = record_offset + 1
        self._read.append(record_offset)
        if _holds(self._before, record_offset):
            self._settled.add(record_offset)
            self._shrink()
            return False
        return True

    def read_once(self, record_offset: int) -> None:
        """Take responsibility for a record, unless that was done before."""
        if record_offset >= self._end:
            self._end = record_offset + 1
            self._read.append(record_offset)

    @property
    def is_full(self) -> bool:
        """Whether what is settled beyond the mark hardly fits into a commit: nothing more should be read."""
        if len(self._read) < FEW:
            return False
        # Counting takes long where much is open, and changes little from one record to the next.
        mark = self.mark
        if mark != self._looked[0] or self._end - self._looked[1] >= FEW:
            ahead = self.position.ahead
            is_full = bool(ahead) and len(_code_ranges(ahead, mark)) > FULL_CHARACTERS
            self._looked = (mark, self._end, is_full)
        return self._looked[2]

    @property
    def remembers(self) -> bool:
        """Whether something is known of records that were not read yet, or of one that is half done."""
        return bool(self._done) or any(end > self._end for _, end in self._before)

    @property
    def has_open(self) -> bool:
        """Whether a record was read and not all before it are settled."""
        return bool(self._read)

    def settle(self, record_offset: int) -> None:
        """Nothing more will be done for this record."""
        self._settled.add(record_offset)
        self._done.pop(record_offset, None)
        self._shrink()

    def settle_through(self, end: int) -> None:
        """Everything read before `end` is settled, in order: the ordered path, once per batch."""
        self._end = max(self._end, end)
        while self._read and self._read[0] < end:
            self._settled.discard(self._read.popleft())
        if self._done:
            self._done = {offset: done for offset, done in self._done.items() if offset >= end}

    def reach(self, end: int) -> None:
        """The reader stands at `end`: what lies before and was not read is a gap."""
        self._end = max(self._end, end)

    def note_done(self, record_offset: int, done: Done) -> None:
        """Remember which sinks and children of an unsettled record already have it."""
        if done:
            self._done[record_offset] = done

    def done(self, record_offset: int) -> Done:
        """Which sinks and children of this record already have it."""
        return self._done.get(record_offset, frozenset())

    def is_settled(self, record_offset: int) -> bool:
        """Whether this offset needs no more work."""
        return record_offset < self.mark or record_offset in self._settled or _holds(self._before, record_offset)

    @property
    def mark(self) -> int:
        """Where a restart resumes without skipping open work."""
        return self._read[0] if self._read else self._end

    @property
    def position(self) -> Position:
        """What a commit should store now."""
        return self._position_after(0)

    def prefix(self, through: Container[int], most: int) -> tuple[list[int], Position]:
        """Return the open offsets that are through and have none before them that is not, and where these would lead.

        At most so many; nothing is settled by this.
        """
        found: list[int] = []
        count = 0
        for record_offset in self._read:
            if record_offset not in self._settled:
                if len(found) >= most or record_offset not in through:
                    break
                found.append(record_offset)
            count += 1
        return found, self._position_after(count)

    def _position_after(self, count: int) -> Position:
        """Where the partition stands when so many of the first that were read are settled."""
        mark = self._read[count] if count < len(self._read) else self._end
        unread = tuple((max(first, self._end), end) for first, end in self._before if end > self._end)
        done = {offset: done for offset, done in self._done.items() if offset >= mark}
        return Position(mark, _merge([*self._settled_ranges(count), *unread]), done, self.replay)

    def _settled_ranges(self, start: int) -> Iterator[tuple[int, int]]:
        """Settled stretches beyond the mark; a gap between two settled records belongs to the stretch."""
        first: int | None = None
        for record_offset in itertools.islice(self._read, start, None) if self._settled else ():
            if record_offset in self._settled:
                first = record_offset if first is None else first
            elif first is not None:
                yield first, record_offset
                first = None
        if first is not None:
            yield first, self._end

    def _shrink(self) -> None:
        while self._read and self._read[0] in self._settled:
            self._settled.remove(self._read.popleft())


def _holds(ranges: Ranges, record_offset: int) -> bool:
    return any(first <= record_offset < end for first, end in ranges)


def _merge(ranges: Iterable[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return tuple(merged)


# --- the coding -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Home:
    """Whose commit it is. The checksum covers it, so that copied metadata is never believed."""

    group: str
    topic_id: str
    partition: int
    sinks: str
    """Fingerprint of the pipeline's sinks: what is *done* is only meaningful for the same sinks."""


@dataclass(frozen=True)
class Stored:
    """What a commit said: the position, and the topic it was made for (None: not by Tidegate)."""

    position: Position
    topic_id: str | None
    is_move: bool = False
    """Whether it was committed to move the group, and nothing has been committed since."""
    left: int | None = None
    """Where the mark stood before `lost` moved it, if nothing has been stored since."""


def encode(position: Position, home: Home, *, is_move: bool = False, left: int | None = None) -> str:
    """Write a position as a commit's metadata, within METADATA_BYTES; `is_move`, `left`: as in `Stored`.

    Callers stop reading before *ahead* grows too large (`Ledger.is_full`). Should it not fit all the same (a log
    with wide gaps between many open records), its far end is left out: that repeats work and loses nothing,
    whereas the broker would refuse the whole commit. *done* is left out in the same way.
    """
    body: dict[str, object] = {"tidegate": 1, "topic": home.topic_id}
    if position.replay:
        body["replay"] = position.replay
    if is_move:
        body["moved"] = True
    if left is not None:
        body["left"] = left
    if position.finished:
        body["round"] = position.finished
    if position.planned is not None:
        body["plan"] = _code_planned(position.planned)
    ahead = position.ahead
    text = _seal(_with_ahead(body, ahead, position.mark), position.mark, home)
    while len(text) > METADATA_BYTES and ahead:
        ahead = ahead[: len(ahead) * 3 // 4]
        text = _seal(_with_ahead(body, ahead, position.mark), position.mark, home)
    body = _with_ahead(body, ahead, position.mark)
    if position.done:
        body["sinks"] = home.sinks
        body["done"] = {str(offset): _code_done(done) for offset, done in position.done.items()}
        fuller = _seal(body, position.mark, home)
        text = fuller if len(fuller) <= METADATA_BYTES else text
    return text


def decode(mark: int, metadata: str | None, home: Home) -> Stored:
    """Read a commit. Foreign or broken metadata is ignored: that repeats work and loses nothing."""
    try:
        body = orjson.loads((metadata or "").rstrip("\0"))  # the client stores a closing NUL
        if not isinstance(body, dict) or body.get("tidegate") != 1:
            return Stored(Position(mark), None)
        topic_id = body["topic"]
        written_for = Home(home.group, topic_id, home.partition, home.sinks)
        if body.pop("sum") != _checksum(body, mark, written_for):
            return Stored(Position(mark), None)
        ahead = _decode_ranges(body["ahead"], mark) if "ahead" in body else ()
        done = {int(at): _decode_done(text) for at, text in body.get("done", {}).items()}
        replay = int(body.get("replay", 0))
        planned = _decode_planned(body["plan"]) if "plan" in body else None
        finished = str(body.get("round", ""))
        left = int(body["left"]) if "left" in body else None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return Stored(Position(mark), None)
    if body.get("sinks") != home.sinks:
        done = {}
    return Stored(Position(mark, ahead, done, replay, planned, finished), topic_id, body.get("moved") is True, left)


def decode_any(group: str, partition: Partition, mark: int, metadata: str | None) -> Stored:
    """Read a commit of a pipeline that is not known. The checksum covers the topic that the commit itself names.

    Without the sinks nothing can be said of what is half done.
    """
    return decode(mark, metadata, Home(group, "", partition.number, ""))


def plan_characters(partitions: Iterable[Partition]) -> int:
    """Return how much room the names of a planned round's partitions take in each of their commits."""
    return len(orjson.dumps(_code_partitions(partitions)))


def _code_planned(planned: PlannedRound) -> dict[str, object]:
    return {"id": planned.id, "end": planned.end, "of": _code_partitions(planned.partitions)}


def _decode_planned(body: Mapping[str, Any]) -> PlannedRound:
    names = [
        Partition(topic, number)
        for topic, coded in body["of"].items()
        for first, end in _decode_ranges(coded, 0)
        for number in range(first, end)
    ]
    return PlannedRound(str(body["id"]), int(body["end"]), tuple(sorted(names)))


def _code_partitions(partitions: Iterable[Partition]) -> dict[str, str]:
    """Code the numbers of each topic's partitions as *ahead* is coded: runs or bits."""
    numbers: dict[str, list[tuple[int, int]]] = {}
    for one in sorted(partitions):
        numbers.setdefault(one.topic, []).append((one.number, one.number + 1))
    return {topic: _code_ranges(_merge(ranges), 0) for topic, ranges in numbers.items()}


def _with_ahead(body: Mapping[str, object], ahead: Ranges, mark: int) -> dict[str, object]:
    return {**body, "ahead": _code_ranges(ahead, mark)} if ahead else dict(body)


def _seal(body: Mapping[str, object], mark: int, home: Home) -> str:
    return orjson.dumps({**body, "sum": _checksum(body, mark, home)}).decode()


def _checksum(body: Mapping[str, object], mark: int, home: Home) -> str:
    covered = [home.group, home.topic_id, home.partition, mark, body]
    return hashlib.blake2b(orjson.dumps(covered, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def _code_ranges(ranges: Ranges, mark: int) -> str:
    """Code as runs (short when few stretches) or as bits (short when many): whichever is shorter."""
    runs = _varints(number for pair in _deltas(ranges, mark) for number in pair)
    span = ranges[-1][1] - mark
    if span // 8 > len(runs):
        return "r" + _text(runs)
    bits = bytearray(span // 8 + 1)
    for first, end in ranges:
        for place in range(first - mark, end - mark):
            bits[place // 8] |= 1 << (place % 8)
    return min("r" + _text(runs), "b" + _text(bytes(bits)), key=len)


def _decode_ranges(text: str, mark: int) -> Ranges:
    raw = _bytes(text[1:])
    if text[0] == "b":
        places = [place for place in range(len(raw) * 8) if raw[place // 8] >> (place % 8) & 1]
        return _merge((mark + place, mark + place + 1) for place in places)
    numbers = list(_unvarint(raw))
    ranges, at = [], mark
    for skip, length in zip(numbers[::2], numbers[1::2], strict=True):
        ranges.append((at + skip, at + skip + length))
        at += skip + length
    return tuple(ranges)


def _deltas(ranges: Ranges, mark: int) -> Iterator[tuple[int, int]]:
    at = mark
    for first, end in ranges:
        yield first - at, end - first
        at = end


def _code_done(done: Done) -> str:
    return _text(_varints(number for pair in sorted(done) for number in pair))


def _decode_done(text: str) -> Done:
    numbers = list(_unvarint(_bytes(text)))
    return frozenset(zip(numbers[::2], numbers[1::2], strict=True))


def _varints(numbers: Iterable[int]) -> bytes:
    out = bytearray()
    for number in numbers:
        rest = number
        while rest > 0x7F:
            out.append(rest & 0x7F | 0x80)
            rest >>= 7
        out.append(rest)
    return bytes(out)


def _unvarint(raw: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in raw:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
    if shift:
        raise ValueError("cut short in the middle of a number")


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
