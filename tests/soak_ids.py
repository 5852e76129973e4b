"""Which numbers a sink took, of millions: a byte for each, and what is missing or repeated named as ranges.

A sink notes each number as four bytes at the end of a file: nothing of it stays in the memory of who is weighed.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

NUMBER_BYTES = 4
_CHUNK_BYTES = 1 << 16
_MOST = 255
_NAMED = 20

Range = tuple[int, int]
"""The first and the last number."""


@dataclass(frozen=True)
class Verdict:
    """What became of the numbers from 0 on."""

    taken: int
    """By the sink, repeats included."""
    dead: int
    missing: tuple[Range, ...]
    """Neither taken nor set aside."""
    repeated: tuple[Range, ...]
    """Taken, or set aside, more than once, or both."""
    unknown: tuple[Range, ...]
    """Never produced."""
    misjudged: tuple[Range, ...]
    """Set aside although they are good, or taken although they are not."""

    @property
    def is_clean(self) -> bool:
        return not (self.missing or self.repeated or self.unknown or self.misjudged)

    def figures(self) -> dict[str, object]:
        """The verdict for people: at most so many ranges of each kind, and how many there are."""
        found: dict[str, object] = {"taken": self.taken, "dead": self.dead}
        for name in ("missing", "repeated", "unknown", "misjudged"):
            ranges: tuple[Range, ...] = getattr(self, name)
            found[f"{name}_numbers"] = sum(last - first + 1 for first, last in ranges)
            found[f"{name}_ranges"] = named(ranges)
        return found


def judge(produced: int, taken: Iterable[int], dead: Iterable[int], bad: range) -> Verdict:
    """Count every number; those of `bad` are to be set aside."""
    counts, unknown = bytearray(produced), list[int]()
    numbers_taken = _count(counts, taken, unknown)
    letters = list(dead)
    _count(counts, letters, unknown)
    wrong = set(letters) ^ set(bad)
    return Verdict(
        numbers_taken,
        len(letters),
        _stretches(counts, rb"\x00+"),
        _stretches(counts, rb"[\x02-\xff]+"),
        as_ranges(unknown),
        # What was never produced, or is nowhere, is named as that.
        as_ranges(number for number in wrong if number < produced and counts[number]),
    )


def noted(path: Path) -> Iterator[int]:
    """Give the numbers that sinks have noted in a file, in their order; little of it is in memory at a time."""
    if not path.exists():
        return
    if path.stat().st_size % NUMBER_BYTES:
        raise ValueError(f"{path} ends within a number: was its disk full?")
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            numbers = array("I", chunk)
            if sys.byteorder == "big":
                numbers.byteswap()
            yield from numbers


def as_ranges(numbers: Iterable[int]) -> tuple[Range, ...]:
    """Join neighbours."""
    found: list[Range] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


def named(ranges: tuple[Range, ...]) -> str:
    """Return the ranges as words, the first ones where they are many."""
    words = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[:_NAMED]]
    more = [f"and {len(ranges) - _NAMED} more ranges"] if len(ranges) > _NAMED else []
    return ", ".join([*words, *more]) or "none"


def _count(counts: bytearray, numbers: Iterable[int], unknown: list[int]) -> int:
    total = 0
    for number in numbers:
        total += 1
        if number >= len(counts):
            unknown.append(number)
        elif counts[number] < _MOST:
            counts[number] += 1
    return total


def _stretches(counts: bytearray, pattern: bytes) -> tuple[Range, ...]:
    return tuple((found.start(), found.end() - 1) for found in re.finditer(pattern, counts))
