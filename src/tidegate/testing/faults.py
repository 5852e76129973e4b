"""Faults as data: what can be done to running pipelines. `Attack` does it by real means, and notes that it happened.

Each is frozen and says in its first line what is done. `seconds`: for how long.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """What a schedule can hold."""

    @property
    def kind(self) -> str:
        """Its name in reports: `KillDriver` is `kill driver`."""
        name = type(self).__name__
        return "".join(f" {sign.lower()}" if sign.isupper() else sign for sign in name).strip()

    def __str__(self) -> str:
        told = [f"{one.name} {getattr(self, one.name)}" for one in fields(self)]
        return f"{self.kind} ({', '.join(told)})" if told else self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class KillDriver(PlannedFault):
    """kill -9 of the driver of one copy; its workers live on for some seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPower(PlannedFault):
    """kill -9 of everything that one copy has started, at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KillWorker(PlannedFault):
    """kill -9 of one Python worker of one copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KillExecutor(PlannedFault):
    """kill -9 of the Java in which one copy's tasks run: with a local master it is Spark itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeDriver(PlannedFault):
    """The driver of one copy stands still and then goes on, as after a long pause of its machine."""

    seconds: float = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance(PlannedFault):
    """One copy is told to stop, in good order, and comes back: its partitions go to the others, and return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KillBroker(PlannedFault):
    """kill -9 of the broker, or of one of several nodes, which is started again with its data."""

    seconds: float = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartBroker(PlannedFault):
    """The broker, or one of several nodes, is stopped in good order and started again: its leaders move and return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseNode(PlannedFault):
    """One of several nodes is lost for good with all it has; after a while an empty one takes its place."""

    seconds: float = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CutConnections(PlannedFault):
    """Every connection to the broker ends, whatever is on its way; new ones are taken at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropConnections(PlannedFault):
    """Every connection to the broker ends, and no new one is taken for a while."""

    seconds: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayRequests(PlannedFault):
    """Requests of every kind reach the broker later."""

    seconds: float = 4.0
    by_seconds: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class DenyCommits(PlannedFault):
    """The broker refuses commits, those in transactions too, as a coordinator does that is loading."""

    seconds: float = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FailSink(PlannedFault):
    """The sink of one pipeline is away. Its program has to ask: see `Switch`. It counts when a record met it."""

    seconds: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowSink(PlannedFault):
    """The sink of one pipeline takes half a second for each record. Its program has to ask: see `Switch`."""

    seconds: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FillMetadata(PlannedFault):
    """Some records of one pipeline fail and wait while others go on: *ahead* fills a commit's metadata.

    Its program asks a `Switch`, and chooses by the record's offset: the stretches between those that wait are what
    fills it. It takes thousands of records of one partition at once (`Subject.backlog`). It counts when a commit was
    seen that is so full that reading stops.
    """

    seconds: float = 20.0
    records: int = 9000


@dataclass(frozen=True, slots=True, kw_only=True)
class FillDisk(PlannedFault):
    """The driver of one copy cannot make any file longer than a page: there is no room for its history."""

    seconds: float = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SkewClock(PlannedFault):
    """The clock of the producer is wrong: what `Trial.produce` writes meanwhile carries times that are days off."""

    seconds: float = 5.0
    days: int = -10


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSettled(PlannedFault):
    """Retention: the log of one pipeline's topic is cut off at its marks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindGroup(PlannedFault):
    """An operator moves one partition of a running pipeline back."""

    records: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveDead(PlannedFault):
    """An operator sends the dead letters of one pipeline back to it."""


EVERY_FAULT: tuple[PlannedFault, ...] = (
    KillDriver(),
    CutPower(),
    KillWorker(),
    KillExecutor(),
    FreezeDriver(),
    Rebalance(),
    KillBroker(),
    RestartBroker(),
    CutConnections(),
    DropConnections(),
    DelayRequests(),
    DenyCommits(),
    FailSink(),
    SlowSink(),
    FillMetadata(),
    FillDisk(),
    SkewClock(),
    DeleteSettled(),
    RewindGroup(),
    RedriveDead(),
)
"""One of each that a single broker can have, with its usual length."""

EVERY_FAULT_OF_NODES: tuple[PlannedFault, ...] = (*EVERY_FAULT, LoseNode())
"""One of each, for a stage of several nodes."""
