"""Dead letters that nobody would write on purpose hold up neither an answer nor a page."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from nicegui import Client, ui
from nicegui.page import page

from tidegate.copies import Headers
from tidegate.ops.dead_letters import DeadLetter, Place, make_filter
from tidegate.web import letters
from tidegate.web.letters import MOST_BYTES, load_page
from tidegate.web.pages import words
from tidegate.web.pages.letter import _MOST_HEADERS, LetterPage

AT = datetime(2026, 11, 16, 8, 30, 5, tzinfo=UTC)
MANY: Headers = tuple((f"h{number}", None) for number in range(10_000))


def letter(record_offset: int = 0, headers: Headers = (), key: bytes | None = None, traceback: str = "") -> DeadLetter:
    return DeadLetter(
        group="g", partition=0, offset=record_offset, written_at=AT, is_copy=True, was_redriven=False,
        stable_id="g:t:0:0", origin_topic="t", origin_partition=0, origin_offset=0, origin_timestamp=None,
        error_type="E", error_message="m", traceback=traceback, attempt=1, redrives=0, first_failed_at=AT, history=(),
        key=key, value=b"v", headers=headers,
    )  # fmt: skip


def count_on_page(monkeypatch: pytest.MonkeyPatch, one: DeadLetter, most: int = 200) -> tuple[int, str | None]:
    """Ask for a page of dead letters that are all like this one."""

    class Topic:
        def __init__(self, *_: object) -> None: ...

        def each(self, _: object, first: Place | None) -> Iterator[Any]:
            assert first is None
            return (SimpleNamespace(letter=letter(at, one.headers, one.key, one.traceback)) for at in range(1000))

    monkeypatch.setattr(letters, "DeadTopic", Topic)
    found = load_page(None, "g", make_filter(), most=most)  # type: ignore[arg-type]  # nobody asks it
    return len(found.letters), found.next


@pytest.mark.parametrize(
    ("one", "bytes_each"),
    [
        (letter(headers=MANY), 100_000),
        (letter(headers=(("x" * 1_000_000, b""),)), 1_000_000),
        (letter(key=b"k" * 1_000_000), 1_000_000),
        (letter(traceback="t" * 100_000), 100_000),
    ],
    ids=["headers without values", "a name of a megabyte", "a key of a megabyte", "a long traceback"],
)
def test_a_page_ends_where_its_letters_are_heavy_whatever_of_them_is(
    monkeypatch: pytest.MonkeyPatch, one: DeadLetter, bytes_each: int
) -> None:
    count, following = count_on_page(monkeypatch, one)
    assert 1 <= count <= MOST_BYTES // bytes_each
    assert following == f"0-{count}"


def test_a_page_of_light_letters_ends_where_there_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    assert count_on_page(monkeypatch, letter(), most=20) == (20, "0-20")


def labels_of(one: DeadLetter) -> list[str]:
    """What the page of a letter says."""

    async def show() -> list[str]:
        with Client(page("")) as client:
            visitor: Any = SimpleNamespace(_visit=SimpleNamespace(may_change=False))
            LetterPage._show(visitor, one)
        return [made.text for made in client.elements.values() if isinstance(made, ui.label)]

    return asyncio.run(show())


def test_of_many_headers_the_page_shows_the_first_and_how_many_there_are_more() -> None:
    said = labels_of(letter(headers=MANY))
    assert f"h{_MOST_HEADERS - 1}" in said
    assert f"h{_MOST_HEADERS}" not in said
    assert f"{10_000 - _MOST_HEADERS} headers more: tidegate dead show --json prints all of it." in said
    assert not any("more:" in one for one in labels_of(letter(headers=MANY[:_MOST_HEADERS])))


def test_a_key_or_a_header_of_a_megabyte_is_cut_on_the_page() -> None:
    headers: Headers = (("n" * 1_000_000, b"v" * 1_000_000),)
    assert max(map(len, labels_of(letter(headers=headers, key=b"k" * 1_000_000)))) < 2000


def test_what_is_brief_stays_as_it_is() -> None:
    assert words.brief("x" * 1000) == "x" * 1000
    assert words.brief("x" * 1001) == "x" * 1000 + " …"
