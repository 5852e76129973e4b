"""Anybody may write headers of our names: what is read from them can be worked with, or is not believed."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.test_copies import FIRST, failed
from tidegate.copies import HISTORY_CHARACTERS, Copy, read_headers, record_headers, write_headers
from tidegate.engine.own_topics import MORE_BYTES
from tidegate.engine.wire import decode_outcome, encode_outcome
from tidegate.ledger import Home, decode, encode
from tidegate.records import Outcome, Partition, PartitionOutcome, Position, moment

NAMES = [name for name, _ in write_headers(failed(FIRST), [])] + ["tidegate-redriven-from", "tidegate-unknown"]
NUMBERS = [-1, 0, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**30, -(2**63), 1e30, -1e30, 0.5, 1e308]
ODD = [
    *(str(number).encode() for number in NUMBERS),
    *(b"NaN", b"Infinity", b"9" * 4300, b"9" * 5000, b"-0", b"\xff", b"\0", b"", b"null", b"{}", b"[[]]", b"[" * 2000),
    *(b"1:-1", b"-1:1", b":", b"9" * 30 + b":1", b"1e400", b"x" * 100_000, "\u0663".encode()),
    *(b"[[%s,0]]" % str(number).encode() for number in NUMBERS),
    *(b"[[0,%s]]" % str(number).encode() for number in NUMBERS),
]
PAST = {"at_ms": 1, "place": "orders[0]:1", "attempt": 1, "error_type": "E", "message": "m"}
plain = st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.text(max_size=20) | st.just("x" * 100_000)
jsons = st.recursive(plain, lambda of: st.lists(of, max_size=3) | st.dictionaries(st.text(max_size=5), of, max_size=3))
pasts = st.lists(
    st.dictionaries(st.sampled_from(sorted(PAST)), jsons, max_size=2).map(lambda odd: PAST | odd), max_size=30
)


def _written(what: object) -> bytes:
    try:
        return orjson.dumps(what)
    except TypeError:  # a number that it does not write, or half of a character
        return repr(what).encode("utf-8", "replace")


values = st.none() | st.binary(max_size=30) | st.sampled_from(ODD) | (jsons | pasts).map(_written)
changes = st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=4)


def headers_with(*odd: tuple[str, bytes | None]) -> list[tuple[str, bytes | None]]:
    """Return those of a true copy, of which some were replaced."""
    replaced = {name for name, _ in odd}
    return [*((name, one) for name, one in write_headers(failed(FIRST), []) if name not in replaced), *odd]


def use(copy: Copy) -> None:
    """Do with a copy all that is done with it: it fails again, its progress is reported and committed, it is shown."""
    at = Partition("billing.retry.1m", 0)
    again = failed(copy, done=copy.done, sinks="abc" if copy.done else "")
    written = write_headers(again, [])
    assert read_headers(written) == again
    assert orjson.dumps(again.history)
    held = sum(len(name) + len(value or b"") for name, value in written if name != "tidegate-done")
    assert held < MORE_BYTES
    position = Position(5, done={5: copy.done} if copy.done else {})
    outcome = Outcome(0, 1, (PartitionOutcome(at, 1, position),))
    assert decode_outcome(encode_outcome(outcome)) == outcome
    home = Home("billing", "id", 0, "abc")
    assert decode(5, encode(position, home), home).position.done in (position.done, {})
    assert 0 <= copy.origin.partition < 2**31
    assert 0 <= copy.origin.offset < 2**63
    moment(copy.origin.timestamp_ms)
    moment(copy.first_failed_at_ms)
    assert len(copy.stable_id.encode()) < 2700, "an index of PostgreSQL takes no more"
    assert "\0" not in copy.stable_id, "nor does any text there hold it"


@given(changes)
@example([("tidegate-history", _written([PAST | {"at_ms": 1e30}]))])
@example([("tidegate-done", b"[[-1,0]]")])
@example([("tidegate-attempt", b"9" * 4300)])
@example([("tidegate-partition", b"2147483648")])
def test_what_is_read_from_any_headers_can_be_worked_with(odd: list[tuple[str, bytes | None]]) -> None:
    headers = headers_with(*odd)
    record_headers(headers)
    copy = read_headers(headers)
    if copy is not None:
        use(copy)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("partition", b"-1"),
        ("partition", b"2147483648"),
        ("offset", b"-1"),
        ("offset", b"9223372036854775808"),
        ("timestamp", b"1" * 30),
        ("topic", b""),
        ("topic", b"no such/topic"),
        ("topic", b"x" * 250),
        ("id", b""),
        ("id", b"x" * 2000),
        ("id", b"billing:orders:0:0\0"),
        ("attempt", b"-1"),
        ("attempt", b"9" * 4300),
        ("redrives", b"-1"),
        ("replay", b"-1"),
        ("first-failed-at", b"1" * 30),
        ("redriven-from", b"0:-1"),
        ("done", b"[[-1,0]]"),
        ("done", b"[[0,1e30]]"),
        ("history", orjson.dumps([PAST | {"at_ms": 1e30}])),
        ("history", orjson.dumps([PAST | {"at_ms": -1}])),
        ("history", orjson.dumps([PAST | {"attempt": 1e30}])),
    ],
)
def test_numbers_that_no_copy_of_ours_can_hold_make_it_none(name: str, value: bytes) -> None:
    assert read_headers(headers_with((f"tidegate-{name}", value))) is None


def test_a_history_is_no_longer_than_ours_are() -> None:
    long = orjson.dumps([PAST | {"message": "x" * 5000, "error_type": "E" * 5000, "place": "p" * 5000}] * 300)
    copy = read_headers(headers_with(("tidegate-history", long)))
    assert copy is not None
    assert {len(one.message) for one in copy.history} == {HISTORY_CHARACTERS}
    use(copy)
