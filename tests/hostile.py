"""Records that nobody would write on purpose, as data."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import Producer

from tidegate.copies import Copy, Origin, write_headers
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka

EVERY_BYTE = bytes(range(256))
LARGEST = 2**63 - 1
YEAR_9999 = 253_402_300_799_000
USUAL_BYTES = 1_048_588
UNKNOWN_TIMES = (-1, LARGEST, LARGEST - 1)
"""What no calendar has."""

ANY_TIME = {"message.timestamp.after.max.ms": str(LARGEST), "retention.ms": "-1"}
"""By default a broker takes no time from the future, and throws away what is old."""
LARGER = {**ANY_TIME, "max.message.bytes": "3000000"}


@dataclass(frozen=True)
class Hostile:
    """One record, as a producer may write it."""

    name: str
    value: bytes | None = b"v"
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int = 0
    """0: the present."""


RECORDS = [
    Hostile("every byte", EVERY_BYTE, EVERY_BYTE, [("bytes", EVERY_BYTE)]),
    Hostile("nothing at all", None, None),
    Hostile("empty key and value", b"", b""),
    Hostile("a tombstone", None, b"k"),
    Hostile("one megabyte", (EVERY_BYTE * 4096)[:1_000_000]),
    Hostile("10,000 headers", headers=[(f"h{number % 5000}", b"%d" % number) for number in range(10_000)]),
    Hostile(
        "headers of all kinds", headers=[("", b""), ("n", None), ("n", b"\xff\xfe"), ("n", b""), ("\u20ac ", b"1")]
    ),
    Hostile(
        "our own names", headers=[("tidegate-id", b"x"), ("was-tidegate-topic", b"y"), ("tidegate-note", b"clock")]
    ),
    Hostile("half of a copy", headers=[("tidegate-topic", b"\xff"), ("tidegate-offset", b"-1")]),
    Hostile("markup", b"<script>alert(1)</script>\x1b[31m\r\n", b"\x1b]0;x\x07", [("<b>", b"</td>")]),
    Hostile("no time", timestamp=-1),
    Hostile("the first millisecond", timestamp=1),
    Hostile("the year 9999", timestamp=YEAR_9999),
    Hostile("beyond every calendar", timestamp=LARGEST),
    Hostile("an ordinary one", b'{"id": 1}'),
]

ELSEWHERE = Copy(Origin("orders", 3, 17, LARGEST), "billing:orders:3:17", attempt=9, redrives=99, delay="1s")
"""A copy of another group, as somebody reads its dead letters."""

NAMED = [
    *RECORDS,
    Hostile("a whole copy of another group", b"v", b"k", write_headers(ELSEWHERE, [("own", b"1")])),
    Hostile("a copy of that", headers=write_headers(ELSEWHERE, write_headers(ELSEWHERE, []))),
    Hostile("10,000 of our own names", headers=[(f"tidegate-{n % 7}", b"%d" % n) for n in range(10_000)]),
    Hostile("a megabyte of our names", headers=[("tidegate-", b"%05d" % (n * 7919 % 99_991)) for n in range(60_000)]),
    Hostile("one name twice", headers=[("tidegate-topic", b"a"), ("x", b""), ("tidegate-topic", None), ("x", b"")]),
    Hostile("almost", headers=[("tidegate-", b""), ("was-", b""), ("was-was-tidegate-", b""), ("Tidegate-", None)]),
    Hostile("odd names", headers=[(" ", b"1"), ("=\r\n", b""), ("\U0001f4a5" * 50, EVERY_BYTE), ("n" * 30_000, b"")]),
    Hostile("notes", headers=[("tidegate-note", b"redriven"), ("tidegate-redriven-from", b"0:0")]),
    Hostile("a key of many bytes", b"", EVERY_BYTE * 2000, timestamp=2),
    Hostile("a megabyte beside headers", b"\0" * 900_000, b"\xff", [("tidegate-id", EVERY_BYTE * 100)], LARGEST - 1),
]  # fmt: skip
"""Those, and others whose headers could be taken for ours."""


def write(bootstrap: str, topic: str, records: Sequence[Hostile]) -> None:
    """Write them into a topic, one batch each: a time that the broker refuses must not take others along."""
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 2_000_000})
    for one in records:
        producer.produce(topic, one.value, one.key, headers=list(one.headers), timestamp=one.timestamp)
        assert producer.flush(30) == 0


# --- dead letters of them, and how they are shown -------------------------------------------------------

COPIES = ["a whole copy of another group", "a copy of that"]
"""Those that have all headers of a copy, and pass for one where somebody else writes them into our topics."""
Content = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""Offset, key, value, headers."""


def bury(kafka: Kafka) -> str:
    """Make a group with dead letters of all of them; behind these all of them again, as somebody else may write there.

    All letters are of the first record of a topic: one id finds them all.
    """
    group = f"hostile-{uuid.uuid4().hex[:10]}"
    Admin(kafka).create_topic(f"{group}.dead", 1, LARGER)
    letters = []
    for one in NAMED:
        at = None if one.timestamp == -1 else one.timestamp or 1_700_000_000_000
        copy = Copy(Origin("orders", 0, 0, at), f"{group}:orders:0:0", 2, 1, error_type="ValueError", error_message="?")
        letters.append(replace(one, headers=write_headers(copy, one.headers)))
    write(kafka.bootstrap, f"{group}.dead", [*letters, *NAMED])
    return group


def assert_are_those_buried(shown: Sequence[Mapping[str, Any]]) -> None:
    """Compare letters as JSON shows them with those that `bury` has written."""
    count = len(NAMED)
    found, by_us = contents_of(shown), as_written(NAMED)
    by_others = [(count + at, *rest) for at, *rest in by_us]
    assert found[:count] == by_us
    assert [one[:3] for one in found[count:]] == [one[:3] for one in by_others]
    # What has all headers of a copy passes for one: then these are not shown as the record's own.
    assert [one.name for one, seen in zip(NAMED, shown[count:], strict=True) if seen["is_copy"]] == COPIES
    foreign = [at for at, seen in enumerate(shown) if at >= count and not seen["is_copy"]]
    assert [found[at] for at in foreign] == [by_others[at - count] for at in foreign]


def contents_of(shown: Iterable[Mapping[str, Any]]) -> list[Content]:
    """Return what JSON says of records."""
    return [
        (one["offset"], _raw(one["key"]), _raw(one["value"]), [(name, _raw(value)) for name, value in one["headers"]])
        for one in shown
    ]


def as_written(records: Sequence[Hostile]) -> list[Content]:
    """Return the same of records that were written."""
    return [(at, one.key, one.value, list(one.headers)) for at, one in enumerate(records)]


def _raw(shown: Any) -> bytes | None:
    """Return the bytes that JSON shows as text or as base64."""
    if isinstance(shown, dict):
        return base64.b64decode(shown["base64"])
    return None if shown is None else str(shown).encode()
