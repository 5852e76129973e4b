"""A member's partitions, read as its leader wrote them."""

from __future__ import annotations

import pytest

from tidegate.kafka.groups import assigned
from tidegate.records import Partition

TWO = b"\0\1\0\0\0\2\0\1a\0\0\0\2\0\0\0\0\0\0\0\5\0\2bb\0\0\0\1\0\0\1\0\xff\xff\xff\xff"


@pytest.mark.parametrize(
    ("raw", "partitions"),
    [
        (TWO, [Partition("a", 0), Partition("a", 5), Partition("bb", 256)]),
        (b"\0\0\0\0\0\0\0\0\0\0", []),
        (b"", []),
        (b"\0", []),
        (TWO[:-10], []),
        (b"\0\1\0\0\0\1\0\2\xff\xfe\0\0\0\0", []),
        (b"\0\1\x7f\xff\xff\xff", []),
    ],
    ids=["two topics", "none", "empty", "one byte", "cut short", "no text", "more topics than bytes"],
)
def test_what_a_leader_wrote_is_read_and_anything_else_is_nothing(raw: bytes, partitions: list[Partition]) -> None:
    assert assigned(raw) == partitions
