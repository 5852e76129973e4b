"""Where a group stands: its marks beside the beginnings and ends of the logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.ops.cluster import chosen_cluster

if TYPE_CHECKING:
    from tidegate.kafka.admin import Admin, GroupMember
    from tidegate.kafka.connection import Kafka
    from tidegate.records import Commit, Partition


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """One partition of a group. What is not known is None: no commit yet, or a topic that is gone."""

    partition: Partition
    mark: int | None
    beginning: int | None
    end_offset: int | None
    lag: int | None
    """How many offsets lie between the mark and the end (as read_committed)."""
    lost: int
    """How many offsets between the mark and the log's beginning are no longer retained."""
    metadata: str
    member: str | None
    """Who works on it now: client id and host."""


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """A group's state and where it stands in each partition. A group that nobody has used is `dead` and empty."""

    group: str
    state: str
    lag: int
    """The lag of all partitions for which it is known."""
    members: tuple[GroupMember, ...]
    partitions: tuple[PartitionOffsets, ...]


def offsets(group: str, *, kafka: Kafka | None = None) -> GroupOffsets:
    """Return where any consumer group stands, whatever client it uses."""
    return load_offsets(chosen_cluster(kafka).admin, group)


def load_offsets(admin: Admin, group: str) -> GroupOffsets:
    """Read a group's offsets through an open connection."""
    found = admin.group_members(group)
    committed = admin.committed(group)
    owners = {partition: member for member in found.members for partition in member.partitions}
    places = sorted({*committed, *owners})
    there = admin.existing(partition.topic for partition in places)
    readable = [at for at in places if at.topic in there and at.number < there[at.topic].partitions]
    beginnings, ends = admin.beginnings(readable), admin.ends(readable)
    partitions = tuple(
        _standing(at, committed.get(at), beginnings.get(at), ends.get(at), owners.get(at)) for at in places
    )
    lag = sum(each.lag or 0 for each in partitions)
    return GroupOffsets(group, found.state, lag, found.members, partitions)


def _standing(
    at: Partition,
    committed: Commit | None,
    beginning: int | None,
    end_offset: int | None,
    owner: GroupMember | None,
) -> PartitionOffsets:
    mark = None if committed is None else committed.mark
    return PartitionOffsets(
        partition=at,
        mark=mark,
        beginning=beginning,
        end_offset=end_offset,
        lag=None if mark is None or end_offset is None else max(0, end_offset - mark),
        lost=0 if mark is None or beginning is None else max(0, beginning - mark),
        metadata="" if committed is None else committed.metadata,
        member=None if owner is None else f"{owner.client_id}@{owner.host}",
    )
