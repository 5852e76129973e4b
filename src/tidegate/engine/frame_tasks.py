"""What the tasks of a DataFrame round do inside Python workers: read a slice as Arrow, write dead letters."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tidegate.context import Message
from tidegate.copies import is_note, read_headers, record_headers
from tidegate.engine.copying import Copier, Failed
from tidegate.engine.planning import Slice
from tidegate.errors import BrokerUnreachable, TidegateError, Undecodable
from tidegate.formats.avro_columns import Column, column_of
from tidegate.headers import readable_headers
from tidegate.kafka.connection import Kafka
from tidegate.kafka.ranges import RecordsGone, Unread, forget_reader, range_reader
from tidegate.kafka.writer import worker_writer
from tidegate.logs import WorkerLog
from tidegate.records import ABSENT_MS, Failure, Partition

_NO_TIMESTAMP = 0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The calendar of Python's datetime, but for its last days: in some time zone these are outside.
_FIRST_MS = int(datetime(1, 1, 3, tzinfo=UTC).timestamp() * 1000)
_LAST_MS = int(datetime(9999, 12, 29, tzinfo=UTC).timestamp() * 1000)
MOST_BYTES = 8_000_000
"""Bytes of records in one Arrow batch, about."""
HEADERS = "array<struct<key: string, value: binary>>"
COLUMNS = (
    f"key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, headers {HEADERS}, "
    f"tidegate_size bigint, tidegate_copy {HEADERS}, tidegate_undecodable string"
)
"""What a reading task gives: the record as users see it, and what Tidegate itself needs to know of it."""


@dataclass(frozen=True)
class ReadJob:
    """All that the reading tasks of a round need."""

    kafka: bytes = field(repr=False)
    """The cluster, pickled as functions are: it may hold a callback, and it holds secrets."""
    group: str
    slices: tuple[Slice, ...]
    copies: frozenset[str]
    """Topics of the group's own: what lies there is shown as it lay at its origin."""
    log: WorkerLog
    decoder: bytes | None = None
    """An Avro decoder, pickled."""

    @property
    def key(self) -> bytes:
        """Tells readers of other clusters and groups apart."""
        return hashlib.blake2b(self.kafka).digest() + self.group.encode()


def read_slice(job_bytes: bytes, number: int) -> Iterator[Any]:
    """Read one slice to its end, as Arrow batches. It may be run again: it gives the same."""
    job: ReadJob = pickle.loads(job_bytes)  # noqa: S301  # made by our own driver, sent with this very task
    job.log.begin()
    kafka: Kafka = pickle.loads(job.kafka)  # noqa: S301  # as above
    slice_ = job.slices[number]
    decoder = None if job.decoder is None else pickle.loads(job.decoder)  # noqa: S301  # as above
    rows = Rows(slice_.partition.topic in job.copies, decoder)
    try:
        for messages in range_reader(kafka, job.group, job.key).read(slice_.partition, slice_.start, slice_.end):
            for message in messages:
                if slice_.wants(message.offset()):
                    rows.add(message)
            if rows.size > MOST_BYTES:
                yield rows.take()
    except (Unread, RecordsGone):
        forget_reader(job.key)
        raise
    if rows.count:
        yield rows.take()


