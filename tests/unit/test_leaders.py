"""Which partition of Kafka's own topics keeps a group: as Kafka itself counts."""

from __future__ import annotations

import pytest

from tidegate.kafka.leaders import coordinating_partition

CASES = [
    # name, partitions, partition: from Java's own "name".hashCode()
    ("", 50, 0),
    ("a", 50, 97 % 50),
    ("billing", 50, abs(-109829509) % 50),
    # The hash of this one is the lowest number there is, whose absolute value is no number of Java's.
    ("polygenelubricants", 50, 0),
    ("\U0001f600", 50, 1772899 % 50),
]


@pytest.mark.parametrize(("name", "partitions", "expected"), CASES)
def test_a_group_is_kept_where_java_hashes_its_name_to(name: str, partitions: int, expected: int) -> None:
    assert coordinating_partition(name, partitions) == expected
