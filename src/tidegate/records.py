"""Plain frozen data that every part may hold: no client, no thread, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

ABSENT_MS = -1
"""What Kafka stores where a producer gave no time; the client calls it one."""


def moment(milliseconds: int | None) -> datetime | None:
    """Return a Kafka timestamp as a time; None for one that is absent, or that no calendar has.

    Producers may write any number.
    """
    if milliseconds is None or milliseconds == ABSENT_MS:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def counted(number: int, what: str) -> str:
    """Return "1 record", "2 records"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class Partition(NamedTuple):
    """One source partition: a topic's name and the partition's number."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.number}]"


@dataclass(frozen=True, slots=True)
class Record:
    """One Kafka record, as `tg.current()` gives it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: datetime | None
    attempt: int
    stable_id: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that failed: where, why, and what of it was already done.

    Plain text only: users' exceptions need not survive a trip between processes.
    """

    partition: Partition
    record_offset: int
    error_type: str
    message: str
    traceback: str = ""
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Mishap:
    """One attempt that failed, for people to see: why, and what follows."""

    failure: Failure
    """Without its traceback."""
    fate: str
    """What the policy decided: hold, retry, retry_later 10m, dead_letter, skip, stop."""
    number: int = 0
    """Counts those of its round, from 1."""


Done = frozenset[tuple[int, int]]
"""What of one record already has its effect: pairs of (child number, sink number)."""


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """One partition's share of a DataFrame round that was planned: committed before anything of it is written."""

    id: str
    """Names the round, whoever repeats it."""
    end: int
    """The planned end offset of this partition: the round covers everything from the mark up to it."""
    partitions: tuple[Partition, ...]
    """All partitions of the round: who does not own them all must not begin it."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where one partition stands: what a commit stores and a restart resumes from."""

    mark: int
    ahead: tuple[tuple[int, int], ...] = ()
    """Settled offsets beyond the mark, as ranges [first, end)."""
    done: Mapping[int, Done] = field(default_factory=dict)
    """For records that failed half way: the children and sinks that already have them."""
    replay: int = 0
    """The number of the rewind that moved it last; 0: none did. It stays, so that no rewind is done twice."""
    planned: PlannedRound | None = None
    """The DataFrame round that was planned from this mark on, and may have been written."""
    finished: str = ""
    """The id of the DataFrame round that brought it here; empty: none did."""


@dataclass(frozen=True, slots=True)
class Commit:
    """What is committed for one partition: the mark, and the metadata that goes with it."""

    mark: int
    metadata: str


@dataclass(frozen=True, slots=True)
class Tries:
    """What a record has been through in this place: carried from round to round, not over a crash."""

    failed: int = 0
    """Attempts that failed and count."""
    unavailable: int = 0
    """Attempts that found the sink away."""
    alone: int = 0
    """Those of them between which others got through."""


@dataclass(frozen=True, slots=True)
class Open:
    """An open failure: a record that failed, is not settled, and will be tried again."""

    record_offset: int
    tries: Tries
    wait: float = 0.0
    """Seconds until its next try, from the moment this was said. No two clocks are ever compared."""
    sink: int = -1
    """The number of the sink it failed in; -1: in a step before."""
    proofs: int = 0
    """How many records were known to have got through there when it failed."""
    failure: Failure | None = None
    """Why its last attempt failed, where no more attempt is to be made before that is decided about."""
    then: str = ""
    """What was decided: a copy for this topic, which could not be written yet."""


