"""Consumer groups and their members, as plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.records import Partition

if TYPE_CHECKING:
    from confluent_kafka.admin import ConsumerGroupDescription  # type: ignore[attr-defined]  # not marked as exported


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


def group_info(group: str, found: ConsumerGroupDescription) -> GroupInfo:
    """Return what the client says of a group as ours."""
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
