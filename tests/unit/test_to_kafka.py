"""Values for a topic, and pipelines that cannot keep what they promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tidegate as tg
from tidegate.context import Hand, collected, take_in_hand
from tidegate.store import Outgoing


def noted(sink: Any, value: Any) -> Outgoing:
    hand = Hand("g")
    take_in_hand(hand)
    try:
        sink(value)
        [made] = collected()
    finally:
        take_in_hand(None)
    assert isinstance(made, Outgoing)
    return made


@pytest.mark.parametrize(
    ("value", "raw"),
    [(b"raw", b"raw"), ("text", b"text"), (None, None), ({"a": 1}, b'{"a":1}'), (bytearray(b"x"), b"x"), (7, b"7")],
)
def test_a_value_goes_as_bytes_text_or_json(value: object, raw: bytes | None) -> None:
    assert noted(tg.kafka("out"), value) == Outgoing("out", raw)


def test_topic_key_and_headers_may_be_functions_of_the_value() -> None:
    sink = tg.kafka(
        lambda v: f"out-{v['kind']}",
        key=lambda v: v["id"],
        headers=lambda v: {"kind": v["kind"], "raw": b"1", "none": None},
    )
    made = noted(sink, {"id": "k", "kind": "a"})
    assert made == Outgoing("out-a", b'{"id":"k","kind":"a"}', b"k", (("kind", b"a"), ("raw", b"1"), ("none", None)))
    assert noted(tg.kafka("out", headers={"from": "here"}), b"v").headers == (("from", b"here"),)


@pytest.mark.parametrize("value", [object(), {1, 2}])
def test_what_is_no_value_of_a_record_fails_its_record(value: object) -> None:
    with pytest.raises(tg.Reject, match="neither bytes nor text nor JSON"):
        noted(tg.kafka("out"), value)


@pytest.mark.parametrize("name", ["", "a b", "x" * 250, "..", None])
def test_a_function_that_names_no_topic_fails_its_record(name: str | None) -> None:
    with pytest.raises(tg.Reject, match="is no topic's name"):
        noted(tg.kafka(lambda _: name), b"v")  # type: ignore[arg-type,return-value]  # what users may do


NONSENSE: list[tuple[Callable[[], object], str]] = [
    (lambda: tg.kafka("a b"), "is no topic's name"),
    (lambda: tg.kafka(7), "name a topic"),  # type: ignore[arg-type]  # what users may do
    (lambda: tg.kafka("out", key="id"), "pass a function"),  # type: ignore[arg-type]  # the same
    (
        lambda: tg.from_kafka("t", group="g").sink(tg.kafka("out")).batch(10).plan(),
        "leave batch",
    ),
    (
        lambda: (
            tg.from_kafka("t", group="g")
            .sink(tg.kafka("out"))
            .sink(tg.postgres("postgresql://localhost/x", table="t"))
            .plan()
        ),
        "tg.kafka and tg.postgres cannot write in one transaction",
    ),
]


@pytest.mark.parametrize(("build", "words"), NONSENSE)
def test_what_cannot_work_is_refused_while_it_is_built(build: Callable[[], object], words: str) -> None:
    with pytest.raises(tg.SettingsError, match=words):
        build()


def test_a_sink_that_is_called_by_hand_says_so() -> None:
    with pytest.raises(tg.SettingsError, match="outside of a record's work"):
        tg.kafka("out")(b"v")
