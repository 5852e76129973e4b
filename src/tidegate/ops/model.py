"""What people who run pipelines look at: groups, partitions, lag, verdicts. Plain frozen data for every face."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import datetime

    from tidegate.kafka.admin import GroupMember
    from tidegate.records import Partition

Verdict = Literal["ok", "behind", "stalled", "stopped", "rewound", "unknown"]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a group. What is not known is None."""

    partition: Partition
    mark: int | None
    beginning: int | None
    end_offset: int | None
    """As read_committed: where an open transaction begins, a reader gets no further."""
    lag: int | None
    """Offsets between the mark and the end; 0 where nothing that can be read lies between."""
    lag_seconds: float | None
    """From the timestamp of the first record that is not settled to that of the last one; 0 without lag."""
    waiting_seconds: float | None
    """How long the first record that is not settled has been there; 0 without lag."""
    lost: int
    """Offsets between the mark and the log's beginning: no longer retained."""
    retention_hours: float | None
    """Until retention reaches the record at the mark; None: never, or not known."""
    member: str | None
    """Who works on it now: client id and host."""
    metadata: str
    verdict: Verdict
    why: str
    """The verdict in a sentence, with its figures."""
    moved_at: datetime | None = None
    """When the mark came to where it is: the time of its commit, or of the look that first saw it there."""
    still_seconds: float | None = None
    """For how long the mark has not moved although records wait; 0 where it moves, or nothing waits."""
    rewound_from: int | None = None
    """Where the mark was before it went back; None again when it is there."""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group and how far it is behind, at one moment."""

    group: str
    at: datetime
    state: str
    is_tidegate: bool
    """Whether its commits are ours."""
    members: tuple[GroupMember, ...]
    lag: int
    lag_seconds: float | None
    """The largest of its partitions'."""
    waiting_seconds: float | None
    expiry_days: float | None
    """Until a group without members forgets its offsets; None where it has members, or nobody knows."""
    verdict: Verdict
    """The worst of its partitions'."""
    why: str
    partitions: tuple[PartitionLag, ...]


@dataclass(frozen=True, slots=True)
class LagPoint:
    """The lag of a group at one moment."""

    at: datetime
    lag: int
    lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class View:
    """What was seen last, and how old it is."""

    at: datetime | None
    """None before the first look."""
    age_seconds: float | None
    groups: tuple[GroupLag, ...]
    problem: str | None
    """Why there is nothing newer, where the last look failed."""
