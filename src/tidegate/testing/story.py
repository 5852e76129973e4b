"""Pure: what happened to a group, sorted by partition: the facts on which the laws are checked."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from tidegate.ledger import decode_any
from tidegate.records import Partition, Position

if TYPE_CHECKING:
    from tidegate.kafka.commits import CommitSeen
    from tidegate.testing.copies import CopySeen
    from tidegate.testing.record_log import Event, Fault, Rewind

Law = Literal["L1", "L2", "L3", "L4", "L5", "L6"]
Place = tuple[str, int, int]
"""A record by topic, partition and offset."""
Produced = Collection[Place]


class InOrder(tuple[Place, ...]):
    """Effects in the order in which they became visible."""

    __slots__ = ()


ZOMBIE_MS = 30_000
"""A killed program's tasks may go on for so long: an attempt has its time. Whoever works later is no zombie."""
LEASED_MS = 10_000
"""So long before its first record a round may have been told where to begin: its task had to start first."""


@dataclass(frozen=True, slots=True)
class Breach:
    """One law that did not hold, where, and how that is known."""

    law: Law
    partition: Partition
    sentence: str
    records: tuple[Place, ...] = ()
    """The records concerned; none where it concerns the mark itself."""

    def __str__(self) -> str:
        return f"{self.law}: {self.partition} {self.sentence}"


@dataclass(frozen=True, slots=True)
class StepBack:
    """A commit whose mark lies before an earlier one's."""

    at_ms: int
    log_offset: int
    """The commit's own place, which orders what happened in one millisecond."""
    highest: int
    """The highest mark before it."""
    mark: int
    asked_ms: int | None
    """When somebody asked for it; None: nobody did."""


