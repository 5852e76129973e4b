"""Dead letters in pages: bounded in number, in bytes and in time, and each page says where the next begins."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.errors import SettingsError
from tidegate.ops.dead_letters import DeadLetter, DeadTopic, Filter, Place
from tidegate.web.answers import Refused

if TYPE_CHECKING:
    from tidegate.ops.cluster import Cluster

MOST_LETTERS = 200
MOST_BYTES = 2 * 1024 * 1024
SCAN_SECONDS = 8.0
_HEADER_BYTES = 8
"""What a header takes beside its name and value."""

_PLACE = re.compile(r"(\d{1,9})-(\d{1,18})")


@dataclass(frozen=True, slots=True)
class LetterPage:
    """Some of a group's dead letters, partition by partition, the oldest of each first."""

    group: str
    letters: tuple[DeadLetter, ...]
    next: str | None
    """Give it as `after` for the next page, which may be empty: a search rests after seconds. None: that is all."""


def load_page(
    cluster: Cluster, group: str, chosen: Filter, after: str | None = None, most: int = MOST_LETTERS
) -> LetterPage:
    """Read one page of those that are meant."""
    first = None if after is None else _place(after)
    deadline = time.monotonic() + SCAN_SECONDS
    letters: list[DeadLetter] = []
    size = 0
    for found in DeadTopic(cluster, group).each(chosen, first):
        letter = found.letter
        taken = chosen.takes(letter)
        weight = _weight(letter)
        is_full = len(letters) == most or (letters and size + weight > MOST_BYTES)
        if (taken and is_full) or time.monotonic() > deadline:
            return LetterPage(group, tuple(letters), f"{letter.partition}-{letter.offset}")
        if taken:
            letters.append(letter)
            size += weight
    return LetterPage(group, tuple(letters), None)


def _weight(letter: DeadLetter) -> int:
    """Return about how many bytes it takes in an answer: ten thousand headers weigh something without a value, too."""
    said = (letter.error_message, letter.traceback, *(name for name, _ in letter.headers))
    held = (letter.key, letter.value, *(value for _, value in letter.headers))
    return sum(map(len, said)) + sum(len(part or b"") for part in held) + _HEADER_BYTES * len(letter.headers)


def load_letter(cluster: Cluster, group: str, place: Place) -> DeadLetter:
    """Read one letter by its place; none there is an error."""
    topic = DeadTopic(cluster, group)
    try:
        return topic.at(*place).letter
    except SettingsError as error:
        raise Refused(404, "letter_missing", error.happened, error.cure) from None


def _place(text: str) -> Place:
    found = _PLACE.fullmatch(text)
    if found is None:
        raise SettingsError("after= is not what a page gave as next", "take next of the page before, unchanged")
    return int(found[1]), int(found[2])
