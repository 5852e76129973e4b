"""What the history holds, as plain frozen data. All times are aware, in UTC."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tidegate.records import Counts, Partition


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run of a pipeline: one process, from its start to its end."""

    run_id: str
    cluster: str
    """Kafka's own id of the cluster: one history may serve several."""
    group: str
    began_at: datetime
    seen_at: datetime
    """When it last said anything. A run that was killed has an old one, and no end."""
    state: str = "running"
    host: str = ""
    pid: int = 0
    instance: str | None = None
    member_id: str = ""
    topics: tuple[str, ...] = ()
    counts: Counts = field(default_factory=Counts)
    error: str = ""
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class MarkRow:
    """Where a partition stands now, as its owner writes it."""

    mark: int
    settled_at: datetime
    """When the mark was committed."""
    topic_id: str = ""
    """Of the topic that the mark is of; empty: not known."""
    replay: int = 0
    """The number of the last rewind that was applied to the partition."""


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """One row of the offset table: where a partition of a group stands, and where it was asked to go."""

    partition: Partition
    mark: int | None = None
    """The first offset not yet settled; None where nothing but a request is known."""
    settled_at: datetime | None = None
    topic_id: str = ""
    settled_replay: int = 0
    """The rewind after which the mark was written."""
    run_id: str = ""
    requested: int | None = None
    replay: int | None = None
    requested_at: datetime | None = None
    requested_by: str = ""
    applied_at: datetime | None = None
    withdrawn_at: datetime | None = None

    @property
    def is_requested(self) -> bool:
        """Whether a request waits for its owner."""
        return self.requested is not None and self.applied_at is None and self.withdrawn_at is None


@dataclass(frozen=True, slots=True)
class Request:
    """A rewind of one partition that was asked for and not applied yet."""

    partition: Partition
    mark: int
    replay: int
    """Its number: greater than that of any request before it for the group."""
    asked_at: datetime
    by: str


@dataclass(frozen=True, slots=True)
class CommitRow:
    """Where a partition stood at one moment."""

    partition: Partition
    mark: int
    settled_at: datetime
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class FailureRow:
    """A record that failed."""

    partition: Partition
    record_offset: int
    error_type: str
    message: str
    at: datetime
    attempts: int = 1
    traceback: str = ""
    fate: str = ""
    """What became of it, in the words of `on_error`; empty: not known."""
    run_id: str = ""
    failure_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """So that a batch which is written twice does not double it."""


@dataclass(frozen=True, slots=True)
class RedrivenRow:
    """A dead letter that was sent back, and acknowledged."""

    partition: int
    """Its place in `GROUP.dead`, with `offset`."""
    offset: int
    written_at: datetime | None
    """When the dead letter was written: by place and time it is known even if the topic was made anew."""
    redriven_at: datetime
    to: str
    stable_id: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """What a run writes at a time."""

    run: RunRow
    marks: Mapping[Partition, MarkRow] = field(default_factory=dict)
    failures: tuple[FailureRow, ...] = ()
