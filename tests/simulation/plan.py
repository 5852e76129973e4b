"""One schedule as data: made from a seed, and made smaller when it shows a breach."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Literal

Kind = Literal[
    "kill", "stop", "freeze", "cut", "die", "hang", "loading", "deaf", "slow", "retention", "rewind", "maintenance",
    "pause", "produce", "disown", "resize",
]  # fmt: skip
Bad = Literal["fails", "kills"]
Store = Literal["none", "kafka"]
OFTEN: tuple[Bad, ...] = ("fails", "fails", "fails", "kills")
KINDS: tuple[Kind, ...] = (
    "kill", "kill", "stop", "stop", "freeze", "cut", "die", "die", "hang", "hang", "loading", "deaf", "slow",
    "retention", "rewind", "rewind", "maintenance", "pause", "produce", "produce", "disown",
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """Something that is done to the run at some moment."""

    at: float
    kind: Kind
    where: int
    """The process or the partition, by number."""
    size: float
    """From 0 to 1: how long, how far."""

    def __str__(self) -> str:
        return f"{self.kind} at {self.at:.2f} s (where {self.where}, size {self.size:.2f})"


@dataclass(frozen=True)
class Plan:
    """What a schedule begins with. The rest is chance, drawn from the seed."""

    seed: int
    processes: int
    records: tuple[int, ...]
    """How many records lie in each partition at the start."""
    lanes: int
    order: Literal["partition", "none"]
    policy: Literal["stop", "retry", "dead_letter"]
    is_live: bool
    most_records: int | None
    """`commit_every(records=)`."""
    stop_seconds: float
    bad: dict[tuple[int, int], tuple[Bad, int]] = field(default_factory=dict)
    """Records that fail, or kill their worker, so many times; by partition and offset."""
    gaps: frozenset[tuple[int, int]] = frozenset()
    faults: tuple[Fault, ...] = ()
    is_frames: bool = False
    """Whether rounds are DataFrames."""
    store: Store = "none"
    """Where rounds store marks together with the effects of their records."""
    until_caught_up: bool = False
    """Whether processes end by themselves, where the logs ended when they began."""
    rate: float | None = None
    """Records per second that a process may begin."""
    outages: tuple[tuple[float, float], ...] = ()
    """When the sink is away, from and until."""
    delay: float | None = None
    """How long a record that failed lies in the retry topic; None: there is none."""
    retry_partitions: int = 0

    @property
    def size(self) -> tuple[int, int, int, int]:
        """How much there is to read for somebody who looks for the cause."""
        return len(self.faults), len(self.bad), sum(self.records), self.processes + self.lanes


def plan_of(seed: int, kinds: tuple[Kind, ...] = KINDS, *, is_frames: bool = False, store: Store = "none") -> Plan:
    """Make the schedule of a seed, with faults of these kinds; of records, or of DataFrames; once, or at least once."""
    made = _later_plan(_slow_plan(_records_plan(seed, kinds)))
    if store != "none":
        return _once_plan(made, store)
    if not is_frames:
        return made
    made = replace(made, is_frames=True, lanes=1, order="none", is_live=False, bad={}, rate=None, outages=())
    return replace(made, processes=min(2, made.processes), delay=None, retry_partitions=0)


def _slow_plan(made: Plan) -> Plan:
    """Add what makes runs slow without a fault in them: a rate, a sink that is away for longer than anything stands."""
    chance = random.Random(f"slow {made.seed}")
    rate = chance.choice((0.4, 1.0, 5.0)) if chance.random() < 0.2 else None
    outages = []
    if chance.random() < 0.2:
        at = 10 * chance.random()
        outages.append((at, at + chance.choice((1, 10, 100)) * chance.random()))
    return replace(made, rate=rate, outages=tuple(outages))


def _later_plan(made: Plan) -> Plan:
    """Add a retry topic, whose partitions are the group's as those of its source are."""
    chance = random.Random(f"later {made.seed}")
    if chance.random() < 0.65:
        return made
    partitions = chance.choice((1, len(made.records)))
    return replace(made, delay=chance.choice((0.3, 3.0, 20.0)), retry_partitions=partitions)


def _once_plan(made: Plan, store: Store) -> Plan:
    """Add what matters to such rounds alone: that partitions go to another lane while the group stays as it is."""
    chance = random.Random(f"once {made.seed}")
    more = tuple(
        Fault(chance.random() * 8, "resize", chance.randrange(6), chance.random())
        for _ in range(chance.choice((0, 1, 2, 3)))
    )
    return replace(made, store=store, faults=tuple(sorted((*made.faults, *more), key=lambda one: one.at)))


def _records_plan(seed: int, kinds: tuple[Kind, ...]) -> Plan:
    chance = random.Random(f"plan {seed}")
    partitions = chance.choice((1, 1, 2, 2, 3))
    processes = chance.choice((1, 2, 2, 3))
    records = tuple(chance.randrange(1, 7) for _ in range(partitions))
    places = [(number, at) for number, count in enumerate(records) for at in range(count)]
    bad: dict[tuple[int, int], tuple[Bad, int]] = {}
    gaps = set()
    for place in places:
        if chance.random() < 0.12:
            bad[place] = (chance.choice(OFTEN), chance.randrange(1, 5))
        elif chance.random() < 0.1:
            gaps.add(place)
    faults = tuple(
        Fault(chance.random() * chance.choice((3, 12)), chance.choice(kinds), chance.randrange(6), chance.random())
        for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 4)))
    )
    return Plan(
        seed=seed,
        processes=processes,
        records=records,
        lanes=chance.choice((1, 2, 2)),
        order=chance.choice(("partition", "none")),
        policy=chance.choice(("stop", "retry", "dead_letter")),
        is_live=chance.random() < 0.6,
        most_records=chance.choice((None, None, None, 1, 2)),
        stop_seconds=chance.choice((6.0, 9.0, 30.0)),
        bad=bad,
        gaps=frozenset(gaps),
        faults=tuple(sorted(faults, key=lambda one: one.at)),
        until_caught_up=chance.random() < 0.25,
    )