@dataclass(frozen=True, slots=True)
class LeasedPartition:
    """One partition of a lease: where to read on, and for which epoch."""

    partition: Partition
    epoch: int
    position: Position
    until: int | None = None
    """The end offset to reach, where the run is to end when caught up."""
    open: tuple[Open, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds one round, counted from its start."""

    read_seconds: float
    quiet_seconds: float
    """End when something is settled and nothing more came for this long."""
    idle_seconds: float
    """End when nothing came at all for this long."""
    attempt_seconds: float
    records: int | None = None


@dataclass(frozen=True, slots=True)
class Backing:
    """What a round needs that stores marks itself, beside the effects of its records."""

    topic_ids: Mapping[Partition, str]
    """The topics that the marks are of."""
    membership: bytes = b""
    """By which the broker knows that the group gave us these partitions."""
    name: str = ""
    """Of the lane, in every process its own: what it began, nobody else ends, and the next to bear it shuts it out."""
    batch_bytes: int | None = None
    """Most bytes that may go to Kafka together: a topic that takes less would refuse them all for their sum."""
    before: int | None = None
    """The round that bore the name last; None: nobody does, or nobody knows who."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The work of one round on one lane."""

    lane: int
    round: int
    partitions: tuple[LeasedPartition, ...]
    limits: Limits
    run: str = ""
    """Tells this run from others on the same workers."""
    proofs: tuple[int, ...] = ()
    """Per sink, and for any sink at the end: how many records are known to have got through, in all lanes."""
    permits: int | None = None
    """How many records may begin, where a rate was chosen; more may come over the live channel."""
    backing: Backing | None = None
    """None where the driver alone stores marks."""
    broker_ms: float | None = None
    """The broker's clock, read a moment ago: what is due is due by this clock alone."""
    bound: int | None = None
    """The lane by whose name its store is known, where that is another one."""

    @property
    def store_lane(self) -> int:
        """The lane by whose name its store is known."""
        return self.lane if self.bound is None else self.bound

    @property
    def era(self) -> str:
        """Differs from the last one whenever what a worker has in memory may no longer be true."""
        return f"{self.run}:{','.join(str(item.epoch) for item in self.partitions)}"


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """What one round did for one partition."""

    partition: Partition
    epoch: int
    position: Position
    failure: Failure | None = None
    open: tuple[Open, ...] = ()
    parked: float | None = None
    """Seconds until there is anything to do for it: it need not be leased before."""
    lost_before: int | None = None
    """The log's start, where the mark is out of the log: records were lost to retention, or the log is another."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of records: every record that is settled is in exactly one of the first four."""

    settled: int = 0
    """They have reached their sinks, or a filter dropped them."""
    retried: int = 0
    """They were written to a retry topic, from which they come again."""
    dead: int = 0
    """They were written to the dead letters."""
    skipped: int = 0
    """They failed, and the policy was to go on without them."""
    again: int = 0
    """Attempts in place that followed a failed one."""
    held: int = 0
    """Attempts that found a sink away."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(one + another for one, another in zip(self.as_tuple(), other.as_tuple(), strict=True)))

    def __sub__(self, other: Counts) -> Counts:
        return Counts(*(one - another for one, another in zip(self.as_tuple(), other.as_tuple(), strict=True)))

    @property
    def beside(self) -> str:
        """Say what became of records beside being settled, where anything did."""
        named = {"written to retry topics": self.retried, "dead letters": self.dead, "skipped": self.skipped}
        return "".join(f", {count} {what}" for what, count in named.items() if count)

    def as_tuple(self) -> tuple[int, ...]:
        """Return all of them, in the order above."""
        return (self.settled, self.retried, self.dead, self.skipped, self.again, self.held)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a round brings back to the driver."""

    lane: int
    round: int
    partitions: tuple[PartitionOutcome, ...]
    counts: Counts = Counts()
    proofs: tuple[int, ...] = ()
    """Per sink, and for all sinks at the end: how many records they took, as far as it was counted."""
    spent: int = 0
    """Permits used, where a rate was chosen."""
    seconds: float = 0.0
    """From the first line of the task to its last, for the share of time outside rounds."""
    broken: str | None = None
    """The task could not run the pipeline at all (an import failed): why."""
    cure: str = ""
    """What helps against that, where it is known."""
    unreadable: str | None = None
    """Kafka will not give the records (the topic is gone, a right is missing): why."""
    is_repeat: bool = False
    """Spark ran the task a second time; it did nothing, since the first may have settled records."""
    holds_resources: bool = False
    mishaps: tuple[Mishap, ...] = ()
    """The last attempts that failed; more of them than fit are only counted."""
    number: int = 0
    """Live reports of a round are numbered from 1: what overtook another on its way makes that one old."""


@dataclass(frozen=True, slots=True)
class Report:
    """How a run ended: what `run()` returns."""

    group: str
    counts: Counts
    marks: Mapping[Partition, int]
    began_at: datetime
    ended_at: datetime
    """When the last round was back and committed."""
    round_seconds: float = 0.0
    """Time inside rounds, all lanes together."""
    failures: tuple[Failure, ...] = ()
    unfinished: tuple[Partition, ...] = ()
    """Partitions whose round outlived the stop budget: what it did may run again."""
    lost: int = 0
    """Records that the group passed without settling them, because they are gone (see `lost` of `from_kafka`)."""
    lost_uncounted: tuple[Partition, ...] = ()
    """Partitions that lost records whose number nobody knows; they are not in `lost`."""

    @property
    def settled(self) -> int:
        """Records that reached their sinks, or were dropped by a filter."""
        return self.counts.settled

    @property
    def retried(self) -> int:
        """Records that were written to a retry topic."""
        return self.counts.retried

    @property
    def dead(self) -> int:
        """Records that were written to the dead letters."""
        return self.counts.dead

    @property
    def skipped(self) -> int:
        """Records that failed and were passed by, as the policy says."""
        return self.counts.skipped

    @property
    def failure(self) -> Failure | None:
        """The failure that stopped the run, if one did."""
        return self.failures[0] if self.failures else None

    @property
    def exit_code(self) -> int:
        """0 if the run did what it was asked to, 3 if it stopped at a failed record."""
        return 3 if self.failures else 0
