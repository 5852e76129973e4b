"""Consumer groups and their members, as plain frozen data.

They are asked for by the client's older call. Its newer one asks each group's coordinator, and ends the whole process
where a broker goes and comes back meanwhile (librdkafka #4605, #5397): at the second restart when that was tried,
whereas the older one was asked eighty thousand times over eight of them.
"""

from __future__ import annotations

import re
import struct
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.records import Partition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ConsumerGroupDescription  # type: ignore[attr-defined]  # not marked as exported

Listed = Any
"""The client's own object, whose fields it declares to be None."""

_STATES = {"PreparingRebalance": "preparing_rebalancing", "CompletingRebalance": "completing_rebalancing"}
_ITS_AGE = re.compile(r"list_groups\(\) is deprecated", re.IGNORECASE)
_ID_CHARACTERS = 37
"""A dash and a random id end every member's name."""


def ask_for_groups(client: AdminClient, group: str | None, timeout: float) -> list[Listed]:
    """Ask by the older call; without a name: for all groups."""
    # It warns of its age. Where somebody has put other filters before ours since (pytest does, for every test) and
    # makes warnings errors, the client would raise an ImportError; where nobody has, a change would only make Python
    # forget which warnings it has shown.
    if not warnings.filters or tuple(warnings.filters[0][:3]) != ("ignore", _ITS_AGE, DeprecationWarning):
        warnings.filterwarnings("ignore", message=_ITS_AGE.pattern, category=DeprecationWarning)
    return list(client.list_groups(*([] if group is None else [group]), timeout=timeout))


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One process of a group."""

    member_id: str
    client_id: str
    host: str
    instance: str | None
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group's state (`stable`, `empty`, `dead` if nobody ever used it, ...) and its members."""

    group: str
    state: str
    members: tuple[GroupMember, ...]


def is_consumers(found: Listed) -> bool:
    """Whether consumers use this group: others use groups for purposes of their own."""
    return found.protocol_type in ("consumer", "")


def is_broker_led(found: Listed) -> bool:
    """Whether it uses the newer protocol (`group.protocol=consumer`), of which the older call knows nothing."""
    return str(found.state) == "Dead"  # one that nobody uses is not listed at all


def listed_group(found: Listed) -> GroupInfo:
    """Return what the older call says of a group."""
    state = str(found.state)
    return GroupInfo(found.id, _STATES.get(state, state.lower()), tuple(map(_listed_member, found.members)))


def described_group(group: str, found: ConsumerGroupDescription) -> GroupInfo:
    """Return what the newer call says of a group."""
    members = tuple(
        GroupMember(
            member.member_id,
            member.client_id,
            member.host.lstrip("/"),
            member.group_instance_id,
            tuple(sorted(Partition(each.topic, each.partition) for each in member.assignment.topic_partitions)),
        )
        for member in found.members
    )
    return GroupInfo(group, found.state.name.lower(), members)


def _listed_member(member: Listed) -> GroupMember:
    # The broker makes the name from the instance's, or else from the client's.
    name = member.id[:-_ID_CHARACTERS]
    return GroupMember(
        member.id,
        member.client_id,
        member.client_host.lstrip("/"),
        None if name == member.client_id else name or None,
        tuple(sorted(assigned(member.assignment or b""))),
    )


def assigned(raw: bytes) -> list[Partition]:
    """Read a member's partitions, as its leader wrote them: by topic, all numbers big-endian."""
    try:
        at, found = 6, []
        (topics,) = struct.unpack_from(">i", raw, 2) if raw else (0,)
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", raw, at)
            topic = raw[at + 2 : at + 2 + length].decode()
            at += 2 + length
            (count,) = struct.unpack_from(">i", raw, at)
            found += [Partition(topic, number) for number in struct.unpack_from(f">{count}i", raw, at + 4)]
            at += 4 + 4 * count
    except (struct.error, UnicodeDecodeError):
        return []  # not a consumer's, or not a version of it that anybody writes
    return found