class Story:
    """All that is known of one group."""

    def __init__(  # what a story is made of comes from six places
        self,
        produced: Produced,
        events: Iterable[Event],
        commits: Iterable[CommitSeen],
        faults: Iterable[Fault],
        copies: Iterable[CopySeen],
        rewinds: Iterable[Rewind],
        effects: Iterable[Place] | None,
    ) -> None:
        self.copies: dict[Partition, dict[int, int]] = defaultdict(dict)
        self.letters: dict[tuple[Partition, int], list[CopySeen]] = defaultdict(list)
        """All copies of a record."""
        self._settlings: dict[Partition, list[tuple[int, int]]] = defaultdict(list)
        self.passes_left: Counter[tuple[Partition, int]] = Counter()
        """How many copies wait, or waited, for another pass of their record."""
        self.dead: dict[Partition, set[int]] = defaultdict(set)
        for copy in copies:
            known = self.copies[copy.partition]
            known[copy.record_offset] = min(copy.at_ms, known.get(copy.record_offset, copy.at_ms))
            self.letters[copy.partition, copy.record_offset].append(copy)
            self._settlings[copy.partition].append((copy.record_offset, copy.at_ms))
            if copy.is_dead:
                self.dead[copy.partition].add(copy.record_offset)
            else:
                self.passes_left[copy.partition, copy.record_offset] += 1
        self.produced: dict[Partition, list[int]] = defaultdict(list)
        for topic, number, record_offset in sorted(produced):
            self.produced[Partition(topic, number)].append(record_offset)
        self.wanted = defaultdict(set, {place: set(offsets) for place, offsets in self.produced.items()})
        self.events: dict[Partition, list[Event]] = defaultdict(list)
        for event in events:
            if event.kind == "settled":
                self.events[event.partition].append(event)
                self._settlings[event.partition].append((event.record_offset, event.at_ms))
        self.effects: dict[Partition, Counter[int]] = defaultdict(Counter)
        self.effects_seen: dict[Partition, list[int]] = defaultdict(list)
        """In the order in which they were handed over."""
        for topic, number, record_offset in effects or ():
            self.effects[Partition(topic, number)][record_offset] += 1
            self.effects_seen[Partition(topic, number)].append(record_offset)
        self.commits: dict[Partition, list[CommitSeen]] = defaultdict(list)
        for commit in sorted(commits, key=lambda one: one.log_offset):
            self.commits[commit.partition].append(commit)
        asked = sorted(rewinds, key=lambda one: one.at_ms)
        self.steps_back = {partition: _steps_back(known, asked) for partition, known in self.commits.items()}
        self.faults = sorted(faults, key=lambda fault: fault.at_ms)
        ended = [fault for fault in self.faults if fault.driver is not None and not fault.lasts_ms]
        self._deaths = {fault.driver: fault.at_ms for fault in reversed(ended)}
        self._known: dict[tuple[Partition, int], Position] = {}
        self._stretches: dict[int, int] = {}
        """By event (its id), when its worker began to go through the partition as it did then."""

    def first_settled(self, partition: Partition, since_ms: float = -math.inf) -> dict[int, int]:
        """When each record of a partition was settled first since then: by its sink, or by a copy."""
        first: dict[int, int] = {}
        for record_offset, at_ms in self._settlings[partition]:
            if at_ms >= since_ms:
                first[record_offset] = min(at_ms, first.get(record_offset, at_ms))
        return first

    def journeys(self, partition: Partition) -> Iterator[tuple[float, list[CommitSeen]]]:
        """Give the commits between two rewinds that were asked for, with the time since when they speak of."""
        known = [one for one in self.commits[partition] if one.mark is not None]
        asked = self._asked(partition)
        for step, end in zip((None, *asked), (*asked, None), strict=True):
            first = -1 if step is None else step.log_offset
            last = math.inf if end is None else end.log_offset
            since_ms = -math.inf if step is None else step.at_ms
            yield since_ms, [one for one in known if first <= one.log_offset < last]

    def position_of(self, commit: CommitSeen) -> Position:
        """All that a commit stores."""
        return _position(commit)

    def committed_at(self, partition: Partition, at_ms: int) -> Position:
        """What the group had committed at this moment, since the last rewind before it."""
        place = (partition, at_ms)
        if place not in self._known:
            # A mark that moved back unasked and one that was deleted take nothing back here: L5 tells of them.
            marks = [one for one in self.commits[partition] if one.mark is not None and one.committed_at_ms <= at_ms]
            back = max((step.log_offset for step in self._asked(partition) if step.at_ms <= at_ms), default=-1)
            marks = [one for one in marks if one.log_offset >= back]
            self._known[place] = _position(max(reversed(marks), key=mark_of)) if marks else Position(0)
        return self._known[place]

    def passes(self, partition: Partition) -> list[tuple[int, int]]:
        """Which offsets were passed by the mark, from and to, one pair for each time that it went over them."""
        each = [list(map(mark_of, commits)) for _, commits in self.journeys(partition)]
        return [(marks[0], max(marks)) for marks in each if marks]

    def was_rewound(self, earlier: Event, later: Event) -> bool:
        """Whether somebody asked for the second of these runs."""
        return any(
            step.mark <= later.record_offset and earlier.at_ms <= step.at_ms and (step.asked_ms or 0) <= later.at_ms
            for step in self._asked(later.partition)
        )

    def took_effect_at(self, event: Event) -> int:
        """The event's time; for the last work of a killed program the moment of the kill.

        Its tasks live on for some seconds. What they do then was begun before, from a mark of before.
        """
        died_ms = self._deaths.get(event.driver, event.at_ms)
        return died_ms if died_ms < event.at_ms <= died_ms + ZOMBIE_MS else event.at_ms

    def may_repeat(self, event: Event, fault: Fault) -> bool:
        """Whether this record lay open when the fault came; if that lasted, when what ran it can have been begun.

        What was at work before such a fault may still be until it is over; what runs later was begun anew.
        """
        copied_ms = self.copies[event.partition].get(event.record_offset)
        if copied_ms is not None and copied_ms <= event.at_ms:
            return True  # it ran from a copy, whose own place in its topic is another
        at_ms = fault.at_ms
        if fault.lasts_ms:
            began_ms = self._stretch_began(event)
            if began_ms < fault.at_ms and event.at_ms > fault.at_ms + fault.lasts_ms:
                began_ms = event.at_ms
            at_ms = max(at_ms, min(began_ms - LEASED_MS, self.took_effect_at(event)))
        position = self.committed_at(event.partition, at_ms)
        is_ahead = any(first <= event.record_offset < end for first, end in position.ahead)
        return event.record_offset >= position.mark and not is_ahead

    def may_copy_again(self, first: CopySeen, second: CopySeen) -> bool:
        """Whether something came between two copies that say the same: a fault, or a rewind that was asked for."""
        return any(
            fault.at_ms <= second.at_ms and first.at_ms <= fault.at_ms + max(fault.lasts_ms, ZOMBIE_MS)
            for fault in self.faults
        ) or any(first.at_ms <= step.at_ms <= second.at_ms for step in self._asked(first.partition))

    def first_over(self, copy: CopySeen) -> CommitSeen | None:
        """Return the first commit of a copy's own topic whose mark has passed it."""
        if copy.lies_at is None:
            return None
        number, at = copy.lies_at
        known = self.commits.get(Partition(copy.topic, number), ())
        return next((one for one in known if mark_of(one) > at), None)

    def has_letter_left(self, partition: Partition, record_offset: int) -> bool:
        """Whether one of its dead letters was not sent back."""
        known = self.letters.get((partition, record_offset), ())
        redriven = {one.said.redriven_from for one in known} - {None}
        return sum(one.is_dead for one in known) > len(redriven)

    def times_given_up(self, partition: Partition, record_offset: int) -> int:
        """How many passes ended in the dead letters: their copies may be there twice, and those redriven went on."""
        known = self.letters.get((partition, record_offset), ())
        passes = {(one.said.replay, one.said.redrives) for one in known if one.is_dead}
        redriven = {one.said.redriven_from for one in known} - {None}
        return max(0, len(passes) - len(redriven))

    def _stretch_began(self, event: Event) -> int:
        """When its worker began to go through the partition as it did then: with the first record that it repeats."""
        if id(event) not in self._stretches:
            began: dict[str, int] = {}
            seen: dict[str, set[int]] = {}
            for one in sorted(self.events[event.partition], key=lambda one: one.at_ms):
                if one.record_offset in seen.setdefault(one.process, set()):
                    seen[one.process].clear()
                    del began[one.process]
                seen[one.process].add(one.record_offset)
                self._stretches[id(one)] = began.setdefault(one.process, one.at_ms)
        return self._stretches[id(event)]

    def _asked(self, partition: Partition) -> list[StepBack]:
        return [step for step in self.steps_back.get(partition, ()) if step.asked_ms is not None]


