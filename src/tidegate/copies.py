"""Pure: the headers of a copy in a retry, redrive or dead-letter topic, written and read.

Key and value of a copy are the raw bytes of the record. A copy of a copy keeps the origin. The record's own
headers stay beside ours; where it came with headers of our names (somebody reads another group's dead
letters), those are kept under `was-tidegate-...` and given back to users under their old names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import orjson

from tidegate.records import Done

PREFIX = "tidegate-"
_KEPT = "was-"
_OURS = re.compile(rf"(?:{_KEPT})*{PREFIX}")
"""Names of ours, and those that were kept from a copy before."""
MESSAGE_CHARACTERS = 2000
TRACEBACK_CHARACTERS = 4000
HISTORY_ENTRIES = 20
HISTORY_CHARACTERS = 200
PLACE_CHARACTERS = 300
ID_BYTES = 1000
"""More than the names of a group and a topic can come to; an index of PostgreSQL takes 2,700."""
MOST = 2**31 - 1
"""What a partition, a child, a sink, and a count may come to."""
_LARGEST = 2**63 - 1

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record was read first."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """One entry of a record's history: a pass through the pipeline that failed."""

    at_ms: int
    place: str
    attempt: int
    error_type: str
    message: str


@dataclass(frozen=True, slots=True)
class Copy:
    """What a copy's headers say."""

    origin: Origin
    stable_id: str
    attempt: int = 0
    """Attempts made so far, all passes together."""
    first_failed_at_ms: int = 0
    delay: str | None = None
    """The delay of the retry topic that it was written to; None in the dead letters and for a redrive."""
    error_type: str = ""
    error_message: str = ""
    traceback: str = ""
    done: Done = frozenset()
    """Children and sinks that have the record already."""
    sinks: str = ""
    """The fingerprint of the sinks that `done` speaks of."""
    redrives: int = 0
    replay: int = 0
    redriven_from: tuple[int, int] | None = None
    """Partition and offset of the dead letter that this redriven copy was made from."""
    history: tuple[Past, ...] = field(default=())


def failed_again(  # noqa: PLR0913  # one failure has this many sides
    before: Copy,
    *,
    at_ms: int,
    place: str,
    attempts: int,
    error_type: str,
    message: str,
    traceback: str,
    delay: str | None,
    done: Done,
    sinks: str,
) -> Copy:
    """Return the next copy of a record that failed, with one more entry in its history."""
    attempt = min(before.attempt + attempts, MOST)
    past = _short(Past(at_ms, place, attempt, error_type, message))
    return replace(
        before,
        attempt=attempt,
        first_failed_at_ms=before.first_failed_at_ms or at_ms,
        delay=delay,
        error_type=error_type,
        error_message=message[:MESSAGE_CHARACTERS],
        traceback=traceback[-TRACEBACK_CHARACTERS:],
        done=done,
        sinks=sinks,
        history=(*before.history, past)[-HISTORY_ENTRIES:],
    )


