"""Trace headers of a record go on with what is made of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import tidegate as tg
from tidegate.context import Hand, collected, pass_traces, take_in_hand, trace_headers
from tidegate.copies import Copy, Origin, record_headers, write_headers
from tidegate.sinks.http import Http

PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
STATE = b"vendor=1,other=2"
Headers = tuple[tuple[str, bytes | None], ...]
TRACED: Headers = (("traceparent", PARENT), ("kind", b"order"), ("tracestate", STATE), ("baggage", b"user=ann"))


@dataclass(frozen=True)
class Message:
    """A record as the client gives it."""

    own: Headers | None

    def headers(self) -> Headers | None:
        return self.own

    def key(self) -> bytes | None:
        return b"k"

    def value(self) -> bytes | None:
        return b"v"

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7

    def timestamp(self) -> tuple[int, int]:
        return (0, 0)


@pytest.fixture
def hand() -> Iterator[Hand]:
    held = Hand("billing")
    take_in_hand(held)
    yield held
    take_in_hand(None)
    pass_traces(wanted=True)


CASES = [
    # the record's headers                     passed on                          because
    (None, {}, "a record without headers"),
    ((), {}, "an empty list of them"),
    ((("kind", b"order"),), {}, "other headers stay behind"),
    (TRACED, {"traceparent": PARENT, "tracestate": STATE, "baggage": b"user=ann"}, "the three, and no other"),
    ((("traceparent", None),), {}, "a null header says nothing"),
    ((("traceparent", b""),), {}, "nor does an empty one"),
    ((("traceparent", b"nonsense"),), {"traceparent": b"nonsense"}, "what it means is for others to judge"),
    ((("traceparent", b"a"), ("traceparent", b"b")), {"traceparent": b"b"}, "of several the last"),
]


@pytest.mark.parametrize(("own", "passed", "because"), CASES, ids=[case[2] for case in CASES])
def test_only_the_trace_headers_are_passed(hand: Hand, own: Headers | None, passed: object, because: str) -> None:
    hand.message = Message(own)
    assert trace_headers() == passed, because


def test_they_can_be_switched_off(hand: Hand) -> None:
    hand.message = Message(TRACED)
    pass_traces(wanted=False)
    assert trace_headers() == {}


def test_a_list_of_values_has_no_one_trace(hand: Hand) -> None:
    hand.message = Message(TRACED)
    hand.ids = ("billing:orders:0:7", "billing:orders:0:8")
    assert trace_headers() == {}


def test_outside_of_a_records_work_there_is_none() -> None:
    assert trace_headers() == {}


def outputs_of(hand: Hand, sink: Any) -> Headers:
    hand.message = Message(TRACED)
    hand.outputs = []
    sink(b"v")
    [made] = collected()
    return tuple(made.headers)


def test_outputs_carry_them_behind_the_users_own(hand: Hand) -> None:
    assert outputs_of(hand, tg.kafka("out")) == tuple(one for one in TRACED if one[0] != "kind")
    own = outputs_of(hand, tg.kafka("out", headers={"from": "billing", "TraceParent": "mine"}))
    assert own == (("from", b"billing"), ("TraceParent", b"mine"), ("tracestate", STATE), ("baggage", b"user=ann"))


def requests_of(hand: Hand, own: Headers, **headers: str) -> dict[str, str]:
    hand.message = Message(own)
    made = Http("http://localhost", headers=headers)._headers({"id": 1}, "key")
    return {name: value for name, value in made.items() if name not in ("Idempotency-Key", "Content-Type")}


def test_requests_carry_them_unless_the_user_sets_their_own(hand: Hand) -> None:
    assert requests_of(hand, TRACED) == {
        "traceparent": PARENT.decode(),
        "tracestate": STATE.decode(),
        "baggage": "user=ann",
    }
    assert requests_of(hand, TRACED[:1], Traceparent="mine") == {"Traceparent": "mine"}


@pytest.mark.parametrize("value", [b"a\r\nX-Evil: 1", b"\x00", b"\xff\xfe", b"x" * 5000, b" ", "ü".encode(), b"a\n"])
def test_what_no_server_would_take_stays_behind_and_fails_nothing(hand: Hand, value: bytes) -> None:
    assert requests_of(hand, (("traceparent", value), ("tracestate", STATE))) == {"tracestate": STATE.decode()}


def test_copies_keep_every_header_of_the_record() -> None:
    copy = Copy(Origin("orders", 0, 7), "billing:orders:0:7")
    written = write_headers(copy, TRACED)
    assert set(TRACED) <= set(written)
    assert record_headers(written) == TRACED


def test_a_copy_is_traced_as_its_record_was(hand: Hand) -> None:
    hand.message = Message(tuple(write_headers(Copy(Origin("orders", 0, 7), "billing:orders:0:7"), TRACED)))
    assert trace_headers() == {"traceparent": PARENT, "tracestate": STATE, "baggage": b"user=ann"}
