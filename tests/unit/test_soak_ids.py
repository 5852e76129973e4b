"""How a long run is judged: every number once, and what is not so is named."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from tests.soak_ids import NUMBER_BYTES, Verdict, as_ranges, judge, named, noted

BAD = range(9, 100, 10)
GOOD = [number for number in range(100) if number not in BAD]


def told(taken: list[int], dead: list[int] | None = None) -> Verdict:
    return judge(100, taken, BAD if dead is None else dead, BAD)


def test_every_number_once_in_any_order_is_clean() -> None:
    found = told(GOOD[::-1])
    assert found.is_clean
    assert (found.taken, found.dead) == (90, 10)


CASES: dict[str, tuple[Verdict, dict[str, str]]] = {
    "some are missing": (told([one for one in GOOD if one not in (0, 21, 22, 23)]), {"missing": "0, 21-23"}),
    "the last are missing": (told(GOOD[:-1]), {"missing": "98"}),
    "some came twice": (told([*GOOD, 40, 41, 41, 98]), {"repeated": "40-41, 98"}),
    "as many are missing as came twice": (
        told([*(one for one in GOOD if one != 5), 6]),
        {"missing": "5", "repeated": "6"},
    ),
    "one came a thousand times": (told([*GOOD, *[7] * 999]), {"repeated": "7"}),
    "a letter is there twice": (told(GOOD, [*BAD, 19]), {"repeated": "19"}),
    "a letter is missing": (told(GOOD, [one for one in BAD if one != 19]), {"missing": "19"}),
    "a good one was set aside": (
        told([one for one in GOOD if one != 3], [*BAD, 3]),
        {"misjudged": "3"},
    ),
    "a bad one was taken": (told([*GOOD, 9], [one for one in BAD if one != 9]), {"misjudged": "9"}),
    "a good one was set aside and taken": (told(GOOD, [*BAD, 3]), {"repeated": "3", "misjudged": "3"}),
    "nobody wrote it": (told([*GOOD, 100, 4_000_000_000]), {"unknown": "100, 4000000000"}),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_so_is_named(case: str) -> None:
    found, expected = CASES[case]
    kinds = ("missing", "repeated", "unknown", "misjudged")
    figures = found.figures()
    assert {kind: figures[f"{kind}_ranges"] for kind in kinds} == {kind: expected.get(kind, "none") for kind in kinds}
    assert not found.is_clean


def test_numbers_come_back_from_the_file_as_sinks_note_them(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    assert list(noted(path)) == []
    numbers = [0, 1, 70_000, 2**32 - 1] * 100_000
    path.write_bytes(b"".join(one.to_bytes(NUMBER_BYTES, "little") for one in numbers))
    assert list(noted(path)) == numbers

    path.write_bytes(b"\0" * 6)
    with pytest.raises(ValueError, match="ends within a number"):
        list(noted(path))


def test_a_million_numbers_need_a_byte_each(tmp_path: Path) -> None:
    count = 1_000_000
    path = tmp_path / "numbers"
    path.write_bytes(b"".join(one.to_bytes(NUMBER_BYTES, "little") for one in range(count) if one != 765_432))
    tracemalloc.start()
    found = judge(count, noted(path), (), range(0))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.missing == ((765_432, 765_432),)
    assert most < 2 * count, f"{most / 1e6:.1f} MB"


def test_many_ranges_are_cut_short() -> None:
    assert named(as_ranges(range(0, 60, 2))).endswith("36, 38, and 10 more ranges")
