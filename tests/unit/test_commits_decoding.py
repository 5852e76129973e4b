"""Commits as the coordinator writes them, byte by byte."""

from __future__ import annotations

import struct

import pytest

from tidegate.kafka.commits import (
    CommitKey,
    CommitSeen,
    CommitValue,
    GroupSeen,
    LayoutError,
    commits_partition,
    decode_commit,
    decode_group,
    decode_key,
    decode_value,
)
from tidegate.records import Partition

AT_MS = 1_794_783_124_278
ORDERS = Partition("orders", 7)


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def key(group: str = "billing", version: int = 1) -> bytes:
    return struct.pack(">h", version) + text(group) + text(ORDERS.topic) + struct.pack(">i", ORDERS.number)


def long_number(value: int) -> bytes:
    return struct.pack(">q", value)


TOPIC_ID = bytes([1, 0, 16]) + bytes(range(16))  # one tagged field: tag 0, 16 bytes

VALUES = [
    # bytes, leader epoch, because
    (struct.pack(">hq", 0, 42) + text("é") + long_number(AT_MS), -1, "0 is the oldest"),
    (struct.pack(">hq", 1, 42) + text("é") + long_number(AT_MS) + long_number(9), -1, "1 adds when it expires"),
    (struct.pack(">hq", 2, 42) + text("é") + long_number(AT_MS), -1, "2 takes the expiry away again"),
    (struct.pack(">hqi", 3, 42, 5) + text("é") + long_number(AT_MS), 5, "3 adds the leader epoch"),
    (struct.pack(">hqi", 4, 42, 5) + b"\x03" + "é".encode() + long_number(AT_MS) + b"\x00", 5, "4 has short lengths"),
    (struct.pack(">hqi", 4, 42, 5) + b"\x03" + "é".encode() + long_number(AT_MS) + TOPIC_ID, 5, "4 with a topic id"),
]


@pytest.mark.parametrize(("stored", "leader_epoch", "because"), VALUES, ids=[row[2] for row in VALUES])
def test_every_version_of_a_value_is_read(stored: bytes, leader_epoch: int, because: str) -> None:
    assert decode_value(stored) == CommitValue(42, leader_epoch, "é", AT_MS), because


def test_metadata_longer_than_one_length_byte_is_read_in_version_4() -> None:
    metadata = "x" * 300
    stored = struct.pack(">hqi", 4, 1, -1) + b"\xad\x02" + metadata.encode() + long_number(AT_MS) + b"\x00"

    assert decode_value(stored).metadata == metadata


@pytest.mark.parametrize("version", [0, 1])
def test_both_versions_of_a_commit_key_are_read(version: int) -> None:
    assert decode_key(key(version=version)) == CommitKey("billing", ORDERS)


@pytest.mark.parametrize("version", [2, 3, 8, 15])
def test_keys_of_members_and_assignments_are_no_commits(version: int) -> None:
    other = struct.pack(">h", version) + text("billing")

    assert decode_key(other) is None
    assert decode_commit(other, b"anything", 3) is None


def test_a_record_without_a_key_is_no_commit() -> None:
    assert decode_commit(None, b"anything", 3) is None


def test_a_commit_is_its_key_its_value_and_its_place() -> None:
    stored = VALUES[3][0]

    assert decode_commit(key(), stored, 11) == CommitSeen("billing", ORDERS, 42, "é", AT_MS, 11)


def test_a_tombstone_has_no_mark() -> None:
    assert decode_commit(key(), None, 12) == CommitSeen("billing", ORDERS, None, "", -1, 12)


def test_the_zero_byte_that_a_c_client_adds_is_taken_off() -> None:
    stored = struct.pack(">hqi", 3, 42, -1) + text("meta\0") + long_number(AT_MS)
    seen = decode_commit(key(), stored, 1)

    assert seen is not None
    assert seen.metadata == "meta"


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(LayoutError, match="version 5"):
        decode_value(struct.pack(">hq", 5, 42))


GROUP_KEY = struct.pack(">h", 2) + text("billing")
NOTHING = struct.pack(">h", -1)


def group_value(version: int, protocol_type: str = "consumer", members: int = 0, leader: bytes = NOTHING) -> bytes:
    head = struct.pack(">h", version) + text(protocol_type) + struct.pack(">i", 7)
    since = long_number(AT_MS) if version >= 2 else b""
    return head + text("range") + leader + since + struct.pack(">i", members)


def short(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


GROUPS: list[tuple[bytes | None, int | None, str]] = [
    # bytes, empty since, because
    (group_value(3), AT_MS, "the last member has left"),
    (group_value(2), AT_MS, "2 is the first that says since when"),
    (group_value(1), None, "1 does not say it"),
    (group_value(3, members=1, leader=text("me")), None, "it has a member"),
    (group_value(3, protocol_type=""), None, "nobody ever joined"),
    (
        struct.pack(">h", 4)
        + short("consumer")
        + struct.pack(">i", 7)
        + b"\x00\x00"
        + long_number(AT_MS)
        + b"\x01\x00",
        AT_MS,
        "4 has short lengths, and 0 for what is missing",
    ),
    (struct.pack(">h", 9) + b"who knows", None, "a version from the future"),
    (None, None, "the group is gone"),
]


@pytest.mark.parametrize(("stored", "since", "because"), GROUPS, ids=[row[2] for row in GROUPS])
def test_since_when_a_group_has_no_members(stored: bytes | None, since: int | None, because: str) -> None:
    assert decode_group(GROUP_KEY, stored) == GroupSeen("billing", since), because


@pytest.mark.parametrize("other", [key(), struct.pack(">h", 3) + text("billing"), None])
def test_other_records_say_nothing_about_a_group(other: bytes | None) -> None:
    assert decode_group(other, b"anything") is None


@pytest.mark.parametrize("size", range(2, 20))
def test_bytes_that_end_too_early_are_refused(size: int) -> None:
    with pytest.raises(LayoutError, match="in the middle"):
        decode_value(VALUES[3][0][:size])


@pytest.mark.parametrize(
    ("group", "java_hash"),
    # From Java's own "...".hashCode().
    [("", 0), ("a", 97), ("billing", -109829509), ("polygenelubricants", -2147483648), ("é", 233), ("😀", 1772899)],
)
def test_the_place_of_a_group_follows_javas_hash(group: str, java_hash: int) -> None:
    expected = 0 if java_hash == -(2**31) else abs(java_hash)

    assert commits_partition(group, 2**31) == expected
    assert commits_partition(group, 50) == expected % 50
