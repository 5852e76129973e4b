"""Dead letters: which are meant, which way each goes, what a redriven copy says, and how they are paced and shown."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidegate.cli.common import show_json, shown
from tidegate.copies import Copy, Origin, Past, read_headers, record_headers, redriven_place, write_headers
from tidegate.errors import SettingsError
from tidegate.ops.dead_letters import DeadLetter, Filter, FoundLetter, make_filter
from tidegate.ops.redrive import verdict
from tidegate.ops.redrive_writer import Pace, headers_back, headers_elsewhere

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
LETTER = DeadLetter(
    group="billing",
    partition=2,
    offset=41,
    written_at=NOON,
    is_copy=True,
    was_redriven=False,
    stable_id="billing:orders:3:1234",
    origin_topic="orders",
    origin_partition=3,
    origin_offset=1234,
    origin_timestamp=NOON,
    error_type="requests.exceptions.ConnectTimeout",
    error_message="No answer from the ERP",
    traceback="",
    attempt=4,
    redrives=1,
    first_failed_at=NOON,
    history=(),
    key=b"k",
    value=b"v",
    headers=(),
)
STRANGER = replace(
    LETTER, is_copy=False, stable_id=None, origin_topic=None, error_type="", error_message="", redrives=0
)

FILTERS: list[tuple[dict[str, Any], bool, str]] = [
    ({}, True, "no filter takes all"),
    ({"origin": "orders"}, True, "its topic"),
    ({"origin": "order"}, False, "a topic's name is meant as a whole"),
    ({"error": "requests.exceptions.ConnectTimeout"}, True, "the type with its module"),
    ({"error": "ConnectTimeout"}, True, "the type alone"),
    ({"error": "Timeout"}, False, "a part of a type's name is no type, and not in the message"),
    ({"error": "answer from the erp"}, True, "a part of the message, in small letters too"),
    ({"error": ""}, True, "an empty text says nothing"),
    ({"since": NOON}, True, "since is included"),
    ({"since": NOON + timedelta(milliseconds=1)}, False, "before since"),
    ({"until": NOON}, False, "until is not included"),
    ({"until": NOON + timedelta(milliseconds=1)}, True, "before until"),
    ({"since": "2026-01-31T12:00", "until": "2026-01-31T14:00+01:00"}, True, "texts, with a zone and without"),
    ({"key": "k"}, True, "the key as text"),
    ({"key": b"k"}, True, "the key as bytes"),
    ({"key": ""}, False, "an empty key is another key"),
    ({"key": "k", "origin": "refunds"}, False, "all must hold"),
]


@pytest.mark.parametrize(("words", "expected", "because"), FILTERS, ids=[row[2] for row in FILTERS])
def test_a_filter_takes_what_is_meant(words: dict[str, Any], expected: bool, because: str) -> None:
    assert make_filter(**words).takes(LETTER) is expected, because


def test_a_duration_means_so_long_ago() -> None:
    since = make_filter(since="2h").since
    assert since is not None
    assert timedelta(hours=2) <= datetime.now(UTC) - since < timedelta(hours=2, minutes=1)


def test_a_letter_without_a_time_or_an_origin_is_in_no_filter_for_these() -> None:
    assert not Filter(since=NOON).takes(replace(LETTER, written_at=None))
    assert not Filter(until=NOON).takes(replace(LETTER, written_at=None))
    assert not Filter(origin="orders").takes(STRANGER)
    assert not Filter(error="x").takes(STRANGER)
    assert Filter(key=b"k").takes(STRANGER)


NO_FILTERS: list[tuple[dict[str, Any], str]] = [
    ({"since": "yesterday"}, "since='yesterday' is no time; write a time like"),
    ({"until": "5"}, "until='5' is no time"),
    ({"since": "99999999999999d"}, "is no time"),
    ({"since": datetime(2026, 1, 31)}, "since has no time zone"),  # noqa: DTZ001  # this is what it is about
    ({"since": "2026-02-01", "until": "2026-01-31"}, "is not before"),
]


@pytest.mark.parametrize(("words", "sentence"), NO_FILTERS, ids=[row[1] for row in NO_FILTERS])
def test_what_is_no_filter_is_refused_with_the_cure(words: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        make_filter(**words)


WAYS: list[tuple[DeadLetter, bool, int, str, str]] = [
    # letter                                            again  most  way
    (LETTER, False, 3, "send", "redriven once before, three times are allowed"),
    (LETTER, False, 1, "held_back", "the loop guard: it came back once"),
    (replace(LETTER, redrives=3), False, 3, "held_back", "as often as allowed is enough"),
    (replace(LETTER, redrives=2), False, 3, "send", "once less"),
    (replace(LETTER, was_redriven=True), False, 3, "already_redriven", "it is on its way or settled"),
    (replace(LETTER, was_redriven=True), True, 3, "send", "asked for again"),
    (replace(LETTER, was_redriven=True, redrives=3), False, 3, "already_redriven", "nothing is held that is gone"),
    (replace(LETTER, was_redriven=True, redrives=3), True, 3, "held_back", "again does not lift the guard"),
    (STRANGER, True, 3, "foreign", "nobody knows where it would have to go"),
]


@pytest.mark.parametrize(("letter", "again", "most", "way", "because"), WAYS, ids=[row[4] for row in WAYS])
def test_each_letter_goes_one_way(letter: DeadLetter, again: bool, most: int, way: str, because: str) -> None:
    assert verdict(letter, again=again, most_redrives=most) == way, because


COPY = Copy(
    origin=Origin("orders", 3, 1234, 99),
    stable_id="billing:orders:3:1234",
    attempt=4,
    first_failed_at_ms=100,
    delay="1m",
    error_type="ValueError",
    error_message="no amount",
    traceback="Traceback ...",
    done=frozenset({(0, 1)}),
    sinks="abc",
    redrives=1,
    replay=2,
    redriven_from=(0, 7),
    history=(Past(100, "orders[3] offset 1234", 4, "ValueError", "no amount"),),
)
OWN = (("trace", b"1"), ("trace", None), ("tidegate-id", b"of another group"))


def found() -> FoundLetter:
    raw = tuple(write_headers(COPY, OWN))
    return FoundLetter(replace(LETTER, headers=record_headers(raw)), COPY, raw)


def test_a_redriven_copy_walks_the_row_from_its_start_and_keeps_its_past() -> None:
    headers = headers_back(found(), 1)

    assert read_headers(headers) == replace(
        COPY, attempt=0, delay=None, traceback="", redrives=2, redriven_from=(2, 41)
    )
    assert redriven_place(headers) == (2, 41)
    assert record_headers(headers) == OWN


def test_in_another_topic_only_the_id_and_the_redrives_are_ours() -> None:
    headers = headers_elsewhere(found())

    assert headers == [
        ("trace", b"1"),
        ("trace", None),
        ("was-tidegate-id", b"of another group"),
        ("tidegate-id", b"billing:orders:3:1234"),
        ("tidegate-redrives", b"2"),
    ]
    assert read_headers(headers) is None


def goings(pace: Pace, until: float, busy: dict[int, float] | None = None) -> list[float]:
    """Return when each goes, of a sender that never waits longer than it must; `busy`: a stall before a number."""
    now = 0.0
    times: list[float] = []
    while True:
        now = max(now, now + pace.wait(now)) + (busy or {}).get(len(times), 0.0)
        if now >= until:
            return times
        pace.went(now)
        times.append(now)


def test_a_rate_is_even_within_the_second() -> None:
    times = goings(Pace(100), until=1.0)

    assert len(times) == 100
    assert {round(later - one, 6) for one, later in itertools.pairwise(times)} == {0.01}


def test_a_stall_is_not_made_up_for_by_a_burst() -> None:
    times = goings(Pace(100), until=3.0, busy={10: 1.0})
    most_in_a_tenth = max(sum(start <= other < start + 0.1 for other in times) for start in times)

    assert most_in_a_tenth <= 16, "ten of its own, and a twentieth of a second's worth"


def test_no_rate_never_waits() -> None:
    pace = Pace(None)
    pace.went(5.0)

    assert pace.wait(5.0) <= 0


SHOWN: list[tuple[bytes | str | None, str]] = [
    (None, "null"),
    (b"", ""),
    (b'{"id": 1}', '{"id": 1}'),
    ("é😀".encode(), "é😀"),
    (b"\x1b[31mred\x07\r\n", "\\x1b[31mred\\x07\\r\\n"),
    ("\u202eevil\u200b".encode(), "\\u202eevil\\u200b"),
    (b"\x00\xff", "<2 bytes: 00ff>"),
    (b"\xff", "<1 byte: ff>"),
    (b"text\x00", "<5 bytes: 7465787400>"),
    (b"\xff" * 17, "<17 bytes: ffffffffffffffffffffffffffffffff...>"),
]


@pytest.mark.parametrize(("content", "expected"), SHOWN, ids=[row[1] for row in SHOWN])
def test_content_is_shown_in_one_line_that_disturbs_no_terminal(content: bytes | str | None, expected: str) -> None:
    assert shown(content) == expected


def test_long_content_is_cut() -> None:
    assert shown("a" * 20, 12) == "a" * 11 + "…"
    assert shown("a" * 12, 12) == "a" * 12
    assert shown(b"\xff" * 20, 12) == "<20 bytes>"


def test_json_is_escaped_where_it_is_not_printable_and_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    text = "\x1b[2J \x7f \x9b \u202e \U000e0001 \u2028 é😀"
    show_json({"error": text})
    line = capsys.readouterr().out

    assert line.removesuffix("\n").isprintable()
    assert json.loads(line) == {"error": text}
