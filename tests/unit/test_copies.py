"""What a copy says of its record: written and read back, whatever the bytes; names of a group's own topics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.copies import (
    HISTORY_ENTRIES,
    Copy,
    Origin,
    clock_note,
    failed_again,
    is_note,
    read_headers,
    record_headers,
    redriven_note,
    redriven_place,
    write_headers,
)
from tidegate.engine.own_topics import MORE_BYTES
from tidegate.names import dead_topic, delay_of, duration_name, is_own, redrive_topic, retry_topic

FIRST = Copy(Origin("orders", 3, 41, 1_700_000_000_000), "billing:orders:3:41")


def failed(before: Copy, **more: object) -> Copy:
    given: dict[str, object] = {
        "at_ms": 1000,
        "place": "orders[3]:41",
        "attempts": 2,
        "error_type": "ValueError",
        "message": "no good",
        "traceback": "Traceback ...",
        "delay": "1m",
        "done": frozenset({(0, 1)}),
        "sinks": "abc",
    }
    return failed_again(before, **{**given, **more})  # type: ignore[arg-type]  # a table of its arguments


names = st.sampled_from(["tidegate-id", "was-tidegate-id", "was-was-tidegate-x"]) | st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), max_size=20
)
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=20)), max_size=5)


@given(headers, st.text(max_size=50), st.text(max_size=50))
def test_a_copy_is_read_back_as_it_was_written_and_the_record_keeps_its_headers(
    own: list[tuple[str, bytes | None]], message: str, kind: str
) -> None:
    copy = failed(
        FIRST, message=message.encode("utf-8", "replace").decode(), error_type=kind.encode("utf-8", "replace").decode()
    )
    written = write_headers(copy, own)
    assert read_headers(written) == copy
    assert record_headers(written) == tuple(own)


def test_headers_of_another_groups_copy_are_kept_and_given_back() -> None:
    other = write_headers(Copy(Origin("raw", 0, 7), "cleaning:raw:0:7"), [("trace", b"1")])
    written = write_headers(FIRST, other)
    assert read_headers(written) == FIRST
    assert record_headers(written) == tuple(other)


def test_a_copy_of_a_copy_keeps_the_origin_and_tells_the_whole_way() -> None:
    second = failed(
        failed(FIRST), at_ms=2000, place="billing.retry.1m[3]:0", error_type="KeyError", delay=None, done=frozenset()
    )
    assert (second.origin, second.stable_id) == (FIRST.origin, FIRST.stable_id)
    assert (second.attempt, second.first_failed_at_ms, second.delay) == (4, 1000, None)
    assert [(one.place, one.attempt, one.error_type) for one in second.history] == [
        ("orders[3]:41", 2, "ValueError"),
        ("billing.retry.1m[3]:0", 4, "KeyError"),
    ]


def test_what_a_copy_says_stays_small() -> None:
    copy = FIRST
    for _ in range(100):
        copy = failed(copy, message="long " * 10_000, traceback="deep " * 10_000)
    assert len(copy.history) == HISTORY_ENTRIES
    assert sum(len(name) + len(value or b"") for name, value in write_headers(copy, [])) < 20_000


@pytest.mark.parametrize(
    "broken",
    [
        [],
        [("tidegate-topic", b"t")],
        [("tidegate-topic", None), ("tidegate-partition", b"0"), ("tidegate-offset", b"1"), ("tidegate-id", b"x")],
        [("tidegate-topic", b"t"), ("tidegate-partition", b"zero"), ("tidegate-offset", b"1"), ("tidegate-id", b"x")],
        [("tidegate-topic", b"\xff"), ("tidegate-partition", b"0"), ("tidegate-offset", b"1"), ("tidegate-id", b"x")],
        [*write_headers(FIRST, []), ("tidegate-history", b"[{}]")],
        [*write_headers(FIRST, []), ("tidegate-done", b"7")],
    ],
)
def test_headers_that_are_not_ours_are_not_believed(broken: list[tuple[str, bytes | None]]) -> None:
    assert read_headers(broken) is None


def test_notes_are_no_copies() -> None:
    assert is_note(clock_note())
    assert is_note(redriven_note((2, 7)))
    assert redriven_place(redriven_note((2, 7))) == (2, 7)
    assert redriven_place([("tidegate-redriven-from", b"nonsense")]) is None
    assert not is_note(write_headers(FIRST, []))


@pytest.mark.parametrize(
    ("seconds", "name"),
    [(60, "1m"), (90, "90s"), (0.5, "500ms"), (3600, "1h"), (86_400, "1d"), (0.001, "1ms"), (61, "61s")],
)
def test_a_delay_has_one_name_and_the_name_one_delay(seconds: float, name: str) -> None:
    assert duration_name(seconds) == name
    assert delay_of(retry_topic("billing", seconds), "billing") == seconds


def test_the_topics_of_a_group_are_known_by_their_names() -> None:
    assert (retry_topic("g", 60), redrive_topic("g"), dead_topic("g")) == ("g.retry.1m", "g.redrive", "g.dead")
    assert delay_of("g.redrive", "g") == 0
    assert delay_of("g.dead", "g") is None, "dead letters are not read by the pipeline"
    assert delay_of("other.retry.1m", "g") is None
    assert delay_of("a.g.retry.1m", "g") is None
    assert delay_of("orders", "g") is None
    assert all(map(is_own, ["g.retry.1m", "g.redrive", "g.dead"]))


@pytest.mark.parametrize("letter", ["\U0001f600", "\0", "x"])
def test_what_a_copy_says_fits_into_the_room_that_its_topics_have_for_it(letter: str) -> None:
    copy = FIRST
    for _ in range(HISTORY_ENTRIES + 1):
        copy = failed(copy, message=letter * 10_000, traceback=letter * 10_000, place=f"{'t' * 249}[999999]:{2**63}")
    size = sum(len(name.encode()) + len(value or b"") + 10 for name, value in write_headers(copy, []))
    assert size < MORE_BYTES
