"""What users write is checked when it is built, in one sentence with the cure."""

from __future__ import annotations

import functools
import re
from collections.abc import AsyncIterator, Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

import tidegate as tg


def source() -> tg.Pipeline:
    return tg.from_kafka("orders", group="billing")


async def an_async_function(value: object) -> object:
    return value


REFUSED: list[tuple[str, Callable[[], Any], str]] = [
    ("no topic", lambda: tg.from_kafka([], group="g"), "no topic"),
    ("an empty topic", lambda: tg.from_kafka("", group="g"), "no topic"),
    ("a topic twice", lambda: tg.from_kafka(["a", "a"], group="g"), "twice"),
    ("no group", lambda: tg.from_kafka("a", group=""), "no group"),
    ("unknown starting", lambda: tg.from_kafka("a", group="g", starting="newest"), "earliest, latest, none"),  # type: ignore[arg-type]
    ("unknown lost", lambda: tg.from_kafka("a", group="g", lost="skip"), "stop, earliest, latest"),  # type: ignore[arg-type]
    ("a pattern as text", lambda: tg.from_kafka("^orders-.*", group="g"), r"re\.compile\(r'orders-\.\*'\)"),
    ("a pattern of bytes", lambda: tg.from_kafka(re.compile(rb"a"), group="g"), "bytes"),  # type: ignore[arg-type]
    ("at without a partition", lambda: tg.at({"a": {}}), "no partition"),
    ("at without a topic", lambda: tg.at({"": {0: 1}}), "no partition"),
    ("at an unknown word", lambda: tg.at({"a": {0: "start"}}), "'start'"),  # type: ignore[dict-item]
    ("at a negative offset", lambda: tg.at({"a": {0: -1}}), "-1"),
    ("at a partition that is no number", lambda: tg.at({"a": {"0": 1}}), "no partition"),  # type: ignore[dict-item]
    ("from_table with an unknown word", lambda: tg.from_table(otherwise="end"), '"earliest" or "latest"'),  # type: ignore[arg-type]
    ("from_table without a name", lambda: tg.from_table(""), "no name"),
    (
        "two that say where to start",
        lambda: tg.from_kafka(tg.at({"a": {0: 1}}), group="g", starting=tg.from_table()),
        "both say",
    ),
    ("a step that is no function", lambda: source().map(42), "not callable"),  # type: ignore[arg-type]
    ("no record at a time", lambda: source().parallel(0), "1 to"),
    ("parallel twice", lambda: source().parallel(2).parallel(3), "twice"),
    ("a step after a sink", lambda: source().sink(print).map(str), "before the first sink"),
    ("a setting twice", lambda: source().lanes(2).lanes(3), "twice"),
    ("zero lanes", lambda: source().lanes(0), "lanes=0"),
    ("zero records", lambda: source().commit_every("5s", records=0), "commit_records=0"),
    ("a bad duration", lambda: source().commit_every("5 minutes"), "duration"),
    ("no sink", lambda: source().map(str).plan(), "no sink"),
    ("auto-commit", lambda: tg.Kafka("h:1", {"enable.auto.commit": True}), "auto-commit"),
    ("rounds longer than the budget", lambda: source().parallel(timeout="10m").resolved(), "stop_budget"),
]


@pytest.mark.parametrize(("what", "build", "words"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_cannot_work_is_refused_with_its_cure(what: str, build: Callable[[], Any], words: str) -> None:
    with pytest.raises(tg.SettingsError, match=words) as caught:
        build()
    assert caught.value.cure, what


def test_a_pipeline_is_immutable() -> None:
    begin = source()
    begin.map(str).sink(print)
    assert begin.steps == ()
    assert begin.sinks == ()


def test_settings_of_the_pipeline_outrank_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_COMMIT_EVERY", "2s")
    assert source().resolved().values.commit_every == 2
    chosen = source().commit_every("3s", records=7).resolved()
    assert (chosen.values.commit_every, chosen.values.commit_records) == (3, 7)
    assert chosen.sources["commit_every"] == "argument"


def test_current_outside_of_a_record_says_where_it_works() -> None:
    with pytest.raises(tg.SettingsError, match="inside a function"):
        tg.current()


def test_a_resource_is_made_once_and_closed_once() -> None:
    from tidegate.context import close_resources  # noqa: PLC0415  # not public

    made: list[int] = []
    closed: list[object] = []

    def make() -> object:
        made.append(1)
        return object()

    pool = tg.resource(make, close=closed.append)
    assert pool.get() is pool.get()
    close_resources()
    close_resources()
    assert (len(made), len(closed)) == (1, 1)


def test_the_one_door_exposes_exactly_what_it_names() -> None:
    public = {
        name
        for name, value in vars(tg).items()
        if not name.startswith("_") and not isinstance(value, ModuleType) and name != "annotations"
    }
    assert public == set(tg.__all__)


@pytest.mark.parametrize(("decode", "raw", "value"), [(tg.json, b'{"a":1}', {"a": 1}), (tg.text, "ö".encode(), "ö")])
def test_decoders_decode_and_pass_null_through(decode: Callable[[Any], Any], raw: bytes, value: object) -> None:
    assert decode(raw) == value
    assert decode(None) is None


async def streams(_value: object) -> AsyncIterator[object]:
    yield _value


class Streams:
    def __call__(self, value: object) -> Iterator[object]:
        yield value


@pytest.mark.parametrize("sink", [streams, Streams(), functools.partial(streams)], ids=["async", "object", "partial"])
def test_a_sink_that_would_only_be_made_and_never_run_is_refused_in_every_shape(sink: Callable[..., object]) -> None:
    with pytest.raises(tg.SettingsError, match="has a yield, so calling it does nothing"):
        tg.from_kafka("t", group="g").sink(sink)