def write_headers(copy: Copy, record_headers: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """Return a copy's headers: those of the record, and ours."""
    ours: dict[str, object | None] = {
        "topic": copy.origin.topic,
        "partition": copy.origin.partition,
        "offset": copy.origin.offset,
        "timestamp": copy.origin.timestamp_ms,
        "id": copy.stable_id,
        "attempt": copy.attempt,
        "first-failed-at": copy.first_failed_at_ms,
        "delay": copy.delay,
        "error-type": copy.error_type,
        "error-message": copy.error_message,
        "traceback": copy.traceback or None,
        "done": orjson.dumps(sorted(copy.done)).decode() if copy.done else None,
        "sinks": copy.sinks if copy.done else None,
        "redrives": copy.redrives,
        "replay": copy.replay,
        "redriven-from": None if copy.redriven_from is None else f"{copy.redriven_from[0]}:{copy.redriven_from[1]}",
        "history": orjson.dumps(copy.history).decode() if copy.history else None,
    }
    kept = [(_KEPT + name if _OURS.match(name) else name, value) for name, value in record_headers]
    return [*kept, *((PREFIX + name, str(value).encode()) for name, value in ours.items() if value is not None)]


def record_headers(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """Return the record's own headers from those of its copy."""
    return tuple(
        (name.removeprefix(_KEPT) if _OURS.match(name) else name, value)
        for name, value in headers
        if not name.startswith(PREFIX)
    )


def read_headers(headers: Iterable[tuple[str, bytes | None]]) -> Copy | None:
    """Return what a copy's headers say; None for a record that is no copy of ours.

    Anybody may write headers of our names. What no copy of ours can hold would end rounds, or the run, later on:
    where it is written again, reported, committed, or put into a column.
    """
    try:
        copy = _read(headers)
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError):
        return None
    return copy if _is_believable(copy) else None


def _read(headers: Iterable[tuple[str, bytes | None]]) -> Copy:
    found = {name.removeprefix(PREFIX): value for name, value in headers if name.startswith(PREFIX)}
    text = {name: value.decode() for name, value in found.items() if value is not None}
    timestamp = text.get("timestamp")
    return Copy(
        origin=Origin(
            text["topic"],
            int(text["partition"]),
            int(text["offset"]),
            None if timestamp is None else int(timestamp),
        ),
        stable_id=text["id"],
        attempt=int(text.get("attempt", "0")),
        first_failed_at_ms=int(text.get("first-failed-at", "0")),
        delay=text.get("delay"),
        error_type=text.get("error-type", ""),
        error_message=text.get("error-message", ""),
        traceback=text.get("traceback", ""),
        done=_done(text.get("done", "[]")),
        sinks=text.get("sinks", ""),
        redrives=int(text.get("redrives", "0")),
        replay=int(text.get("replay", "0")),
        redriven_from=_place(text.get("redriven-from")),
        history=_history(text.get("history", "[]")),
    )


_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def _is_believable(copy: Copy) -> bool:
    """Whether a copy of ours can say so."""
    origin, pairs = copy.origin, (*copy.done, *(() if copy.redriven_from is None else (copy.redriven_from,)))
    small = (origin.partition, copy.attempt, copy.redrives, *(one.attempt for one in copy.history))
    large = (origin.offset, copy.first_failed_at_ms, copy.replay, *(one.at_ms for one in copy.history))
    return (
        _TOPIC.fullmatch(origin.topic) is not None
        and 0 < len(copy.stable_id.encode()) <= ID_BYTES
        and "\0" not in copy.stable_id  # no text in PostgreSQL may hold it
        and -_LARGEST - 1 <= (origin.timestamp_ms or 0) <= _LARGEST  # whatever a producer wrote
        and all(0 <= number <= MOST for number in small)
        and all(0 <= number <= _LARGEST for number in large)
        and all(0 <= first <= MOST and 0 <= second <= _LARGEST for first, second in pairs)
    )


# --- notes: records in the redrive topic that are none -----------------------------------------------

_NOTE = PREFIX + "note"
_CLOCK = b"clock"
_REDRIVEN = b"redriven"


def clock_note() -> list[tuple[str, bytes | None]]:
    """Return the headers of a record that only asks the broker for its time."""
    return [(_NOTE, _CLOCK)]


def redriven_note(place: tuple[int, int]) -> list[tuple[str, bytes | None]]:
    """Return the headers of a record that says: this dead letter was sent elsewhere."""
    return [(_NOTE, _REDRIVEN), (PREFIX + "redriven-from", f"{place[0]}:{place[1]}".encode())]


def is_note(headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """Whether a record of a redrive topic is no copy but a note: nothing is to be done for it."""
    return any(name == _NOTE for name, _ in headers)


def redriven_place(headers: Iterable[tuple[str, bytes | None]]) -> tuple[int, int] | None:
    """Return which dead letter a record of a redrive topic speaks of, by partition and offset."""
    for name, value in headers:
        if name == PREFIX + "redriven-from" and value is not None:
            try:
                return _place(value.decode())
            except ValueError:
                return None
    return None


def _place(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    number, _, record_offset = text.partition(":")
    return int(number), int(record_offset)


def _done(text: str) -> Done:
    return frozenset((int(child), int(sink)) for child, sink in orjson.loads(text))


def _history(text: str) -> tuple[Past, ...]:
    found = [
        Past(int(one["at_ms"]), str(one["place"]), int(one["attempt"]), str(one["error_type"]), str(one["message"]))
        for one in orjson.loads(text)
    ]
    return tuple(map(_short, found[-HISTORY_ENTRIES:]))


def _short(past: Past) -> Past:
    return replace(
        past,
        place=past.place[:PLACE_CHARACTERS],
        error_type=past.error_type[:HISTORY_CHARACTERS],
        message=past.message[:HISTORY_CHARACTERS],
    )
