"""Pure: which offsets the next DataFrame round covers, what it is called, and how its tasks share the reading.

No client, no clock, no thread. A round is named once, before anything of it is written; whoever repeats it reads the
name from the group's commits. Names grow: their number is that of the round before plus one, or the time in
milliseconds, whichever is larger. So they grow on even where somebody has wiped the metadata of the commits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import orjson

from tidegate.ledger import plan_characters
from tidegate.records import Partition, PlannedRound, Position

FIRST_RECORDS = 10_000
"""Most offsets of a round while nothing is known about the size of records and the speed of the writer."""
LEAST_RECORDS = 100
"""However slow or large: a round of fewer would be nothing but its fixed costs."""
LEAST_SLICE = 5_000
"""A task that reads fewer offsets costs more than it gains."""
NAMES_CHARACTERS = 2_000
"""Room for the names of a round's partitions in each of their commits."""


@dataclass(frozen=True)
class RoundLimits:
    """What bounds a DataFrame round. Records is exact (in offsets), bytes and seconds are aimed at."""

    records: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Pace:
    """What earlier rounds of this run showed; nothing before the first."""

    bytes_each: float = 0.0
    seconds_each: float = 0.0

    def after(self, records: int, size: int, seconds: float) -> Pace:
        """Learn from one more round; the newest counts half."""
        if records <= 0:
            return self
        each = Pace(max(1.0, size / records), max(1e-9, seconds / records))
        if not self.bytes_each:
            return each
        return Pace((self.bytes_each + each.bytes_each) / 2, (self.seconds_each + each.seconds_each) / 2)

    def most_records(self, limits: RoundLimits) -> int:
        """Return how many offsets the next round may cover."""
        if not self.bytes_each:
            return min(limits.records, FIRST_RECORDS)
        wanted = min(limits.bytes / self.bytes_each, limits.seconds / self.seconds_each)
        return min(limits.records, max(LEAST_RECORDS, int(wanted)))


def share(backlogs: Mapping[Partition, int], most: int, turn: int = 0) -> dict[Partition, int]:
    """Give each partition its part of a round: equal parts, and what one does not need goes to the others.

    Where there are fewer places than partitions, `turn` says with whom to begin, so that nobody waits for ever.
    """
    waiting = sorted((backlog, tp) for tp, backlog in backlogs.items() if backlog > 0)
    if most < len(waiting):
        by_name = sorted(tp for _, tp in waiting)
        first = turn % len(by_name) if by_name else 0
        return dict.fromkeys((by_name[first:] + by_name[:first])[:most], 1)
    given, left = {}, most
    for at, (backlog, tp) in enumerate(waiting):
        given[tp] = min(backlog, left // (len(waiting) - at))
        left -= given[tp]
    return given


def fitting(partitions: Sequence[Partition], turn: int = 0) -> list[Partition]:
    """Return the partitions of one round: as many as can be named in each of their commits."""
    names = sorted(partitions)
    first = turn % len(names) if names else 0
    chosen = names[first:] + names[:first]
    while plan_characters(chosen) > NAMES_CHARACTERS and len(chosen) > 1:
        chosen = chosen[: max(1, len(chosen) * 3 // 4)]
    return sorted(chosen)


def number_of(round_id: str) -> int:
    """Return the number of a round from its name; 0 for what is no name of ours."""
    number, _, _ = round_id.partition("-")
    return int(number) if number.isascii() and number.isdigit() else 0


def next_number(positions: Iterable[Position], now_ms: int) -> int:
    """Return a number larger than that of every round known to these partitions."""
    known = [number_of(one.finished) for one in positions]
    known += [number_of(one.planned.id) for one in positions if one.planned is not None]
    return max(1 + max(known, default=0), now_ms)


def plan(
    group: str, positions: Mapping[Partition, Position], ends: Mapping[Partition, int], number: int
) -> dict[Partition, PlannedRound]:
    """Plan a round over these partitions, each from its mark to its end."""
    names = tuple(sorted(ends))
    covered = [[*tp, positions[tp].mark, ends[tp], positions[tp].replay] for tp in names]
    digest = hashlib.blake2b(orjson.dumps([group, covered]), digest_size=6).hexdigest()
    return {tp: PlannedRound(f"{number}-{digest}", ends[tp], names) for tp in names}


def after(position: Position) -> Position:
    """Return where a partition stands when its planned round is written."""
    if position.planned is None:
        return position
    end = position.planned.end
    ahead = tuple((max(first, end), last) for first, last in position.ahead if last > end)
    return Position(end, ahead, replay=position.replay, finished=position.planned.id)


@dataclass(frozen=True)
class Slice:
    """What one task reads: a stretch of one partition, without what was settled before."""

    partition: Partition
    start: int
    end: int
    settled: tuple[tuple[int, int], ...] = ()

    def wants(self, record_offset: int) -> bool:
        """Whether this record is still to be done."""
        return not any(first <= record_offset < end for first, end in self.settled)


def slices(positions: Mapping[Partition, Position], tasks: int) -> list[Slice]:
    """Divide the planned ranges among tasks: a long one is split, so that all tasks have about as much to read."""
    spans = {
        tp: (one.mark, one.planned.end, one.ahead) for tp, one in sorted(positions.items()) if one.planned is not None
    }
    total = sum(end - start for start, end, _ in spans.values())
    size = max(LEAST_SLICE, -(-total // max(1, tasks)))
    found = []
    for tp, (start, end, ahead) in spans.items():
        count = -(-(end - start) // size)
        edges = [start + (end - start) * at // count for at in range(count + 1)] if count else []
        found += [Slice(tp, first, last, ahead) for first, last in pairwise(edges)]
    return found