def by_part(events: Iterable[Event]) -> dict[str, list[Event]]:
    """Sort events by child and sink, as their stable ids name them: `"1/0"` is the second child in the first sink.

    A pipeline with `flat_map` or several sinks has several effects of a record. Where every record has the same ones,
    each part keeps the laws by itself: so judged, a mark may pass a record only when all of its parts are settled.
    """
    parts: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        parts[event.stable_id.rpartition(":")[2].partition("/")[2]].append(event)
    return dict(parts)


def breach(law: Law, partition: Partition, record_offsets: Iterable[int], sentence: str) -> Breach:
    """Make one that concerns these records of the partition."""
    return Breach(law, partition, sentence, tuple((*partition, at) for at in record_offsets))


def mark_of(commit: CommitSeen) -> int:
    """The mark that a commit stores; 0 where it takes one away."""
    return commit.mark or 0


def _position(commit: CommitSeen) -> Position:
    return decode_any(commit.group, commit.partition, mark_of(commit), commit.metadata).position


def _steps_back(commits: Sequence[CommitSeen], asked: Iterable[Rewind]) -> list[StepBack]:
    """Find the steps back of one partition, each with the rewind that asked for it; none is asked for twice."""
    found: list[StepBack] = []
    open_requests = list(asked)
    highest = 0
    for commit in commits:
        mark = mark_of(commit)
        if commit.mark is not None and mark < highest:
            fits = [
                one
                for one in open_requests
                if (one.partition, one.to) == (commit.partition, mark) and one.at_ms <= commit.committed_at_ms
            ]
            if fits:
                open_requests.remove(fits[0])
            asked_ms = fits[0].at_ms if fits else None
            found.append(StepBack(commit.committed_at_ms, commit.log_offset, highest, mark, asked_ms))
            highest = mark if fits else highest
        highest = max(highest, mark)
    return found


def pairs(wanted: Sequence[Sequence[int]]) -> dict[int, int]:
    """Give as many places as can be one of those that they want, each to one of them: place by place."""
    holders: dict[int, int] = {}

    def seat(place: int, tried: set[int]) -> bool:
        for choice in wanted[place]:
            if choice not in tried:
                tried.add(choice)
                if choice not in holders or seat(holders[choice], tried):
                    holders[choice] = place
                    return True
        return False

    for place in range(len(wanted)):
        seat(place, set())
    return {place: choice for choice, place in holders.items()}


def ranges(numbers: Sequence[int]) -> str:
    """Write sorted numbers for people: `0, 2-3`."""
    ends = [place for place, (one, other) in enumerate(pairwise(numbers), 1) if other != one + 1]
    parts = [numbers[first:end] for first, end in pairwise([0, *ends, len(numbers)])]
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
