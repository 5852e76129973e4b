"""The checker of the laws can tell a lawful history from every kind of unlawful one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tidegate.copies import Copy, Origin
from tidegate.kafka.commits import CommitSeen
from tidegate.ledger import Home, encode
from tidegate.records import Partition, Position
from tidegate.testing import Breach, CopySeen, Event, Fault, InOrder, Rewind, by_part, check_laws
from tidegate.testing.laws import Order

P = Partition("t", 0)
Q = Partition("t", 1)

# Two programs, each with workers: the first one's are 11 and 12, the second one's 21.
FIRST, SECOND = 1, 2


def ran(at_ms: int, *record_offsets: int, worker: int = 11, partition: Partition = P, key: str | None = None) -> Events:
    """Settle these one after the other, a millisecond each, from this time on."""
    return [
        Event(
            "settled",
            partition,
            record_offset,
            f"g:{partition.topic}:{partition.number}:{record_offset}",
            None if key is None else key.encode(),
            1,
            at_ms + place,
            worker,
            f"p{worker}",
            worker // 10,
            f"r{worker // 10}",
        )
        for place, record_offset in enumerate(record_offsets)
    ]


def mark(at_ms: int, value: int | None, ahead: tuple[tuple[int, int], ...] = (), partition: Partition = P) -> Commits:
    """Commit this mark at this time."""
    home = Home("g", "topic-id", partition.number, "sinks")
    metadata = "" if value is None else encode(Position(value, ahead), home)
    return [CommitSeen("g", partition, value, metadata, at_ms, at_ms)]


def killed_driver(at_ms: int, driver: int = FIRST) -> Fault:
    return Fault("driver_killed", at_ms, driver=driver)


def killed_worker(at_ms: int, worker: int = 11) -> Fault:
    return Fault("worker_killed", at_ms, worker=worker)


Events = list[Event]
Commits = list[CommitSeen]


@dataclass(frozen=True)
class Case:
    because: str
    events: Events
    commits: Commits
    breaches: tuple[str, ...] = ()
    """What the sentences of the breaches begin with or contain, in order."""
    faults: tuple[Fault, ...] = ()
    produced: tuple[int, ...] = (0, 1, 2, 3)
    order: Order = "partition"
    copies: tuple[CopySeen, ...] = ()
    rewinds: tuple[Rewind, ...] = ()
    effects: tuple[int, ...] | None = None
    """The records whose effects can be seen, where the sink keeps the marks, in the order in which they became so."""


def check(case: Case, produced: set[tuple[str, int, int]] | None = None) -> list[Breach]:
    return check_laws(
        produced or places(P, *case.produced),
        case.events,
        case.commits,
        case.faults,
        copies=case.copies,
        rewinds=case.rewinds,
        effects=None if case.effects is None else InOrder((P.topic, P.number, at) for at in case.effects),
        order=case.order,
    )


def places(partition: Partition, *record_offsets: int) -> set[tuple[str, int, int]]:
    return {(partition.topic, partition.number, record_offset) for record_offset in record_offsets}


def frozen(at_ms: int, lasts_ms: int) -> Fault:
    return Fault("driver_frozen", at_ms, lasts_ms=lasts_ms)


def copied(at_ms: int, record_offset: int, *, dead: bool = True) -> CopySeen:
    said = Copy(Origin("t", 0, record_offset), f"g:t:0:{record_offset}")
    return CopySeen(P, record_offset, "g.dead" if dead else "g.retry.1m", at_ms, dead, said)


RETRIES = Partition("g.retry.1m", 0)


def waiting(at_ms: int, record_offset: int, lies_at: int, *, attempt: int = 1, done: bool = False) -> CopySeen:
    """A copy that lies there in the retry topic; `done`: some of its sinks have the record already."""
    said = Copy(Origin("t", 0, record_offset), f"g:t:0:{record_offset}", attempt)
    said = replace(said, done=frozenset({(0, 0)} if done else ()))
    return CopySeen(P, record_offset, RETRIES.topic, at_ms, False, said, (RETRIES.number, lies_at))


def redriven(at_ms: int, record_offset: int) -> CopySeen:
    """A copy of the dead letter at offset 0 of the first partition of the dead letters."""
    said = Copy(Origin("t", 0, record_offset), f"g:t:0:{record_offset}", redrives=1, redriven_from=(0, 0))
    return CopySeen(P, record_offset, "g.redrive", at_ms, False, said)


def dead_again(at_ms: int, record_offset: int) -> CopySeen:
    """The letter of a redriven copy that failed: it still says what it was redriven from."""
    made = redriven(at_ms, record_offset)
    return replace(made, topic="g.dead", is_dead=True)


CASES = [
    # --- L1
    Case("all settled, then committed", ran(10, 0, 1, 2, 3), mark(5, 0) + mark(20, 4)),
    Case("a commit in the millisecond of its last record is in time", ran(10, 0, 1, 2, 3), mark(13, 4)),
    Case(
        "a mark one millisecond before its record is a lie",
        ran(10, 0, 1, 2, 3),
        mark(12, 4),
        ("L1: t[0] offset 3 lay below the mark 4 committed at 12 and was settled 1 ms later",),
    ),
    Case(
        "a mark that covers what never ran, and only the first such mark is told",
        ran(10, 0, 1, 3),
        mark(20, 3) + mark(30, 4),
        ("L1: t[0] offset 2 lay below the mark 3 committed at 20 and was settled never", "L2"),
    ),
    Case("gaps hold nothing", ran(10, 0, 9), mark(20, 15), produced=(0, 9)),
    Case(
        "the first settling counts, not a repeat",
        ran(10, 0, 1, 2, 3) + ran(50, 2, 3, worker=21),
        mark(20, 2) + mark(60, 4),
        faults=(killed_driver(30),),
    ),
    Case("a dead letter settles, if it was there in time", ran(10, 0, 1, 3), mark(20, 4), copies=(copied(15, 2),)),
    Case(
        "a copy that came after the commit did not settle in time",
        ran(10, 0, 1, 3),
        mark(20, 4),
        ("L1: t[0] offset 2 lay below the mark 4 committed at 20 and was settled 5 ms later",),
        copies=(copied(25, 2),),
    ),
    Case(
        "a record that comes back from a retry topic has given its place up",
        ran(10, 0, 1, 3) + ran(90, 2),
        mark(20, 4),
        copies=(copied(15, 2, dead=False),),
    ),
    Case(
        "a copy whose own mark came after its record had run",
        ran(10, 0, 1, 3) + ran(90, 2),
        mark(20, 4) + mark(16, 0, partition=RETRIES) + mark(95, 1, partition=RETRIES),
        copies=(waiting(15, 2, 0),),
    ),
    Case(
        "a mark that passes a copy before its record ran is a lie",
        ran(10, 0, 1, 3) + ran(90, 2),
        mark(20, 4) + mark(80, 1, partition=RETRIES),
        (
            "L1: t[0] the copy of offset 2 written to g.retry.1m at 15 lay below the mark 1 committed there at 80, and "
            "nothing had come of it",
        ),
        copies=(waiting(15, 2, 0),),
    ),
    Case(
        "what ran before a copy was written did not come of it",
        ran(10, 0, 1, 2, 3) + ran(90, 2),
        mark(20, 4) + mark(80, 1, partition=RETRIES),
        ("L1: t[0] the copy of offset 2",),
        copies=(waiting(15, 2, 0),),
    ),
    Case(
        "a copy that failed once more has its next copy, and that one its letter",
        ran(10, 0, 1, 3),
        mark(20, 4) + mark(40, 1, partition=RETRIES) + mark(60, 2, partition=RETRIES),
        copies=(waiting(15, 2, 0), waiting(35, 2, 1, attempt=2), copied(55, 2)),
    ),
    Case(
        "the same copy a second time is nothing that came of the first",
        ran(10, 0, 1, 3) + ran(90, 2),
        mark(20, 4) + mark(40, 1, partition=RETRIES) + mark(95, 2, partition=RETRIES),
        ("L1: t[0] the copy of offset 2",),
        copies=(waiting(15, 2, 0), waiting(17, 2, 1)),
        faults=(killed_driver(16),),
    ),
    Case(
        "a copy of which some sinks had the record: what came of it may be none of these effects",
        ran(10, 0, 1, 2, 3),
        mark(20, 4) + mark(40, 1, partition=RETRIES),
        copies=(waiting(15, 2, 0, done=True),),
    ),
    # --- L2
    Case(
        "a copy in a retry topic is not the end",
        ran(10, 0, 1, 3),
        mark(20, 4),
        ("L2: t[0] never settled: offsets 2",),
        copies=(copied(15, 2, dead=False),),
    ),
    Case(
        "nor is a dead letter that was redriven",
        ran(10, 0, 1, 3),
        mark(20, 4),
        ("L2: t[0] never settled: offsets 2",),
        copies=(copied(15, 2), redriven(30, 2)),
    ),
    Case(
        "a redriven one whose effect never came",
        [],
        mark(5, 0) + mark(20, 4),
        ("L2: t[0] never settled: offsets 2",),
        effects=(0, 1, 3),
        copies=(copied(15, 2), redriven(30, 2)),
    ),
    Case(
        "one that was redriven and is a dead letter once more has ended",
        ran(10, 0, 1, 3),
        mark(20, 4),
        copies=(copied(15, 2), redriven(30, 2), dead_again(50, 2)),
    ),
    Case("nothing is committed, yet everything is settled", ran(10, 0, 1, 2, 3), []),
    Case(
        "what is missing is named in ranges",
        ran(10, 1),
        mark(5, 0),
        ("L2: t[0] never settled: offsets 0, 2-3",),
    ),
    # --- L3
    Case(
        "a record that runs twice without a fault",
        ran(10, 0, 1, 2) + ran(20, 2, 3),
        mark(30, 4),
        ("L3: t[0] offset 2 ran at 12 (process 11) and again at 20 (process 11): no fault came between", "L4"),
    ),
    Case(
        "a stop in good order excuses no repeat",
        ran(10, 0, 1, 2) + ran(20, 2, 3, worker=21),
        mark(30, 4),
        ("L3: t[0] offset 2", "L4: t[0] went back from offset 2 at 12 to 2 at 20, and no fault came between"),
    ),
    Case(
        "a crash: what lay beyond the mark may run again",
        ran(10, 0, 1, 2) + ran(40, 1, 2, 3, worker=21),
        mark(15, 1) + mark(50, 4),
        faults=(killed_driver(20),),
    ),
    Case(
        "a crash: what lay below the mark may not",
        ran(10, 0, 1, 2) + ran(40, 0, 1, 2, 3, worker=21),
        mark(15, 1) + mark(50, 4),
        (
            "L3: t[0] offset 0 ran at 10 (process 11) and again at 40 (process 21): it was committed when driver",
            "L4: t[0] went back from offset 2 at 12 to 0 at 40, behind the mark committed when driver_killed came",
        ),
        faults=(killed_driver(20),),
    ),
    Case(
        "a crash before the first commit: everything may run again",
        ran(10, 0, 1, 2, 3) + ran(40, 0, 1, 2, 3, worker=21),
        mark(50, 4),
        faults=(killed_driver(20),),
    ),
    Case(
        "a commit after the crash is not the bound: the last one before is",
        ran(10, 0, 1, 2) + ran(40, 0, 1, worker=21) + ran(60, 0, 1, 2, 3, worker=31),
        mark(45, 1) + mark(70, 4),
        ("L3: t[0] offset 0 ran at 40 (process 21) and again at 60", "L4"),
        faults=(killed_driver(20), killed_driver(50, SECOND)),
    ),
    Case(
        "a fault of another program excuses nothing",
        ran(10, 0, 1, 2) + ran(40, 2, 3, worker=12),
        mark(50, 4),
        ("L3: t[0] offset 2", "L4"),
        faults=(killed_driver(20, SECOND),),
    ),
    Case(
        "the last work of a killed program comes late, and repeats what the next one did",
        ran(10, 0, 1) + ran(40, 0, 1, 2, worker=21) + ran(41, 2, worker=11) + ran(50, 3, worker=21),
        mark(60, 4),
        faults=(killed_driver(20),),
    ),
    Case(
        "the mark at the crash bounds a zombie's work too, not the mark at its effect",
        ran(10, 0, 1) + ran(22, 2) + ran(40, 1, 2, 3, worker=21),
        mark(15, 1) + mark(50, 4),
        faults=(killed_driver(20),),
    ),
    Case(
        "a zombie's effect that the next program had committed before is lawful",
        ran(10, 0) + ran(30, 0, 1, worker=21) + ran(42, 1) + ran(50, 2, 3, worker=21),
        mark(40, 2) + mark(60, 4),
        faults=(killed_driver(20),),
    ),
    Case(
        "what is ahead in the metadata does not run again",
        ran(10, 0, 2, 3) + ran(40, 1, 2, worker=21),
        mark(14, 1) + mark(15, 1, ((2, 4),)) + mark(50, 4),
        ("L3: t[0] offset 2 ran at 11 (process 11) and again at 41 (process 21): it was committed",),
        faults=(killed_driver(20),),
        order="none",
    ),
    Case(
        "ahead is skipped: lawful where no order was promised",
        ran(10, 0, 2, 3) + ran(40, 1, worker=21),
        mark(15, 1, ((2, 4),)) + mark(50, 4),
        faults=(killed_driver(20),),
        order="none",
    ),
    Case(
        "a killed worker: its round runs again in another, from the mark",
        ran(10, 0, 1, 2) + ran(40, 1, 2, 3, worker=12),
        mark(15, 1) + mark(50, 4),
        faults=(killed_worker(20),),
    ),
    Case(
        "a worker's last records may come between the note and the kill",
        ran(10, 0, 1) + ran(20, 2) + ran(40, 1, 2, 3, worker=12),
        mark(15, 1) + mark(50, 4),
        faults=(killed_worker(20),),
    ),
    Case(
        "a worker with the process id of one that was killed long ago is another one",
        [replace(one, process="another") for one in ran(50_000, 0, 1, 2)] + ran(60_000, 2, 3, worker=12),
        mark(70_000, 4),
        ("L3: t[0] offset 2", "L4"),
        faults=(killed_worker(20),),
    ),
    Case(
        "another worker's death does not excuse this one's repeat",
        ran(10, 0, 1, 2) + ran(40, 2, 3, worker=13),
        mark(50, 4),
        ("L3: t[0] offset 2", "L4"),
        faults=(killed_worker(20, 12),),
    ),
    Case(
        "a fault that names nobody may concern everything",
        ran(10, 0, 1, 2) + ran(40, 2, 3),
        mark(15, 2) + mark(50, 4),
        faults=(Fault("lost", 20),),
    ),
    Case(
        "a record that a later fault found committed does not run a third time",
        ran(10, 0, 1) + ran(30, 0, 1, worker=21) + ran(50, 0, 1, 2, 3, worker=31),
        mark(40, 2) + mark(60, 4),
        ("L3: t[0] offset 0 ran at 30", "L3: t[0] offset 1 ran at 31", "L4"),
        faults=(killed_driver(20), killed_driver(45, SECOND)),
    ),
    Case(
        "the same, where the program between left no other trace than its commit",
        ran(10, 0, 1) + ran(50, 0, 2, 3, worker=31),
        mark(30, 2) + mark(60, 4),
        ("L3: t[0] offset 0 ran at 10 (process 11) and again at 50 (process 31): it was committed when driver_killed",),
        faults=(killed_driver(20), killed_driver(40, SECOND)),
    ),
    Case(
        "of several marks before the crash the highest counts",
        ran(10, 0, 1, 2) + ran(40, 1, 2, 3, worker=21),
        mark(11, 0) + mark(12, 1) + mark(15, 2) + mark(50, 4),
        ("L3: t[0] offset 1", "L4"),
        faults=(killed_driver(20),),
    ),
    Case(
        "a fault that comes after the repeat does not excuse it",
        ran(10, 0, 1, 2) + ran(20, 2, 3, worker=12),
        mark(40, 4),
        ("L3: t[0] offset 2", "L4"),
        faults=(killed_worker(30),),
    ),
    # --- L4
    Case(
        "first runs out of order",
        ran(10, 0, 2, 1, 3),
        mark(20, 4),
        ("L4: t[0] offset 1 ran first at 12, after offset 2 at 11", "L4: t[0] went back from offset 2 at 11 to 1"),
    ),
    Case("the same where no order was promised", ran(10, 0, 2, 1, 3), mark(20, 4), order="none"),
    Case(
        "a crash does not excuse what was new out of order",
        ran(10, 0, 2) + ran(40, 1, 3, worker=21),
        mark(15, 1) + mark(50, 4),
        ("L4: t[0] offset 1 ran first at 40, after offset 2 at 11",),
        faults=(killed_driver(20),),
    ),
    Case(
        "order per key: other keys may overtake",
        ran(10, 0, key="a") + ran(11, 2, key="b") + ran(12, 1, key="a") + ran(13, 3, key="b"),
        mark(20, 4),
        order="key",
    ),
    Case(
        "order per key: the same key may not",
        ran(10, 0, key="a") + ran(11, 2, key="a") + ran(12, 1, key="a") + ran(13, 3, key="b"),
        mark(20, 4),
        ("L4: t[0] offset 1 ran first at 12, after offset 2 at 11", "L4: t[0] went back"),
        order="key",
    ),
    Case("records without a key have no order", ran(10, 0, 2, 1, 3), mark(20, 4), order="key"),
    # --- L5
    Case(
        "a mark that moves back",
        ran(10, 0, 1, 2, 3),
        mark(20, 4) + mark(30, 2),
        ("L5: t[0] moved back from mark 4 to 2 at 30",),
    ),
    Case("the same mark again is no move", ran(10, 0, 1, 2, 3), mark(20, 4) + mark(30, 4)),
    Case(
        "a crash does not excuse it",
        ran(10, 0, 1, 2, 3),
        mark(20, 4) + mark(30, 3),
        ("L5: t[0] moved back from mark 4 to 3 at 30",),
        faults=(killed_driver(25),),
    ),
    Case(
        "a deleted offset",
        ran(10, 0, 1, 2, 3),
        mark(20, 4) + mark(30, None),
        ("L5: t[0] lost its mark 4",),
    ),
    # --- rewinds
    Case(
        "a rewind that was asked for moves the mark back, and its records run again, in order",
        ran(10, 0, 1, 2, 3) + ran(50, 1, 2, 3),
        mark(20, 4) + mark(40, 1) + mark(60, 4),
        rewinds=(Rewind(30, P, 1),),
    ),
    Case(
        "what lies before the place that it asked for does not run again",
        ran(10, 0, 1, 2, 3) + ran(50, 0, 1, 2, 3),
        mark(20, 4) + mark(40, 1) + mark(60, 4),
        ("L3: t[0] offset 0 ran at 10", "L4: t[0] went back from offset 3 at 13 to 0 at 50, and no fault"),
        rewinds=(Rewind(30, P, 1),),
    ),
    Case(
        "a mark that moves back elsewhere than asked",
        ran(10, 0, 1, 2, 3),
        mark(20, 4) + mark(40, 2),
        ("L5: t[0] moved back from mark 4 to 2 at 40",),
        rewinds=(Rewind(30, P, 1),),
    ),
    Case(
        "a rewind is done once: the mark went back a second time by itself",
        ran(10, 0, 1, 2, 3) + ran(50, 1, 2, 3),
        mark(20, 4) + mark(40, 1) + mark(60, 4) + mark(70, 1),
        ("L5: t[0] moved back from mark 4 to 1 at 70",),
        rewinds=(Rewind(30, P, 1),),
    ),
    Case(
        "a mark that moved before anybody asked",
        ran(10, 0, 1, 2, 3),
        mark(20, 4) + mark(25, 1),
        ("L5: t[0] moved back",),
        rewinds=(Rewind(30, P, 1),),
    ),
    Case(
        "a rewind of another partition excuses nothing",
        ran(10, 0, 1, 2, 3),
        mark(20, 4) + mark(40, 1),
        ("L5: t[0] moved back",),
        rewinds=(Rewind(30, Q, 1),),
    ),
    Case(
        "killed after a rewind: the mark since then bounds what runs again",
        ran(10, 0, 1, 2, 3) + ran(50, 1, 2) + ran(80, 2, 3, worker=21),
        mark(20, 4) + mark(40, 1) + mark(60, 2) + mark(90, 4),
        rewinds=(Rewind(30, P, 1),),
        faults=(killed_driver(70),),
    ),
    Case(
        "killed after a rewind: what was committed since then does not run again",
        ran(10, 0, 1, 2, 3) + ran(50, 1, 2) + ran(80, 1, 2, 3, worker=21),
        mark(20, 4) + mark(40, 1) + mark(60, 2) + mark(90, 4),
        ("L3: t[0] offset 1 ran at 50 (process 11) and again at 80", "L4"),
        rewinds=(Rewind(30, P, 1),),
        faults=(killed_driver(70),),
    ),
    # --- copies that stand for another run
    Case(
        "a copy that is there twice runs twice",
        ran(10, 0, 1, 3) + ran(90, 2, 2),
        mark(20, 4),
        copies=(copied(15, 2, dead=False), copied(17, 2, dead=False)),
        faults=(killed_driver(16),),
    ),
    Case(
        "one copy, one run more: a third is too much",
        ran(10, 0, 1, 3) + ran(90, 2, 2, 2),
        mark(20, 4),
        ("L3: t[0] offset 2 ran at 91",),
        copies=(copied(15, 2, dead=False),),
    ),
    Case(
        "a record that ran from a copy is not judged by the mark of where it lay",
        ran(10, 0, 1, 3) + ran(90, 2) + ran(120, 2, worker=21) + ran(150, 2, worker=31),
        mark(20, 4),
        copies=(copied(15, 2, dead=False),),
        faults=(killed_driver(100), killed_driver(130, SECOND)),
    ),
    Case(
        "killed with a record and its copy uncommitted: both run again, each once",
        ran(10, 0, 1, 2, 3) + ran(20, 2) + ran(50, 0, 1, 2, 3, worker=21) + ran(60, 2, worker=21),
        mark(70, 4),
        copies=(copied(15, 2, dead=False),),
        faults=(killed_driver(30),),
    ),
    Case(
        "a worker died with the record, and what ran its copy lives on: the record runs again behind the copy",
        ran(10, 0, 1, 2) + ran(20, 2, worker=12) + ran(50, 2, 3, worker=13),
        mark(11, 1) + mark(70, 4),
        copies=(copied(9, 2, dead=False),),
        faults=(killed_worker(30),),
    ),
    Case(
        "and a third time is too much for them as well",
        ran(10, 0, 1, 2, 3) + ran(20, 2) + ran(50, 0, 1, 2, 3, worker=21) + ran(60, 2, 2, worker=21),
        mark(70, 4),
        ("L3: t[0] offset 2 ran at 60 (process 21) and again at 61 (process 21): no fault came between",),
        copies=(copied(15, 2, dead=False),),
        faults=(killed_driver(30),),
    ),
    # --- faults that last
    Case(
        "a frozen driver's worker goes on beside its successor until it notices",
        ran(10, 0, 1) + ran(50, 1, 2, worker=21) + ran(62, 2) + ran(70, 3, worker=21),
        mark(15, 1) + mark(60, 3) + mark(80, 4),
        faults=(frozen(20, 50),),
    ),
    Case(
        "long after the thaw it has no excuse any more",
        ran(10, 0, 1) + ran(50, 1, 2, worker=21) + ran(82, 2) + ran(90, 3, worker=21),
        mark(15, 1) + mark(60, 3) + mark(95, 4),
        ("L3: t[0] offset 2 ran at 51 (process 21) and again at 82 (process 11): it was committed",),
        faults=(frozen(20, 50), killed_driver(75, 7)),
    ),
    Case(
        "the same where nothing else happened meanwhile: what was at work before it is no excuse for ever",
        ran(1_000, 0, 1) + ran(5_000, 1, 2, worker=21) + ran(82_000, 2) + ran(90_000, 3, worker=21),
        mark(1_500, 1) + mark(6_000, 3) + mark(95_000, 4),
        ("L3: t[0] offset 2 ran at 5001 (process 21) and again at 82000 (process 11): it was committed", "L4"),
        faults=(frozen(2_000, 5_000),),
    ),
    Case(
        "a worker of before may run again what is still open when it is over, as one that began anew",
        ran(1_000, 0) + ran(1_500, 1, 2, worker=21) + ran(40_000, 1, 2, 3),
        mark(1_200, 1) + mark(50_000, 4),
        faults=(Fault("broker_killed", 2_000, lasts_ms=15_000),),
    ),
    Case(
        "while it lasts a worker may be given what lay open, and nothing that was committed long before it was",
        ran(1_000, 0, 1) + ran(25_000, 1, 2, worker=21) + ran(40_000, 1, 2, worker=31) + ran(45_000, 3, worker=31),
        mark(1_500, 1) + mark(25_500, 3) + mark(50_000, 4),
        ("L3: t[0] offset 1 ran at 25000", "L3: t[0] offset 2 ran at 25001", "L4: t[0] went back from offset 2"),
        faults=(Fault("requests_delayed", 2_000, lasts_ms=60_000),),
    ),
    Case(
        "nor may the same worker, again and again",
        ran(1_000, 0, 1) + ran(15_000, 1) + ran(30_000, 1) + ran(31_000, 2, 3),
        mark(1_500, 1) + mark(15_500, 2) + mark(50_000, 4),
        ("L3: t[0] offset 1 ran at 15000 (process 11) and again at 30000", "L4: t[0] went back from offset 1"),
        faults=(Fault("requests_delayed", 2_000, lasts_ms=60_000),),
    ),
    Case(
        "what lasts for one driver excuses no other's repeats",
        ran(1_000, 0, 1, worker=21) + ran(3_000, 1, 2, 3, worker=31),
        mark(1_500, 1) + mark(5_000, 4),
        ("L3: t[0] offset 1 ran at 1001 (process 21) and again at 3000 (process 31): no fault", "L4"),
        faults=(Fault("driver_frozen", 2_000, driver=FIRST, lasts_ms=60_000),),
    ),
    Case(
        "and it excuses its own",
        ran(1_000, 0, 1) + ran(3_000, 1, 2, 3, worker=31),
        mark(1_500, 1) + mark(5_000, 4),
        faults=(Fault("driver_frozen", 2_000, driver=FIRST, lasts_ms=60_000),),
    ),
    Case(
        "the loss of another partition excuses nothing here",
        ran(1_000, 0, 1) + ran(3_000, 1, 2, 3, worker=31),
        mark(1_500, 1) + mark(5_000, 4),
        ("L3: t[0] offset 1", "L4"),
        faults=(Fault("partitions_lost", 2_000, lasts_ms=25_000, partitions=(Q,)),),
    ),
    Case(
        "the loss of this one does",
        ran(1_000, 0, 1) + ran(3_000, 1, 2, 3, worker=31),
        mark(1_500, 1) + mark(5_000, 4),
        faults=(Fault("partitions_lost", 2_000, lasts_ms=25_000, partitions=(Q, P)),),
    ),
    Case(
        "a program that was said to be killed, and works on after a minute, is no zombie",
        ran(1_000, 0, 1) + ran(5_000, 1, 2, 3, worker=21) + ran(65_000, 2),
        mark(1_500, 1) + mark(6_000, 4),
        ("L3: t[0] offset 2 ran at 5001 (process 21) and again at 65000 (process 11): no fault", "L4"),
        faults=(killed_driver(2_000),),
    ),
    # --- ahead, and rewinds, by L1
    Case(
        "what is named as ahead was settled before it was",
        ran(10, 0, 1, 3) + ran(30, 2),
        mark(11, 1, ((3, 4),)) + mark(40, 4),
        ("L1: t[0] offset 3 was ahead of the mark 1 committed at 11 and was settled 1 ms later",),
        order="none",
    ),
    Case(
        "a gap that is named as ahead needs nothing",
        ran(10, 0, 1, 3) + ran(30, 2),
        mark(12, 2, ((3, 9),)) + mark(40, 9),
        order="none",
    ),
    Case(
        "after a rewind a mark that passes its records again without running them is a lie",
        ran(10, 0, 1, 2, 3),
        mark(20, 4) + mark(40, 2) + mark(60, 4),
        (
            "L1: t[0] offset 2 lay below the mark 4 committed at 60 and was settled never",
            "L1: t[0] offset 3 lay below the mark 4 committed at 60 and was settled never",
        ),
        rewinds=(Rewind(30, P, 2),),
    ),
    Case(
        "what lay before the place of a rewind need not run again",
        ran(10, 0, 1, 2, 3) + ran(50, 2, 3),
        mark(20, 4) + mark(40, 2) + mark(60, 4),
        rewinds=(Rewind(30, P, 2),),
    ),
    # --- copies, and how often
    Case(
        "a letter that is there twice, and nothing happened",
        ran(10, 0, 1, 3),
        mark(20, 4),
        ("L3: t[0] offset 2 was copied to g.dead at 15 and again at 17: no fault came between",),
        copies=(copied(15, 2), copied(17, 2)),
    ),
    Case(
        "a letter that is there twice, since its writer was killed",
        ran(10, 0, 1, 3),
        mark(20, 4),
        copies=(copied(15, 2), copied(17, 2)),
        faults=(killed_driver(16),),
    ),
    Case(
        "a letter and an effect of the same pass",
        [],
        mark(5, 0) + mark(20, 4),
        ("L6: t[0] offset 2 was passed by the mark once and its effect is there once, and once in the dead letters",),
        effects=(0, 1, 2, 3),
        copies=(copied(15, 2),),
    ),
    Case(
        "a letter that was redriven, and then had its effect",
        [],
        mark(5, 0) + mark(20, 4),
        effects=(0, 1, 2, 3),
        copies=(copied(15, 2), redriven(30, 2)),
    ),
    # --- L6
    Case("each effect once", [], mark(5, 0) + mark(20, 4), effects=(0, 1, 2, 3)),
    Case(
        "an effect that is there twice",
        [],
        mark(5, 0) + mark(20, 4),
        ("L6: t[0] offset 2 was passed by the mark once and its effect is there twice",),
        effects=(0, 1, 2, 2, 3),
        order="none",
        faults=(killed_driver(10),),
    ),
    Case(
        "a mark without its effect",
        [],
        mark(5, 0) + mark(20, 4),
        (
            "L2: t[0] never settled: offsets 2",
            "L6: t[0] offset 2 was passed by the mark once and its effect is there never",
        ),
        effects=(0, 1, 3),
    ),
    Case(
        "an effect without its mark",
        [],
        mark(5, 0) + mark(20, 3),
        ("L6: t[0] offset 3 was passed by the mark never and its effect is there once",),
        effects=(0, 1, 2, 3),
    ),
    Case(
        "a dead letter in the place of an effect",
        [],
        mark(5, 0) + mark(20, 4),
        effects=(0, 1, 3),
        copies=(copied(15, 2),),
    ),
    Case(
        "a rewind makes the effects of its records twice",
        [],
        mark(5, 0) + mark(20, 4) + mark(40, 2) + mark(60, 4),
        effects=(0, 1, 2, 3, 2, 3),
        rewinds=(Rewind(30, P, 2),),
    ),
    Case(
        "a rewind whose effects did not come",
        [],
        mark(5, 0) + mark(20, 4) + mark(40, 2) + mark(60, 4),
        ("L6: t[0] offset 3 was passed by the mark twice and its effect is there once",),
        effects=(0, 1, 2, 3, 2),
        rewinds=(Rewind(30, P, 2),),
    ),
    Case(
        "a rewind before the end: the first pass went only so far",
        [],
        mark(5, 0) + mark(20, 3) + mark(40, 1) + mark(60, 4),
        effects=(0, 1, 2, 1, 2, 3),
        rewinds=(Rewind(30, P, 1),),
    ),
    Case(
        "effects that became visible in another order than their records lie in",
        [],
        mark(5, 0) + mark(20, 4),
        ("L4: t[0] the effect of offset 1 came behind that of offset 2, and no rewind was asked for",),
        effects=(0, 2, 1, 3),
        faults=(killed_driver(10),),
    ),
    Case(
        "the same, and no order was promised",
        [],
        mark(5, 0) + mark(20, 4),
        effects=(0, 2, 1, 3),
        order="none",
    ),
    Case(
        "one rewind is one step back, not two",
        [],
        mark(5, 0) + mark(20, 4) + mark(40, 1) + mark(60, 4),
        ("L4: t[0] the effect of offset 2 came behind that of offset 3, and no rewind was asked for",),
        effects=(0, 1, 2, 3, 1, 3, 2),
        rewinds=(Rewind(30, P, 1),),
    ),
    Case(
        "a step back to before where the rewind began",
        [],
        mark(5, 0) + mark(20, 4) + mark(40, 2) + mark(60, 4),
        ("L4: t[0] the effect of offset 1 came behind that of offset 3, and no rewind was asked for",),
        effects=(0, 2, 3, 1, 2, 3),
        rewinds=(Rewind(30, P, 2),),
    ),
    Case(
        "one with a copy has given its place up",
        [],
        mark(5, 0) + mark(20, 4),
        effects=(0, 2, 3, 1),
        copies=(copied(15, 1, dead=False),),
    ),
    Case(
        "what was not in what was produced",
        [],
        mark(5, 0) + mark(20, 4),
        ("L6: t[0] effects of records that nobody produced: offsets 9",),
        effects=(0, 1, 2, 3, 9),
    ),
    Case(
        "a sink has what was not in what was produced",
        ran(10, 0, 1, 2, 3, 7, 8),
        mark(20, 4),
        ("L6: t[0] effects of records that nobody produced: offsets 7-8",),
    ),
    Case(
        "where the sink keeps the marks they do not move back either",
        [],
        mark(5, 0) + mark(20, 4) + mark(30, 2),
        ("L5: t[0] moved back from mark 4 to 2 at 30",),
        effects=(0, 1, 2, 3),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.because)
def test_the_checker_names_each_breach_and_no_other(case: Case) -> None:
    found = [str(breach) for breach in check(case)]

    assert len(found) == len(case.breaches), found
    for sentence, expected in zip(found, case.breaches, strict=True):
        assert sentence.startswith(expected)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.because)
def test_another_partitions_lawful_history_changes_nothing(case: Case) -> None:
    others = ran(0, 0, 1, 2, worker=99, partition=Q)
    both = replace(case, events=[*others, *case.events], commits=[*case.commits, *mark(7, 3, partition=Q)])
    produced = places(P, *case.produced) | places(Q, *(() if case.effects else range(3)))

    assert check(both, produced) == check(case)


def test_every_law_has_a_history_that_breaks_it() -> None:
    broken = {one.law for case in CASES for one in check(case)}

    assert broken == {"L1", "L2", "L3", "L4", "L5", "L6"}


def parts_of(at_ms: int, *ids: str) -> Events:
    """Settle these children and sinks of the first record: `"1/0"` is the second child in the first sink."""
    return [replace(ran(at_ms + place, 0)[0], stable_id=f"g:t:0:0/{one}") for place, one in enumerate(ids)]


def test_the_children_of_a_record_are_no_step_back() -> None:
    events = [*parts_of(10, "0/0", "0/1", "1/0", "1/1"), *ran(20, 1)]

    assert check_laws(places(P, 0, 1), events, mark(30, 2)) == []


def test_a_child_that_comes_twice_is_a_repeat() -> None:
    events = [*parts_of(10, "0/0", "0/1", "0/0")]
    breaches = check_laws(places(P, 0), events, mark(30, 1))

    assert [one.law for one in breaches] == ["L3"]


def test_each_part_keeps_the_laws_by_itself() -> None:
    late = parts_of(40, "1/1")
    parts = by_part([*parts_of(10, "0/0", "0/1", "1/0"), *late])

    assert list(parts) == ["0/0", "0/1", "1/0", "1/1"]
    assert parts["1/1"] == late
    found = {part: check_laws(places(P, 0), events, mark(30, 1)) for part, events in parts.items()}
    assert [str(one) for one in found.pop("1/1")] == [
        "L1: t[0] offset 0 lay below the mark 1 committed at 30 and was settled 10 ms later"
    ]
    assert set(map(tuple, found.values())) == {()}


def test_a_breach_lists_the_records_that_it_concerns() -> None:
    events = [*ran(10, 0, 1, 0, 9), *ran(10, 0, partition=Partition("another", 0))]
    found = check_laws(places(P, 0, 1, 2, 3), events, mark(20, 3) + mark(30, 1))

    assert [(one.law, set(one.records)) for one in found] == [
        ("L1", places(P, 2)),
        ("L2", places(P, 2, 3)),
        ("L3", places(P, 0)),
        ("L4", places(P, 0)),
        ("L5", set()),
        ("L6", places(P, 9)),
    ], "and nothing is said of a topic of which nothing is known"


def test_a_record_that_only_began_is_not_settled() -> None:
    began = [replace(event, kind="began") for event in ran(10, 0, 1)]
    breaches = check_laws({("t", 0, 0), ("t", 0, 1)}, began, mark(20, 0))

    assert [str(breach) for breach in breaches] == ["L2: t[0] never settled: offsets 0-1"]