class Rows:
    """Records, gathered column by column."""

    def __init__(self, are_copies: bool, decoder: Any | None) -> None:  # noqa: FBT001  # one of two kinds of topics
        self._are_copies = are_copies
        self._decoder = decoder
        self._column: Column | None = None if decoder is None else column_of(decoder.frame_schema)
        self._begin()

    def _begin(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._decoded: list[Any] = []
        self.size = 0

    @property
    def count(self) -> int:
        """How many records are waiting."""
        return len(self._rows)

    def add(self, message: Message) -> None:
        """Take one record; a note of Tidegate's own is none."""
        key, value, own = message.key(), message.value(), readable_headers(message) or None
        topic, partition, record_offset = message.topic(), message.partition(), message.offset()
        kind, milliseconds = message.timestamp()
        shown, raw = own, None
        if self._are_copies and own:
            if is_note(own):
                return
            if (copy := read_headers(own)) is not None:
                origin = copy.origin
                topic, partition, record_offset = origin.topic, origin.partition, origin.offset
                kind = _NO_TIMESTAMP if origin.timestamp_ms is None else 1
                milliseconds = origin.timestamp_ms or 0
                shown, raw = record_headers(own), own
        size = len(key or b"") + len(value or b"") + sum(len(name) + len(one or b"") for name, one in own or ())
        self.size += size
        undecodable = None
        if self._column is not None:
            decoded, undecodable = self._decode(value)
            self._decoded.append(decoded)
        # A number that no calendar has would fail the batch, and the round with it, for ever.
        is_known = kind != _NO_TIMESTAMP and milliseconds != ABSENT_MS and _FIRST_MS <= milliseconds <= _LAST_MS
        at = milliseconds * 1000 if is_known else None
        self._rows.append((key, value, topic, partition, record_offset, at, shown, size, raw, undecodable))

    def _decode(self, value: bytes | None) -> tuple[Any, str | None]:
        if self._decoder is None or self._column is None:
            return None, None
        try:
            decoded = self._decoder(value)
        except Undecodable as error:
            return None, str(error)
        return (decoded if self._column.made is None else self._column.made(decoded)), None

    def take(self) -> Any:
        """Return what is waiting as one Arrow batch."""
        import pyarrow as pa  # noqa: PLC0415  # slow to import: only in workers that read

        headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        types = [
            pa.binary(), pa.binary(), pa.string(), pa.int32(), pa.int64(), pa.timestamp("us", "UTC"),
            headers, pa.int64(), headers, pa.string(),
        ]  # fmt: skip
        names = [one.split()[0] for one in _split(COLUMNS)]
        columns: list[Sequence[Any]] = list(zip(*self._rows, strict=True))
        columns[6], columns[8] = _as_structs(columns[6]), _as_structs(columns[8])
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        if self._column is not None:
            arrays.append(pa.array(self._decoded, self._column.arrow()))
            names.append("tidegate_decoded")
        self._begin()
        return pa.record_batch(arrays, names=names)


def _split(columns: str) -> list[str]:
    """Return the columns of a DDL text: commas inside brackets part no columns."""
    parts, depth = [""], 0
    for character in columns:
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [one.strip() for one in parts]


def _as_structs(column: Iterable[Any]) -> list[Any]:
    return [None if own is None else [{"key": name, "value": one} for name, one in own] for own in column]


# --- dead letters ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class LetterJob:
    """All that the tasks need that write dead letters."""

    kafka: bytes = field(repr=False)
    group: str
    topic: str
    partitions: int
    sinks: str
    replays: Mapping[Partition, int]
    log: WorkerLog


@dataclass(frozen=True)
class RowMessage:
    """A row of a DataFrame, as the client would have given it."""

    row: Mapping[str, Any]

    def topic(self) -> str:
        """Where it was read."""
        return str(self.row["topic"])

    def partition(self) -> int:
        """Its partition's number."""
        return int(self.row["partition"])

    def offset(self) -> int:
        """Its offset."""
        return int(self.row["offset"])

    def key(self) -> bytes | None:
        """Its raw key."""
        key: bytes | None = self.row["key"]
        return key

    def value(self) -> bytes | None:
        """Its raw value."""
        value: bytes | None = self.row["value"]
        return value

    def headers(self) -> Sequence[tuple[str, bytes | None]] | None:
        """Its own headers; those of the copy, where it is one."""
        own = self.row["tidegate_copy"] or self.row["headers"]
        return None if own is None else [(one["key"], one["value"]) for one in own]

    def timestamp(self) -> tuple[int, int]:
        """As the client tells it: a kind (0: none), and milliseconds."""
        at = self.row["timestamp"]
        return (_NO_TIMESTAMP, 0) if at is None else (1, round((at - _EPOCH).total_seconds() * 1000))


def write_letters(job_bytes: bytes, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write the dead letters of these rows; return how many, when all are acknowledged."""
    job: LetterJob = pickle.loads(job_bytes)  # noqa: S301  # made by our own driver, sent with this very task
    job.log.begin()
    kafka: Kafka = pickle.loads(job.kafka)  # noqa: S301  # as above
    key = hashlib.blake2b(job.kafka).digest() + job.group.encode()
    copier = Copier(job.group, job.sinks, {job.topic: job.partitions}, lambda: worker_writer(kafka, key))
    refused: list[TidegateError] = []
    count, heard, last = 0, 0, None

    def answered(_failed: Failed, error: TidegateError | None) -> None:
        nonlocal heard
        heard += 1
        if error is not None:
            refused.append(error)

    for row in rows:
        # A record that became several bad rows is one letter. Of copies anybody may say that they are of that record.
        place = (row["topic"], row["partition"], row["offset"], row["tidegate_copy"])
        if place != last:
            copier.send(_failed(row, job), answered)
            count, last = count + 1, place
    copier.settle_all()
    if refused:
        raise refused[0]
    if heard < count:  # no answer is no acknowledgement
        raise BrokerUnreachable(f"{count - heard} dead letters were not acknowledged in time", "they are sent again")
    return count


def _failed(row: Mapping[str, Any], job: LetterJob) -> Failed:
    message = RowMessage(row)
    place = Partition(message.topic(), message.partition())
    failure = Failure(place, message.offset(), str(row["tidegate_type"]), str(row["tidegate_reason"]))
    before = read_headers(message.headers() or ()) if row["tidegate_copy"] else None
    return Failed(message, before, failure, frozenset(), job.topic, job.replays.get(place, 0))
