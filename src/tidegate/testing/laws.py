"""Pure: the laws L1 to L5, checked from what a record log and the group's commits say.

All times are milliseconds of one clock: broker and workers run on one machine.
Proved by a table of good and bad histories in `tests/unit/test_laws.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from tidegate.ledger import decode_any
from tidegate.records import Partition, Position

if TYPE_CHECKING:
    from tidegate.kafka.commits import CommitSeen
    from tidegate.testing.copies import CopySeen
    from tidegate.testing.record_log import Event, Fault

Law = Literal["L1", "L2", "L3", "L4", "L5"]
Order = Literal["partition", "key", "none"]
Produced = Collection[tuple[str, int, int]]
"""Records by topic, partition and offset."""


@dataclass(frozen=True, slots=True)
class Breach:
    """One law that did not hold, where, and how that is known."""

    law: Law
    partition: Partition
    sentence: str

    def __str__(self) -> str:
        return f"{self.law}: {self.partition} {self.sentence}"


def check_laws(
    produced: Produced,
    events: Iterable[Event],
    commits: Iterable[CommitSeen],
    faults: Iterable[Fault] = (),
    *,
    copies: Iterable[CopySeen] = (),
    order: Order = "partition",
) -> list[Breach]:
    """Return every breach of a history; none means that it was lawful.

    `produced`: the records that should reach the sink (none that a filter drops, none before a chosen
    start). `events` in the order of the record log. `commits` as `read_commits` gives them. `copies` as
    `read_copies` gives them: a record with a copy is settled where it lay, and one in the dead letters for good.
    `order`: what the pipeline promised; a record that has a copy has given its place up.
    """
    history = _History(produced, events, commits, faults, copies)
    return [
        *_marks_cover_settled_records_only(history),
        *_everything_is_settled(history),
        *_repeats_follow_faults(history),
        *(() if order == "none" else _order_holds(history, order)),
        *_marks_never_move_back(history),
    ]


class _History:
    """A history sorted by partition."""

    def __init__(
        self,
        produced: Produced,
        events: Iterable[Event],
        commits: Iterable[CommitSeen],
        faults: Iterable[Fault],
        copies: Iterable[CopySeen],
    ) -> None:
        self.copies: dict[Partition, dict[int, int]] = defaultdict(dict)
        self.dead: dict[Partition, set[int]] = defaultdict(set)
        for copy in copies:
            known = self.copies[copy.partition]
            known[copy.record_offset] = min(copy.at_ms, known.get(copy.record_offset, copy.at_ms))
            if copy.is_dead:
                self.dead[copy.partition].add(copy.record_offset)
        self.produced: dict[Partition, list[int]] = defaultdict(list)
        for topic, number, record_offset in sorted(produced):
            self.produced[Partition(topic, number)].append(record_offset)
        self.events: dict[Partition, list[Event]] = defaultdict(list)
        for event in events:
            if event.kind == "settled":
                self.events[event.partition].append(event)
        self.commits: dict[Partition, list[CommitSeen]] = defaultdict(list)
        for commit in sorted(commits, key=lambda one: one.log_offset):
            self.commits[commit.partition].append(commit)
        self.faults = sorted(faults, key=lambda fault: fault.at_ms)
        self._deaths = {fault.driver: fault.at_ms for fault in reversed(self.faults) if fault.driver is not None}
        self._known: dict[tuple[Partition, int], Position] = {}

    def first_settled(self, partition: Partition) -> dict[int, int]:
        """When each record of a partition was settled first: by its sink, or by a copy."""
        first: dict[int, int] = dict(self.copies[partition])
        for event in self.events[partition]:
            first[event.record_offset] = min(event.at_ms, first.get(event.record_offset, event.at_ms))
        return first

    def committed_at(self, partition: Partition, at_ms: int) -> Position:
        """What the group had committed at this moment."""
        place = (partition, at_ms)
        if place not in self._known:
            # A mark that moved back and one that was deleted take nothing back here: L5 tells of them.
            marks = [one for one in self.commits[partition] if one.mark is not None and one.committed_at_ms <= at_ms]
            self._known[place] = _position(max(reversed(marks), key=_mark)) if marks else Position(0)
        return self._known[place]

    def took_effect_at(self, event: Event) -> int:
        """The event's time; for the last work of a killed program the moment of the kill.

        Its tasks live on for some seconds. What they do then was begun before, from a mark of before.
        """
        return min(event.at_ms, self._deaths.get(event.driver, event.at_ms))

    def may_repeat(self, event: Event, fault: Fault) -> bool:
        """Whether this record lay open when the fault came."""
        position = self.committed_at(event.partition, fault.at_ms)
        is_ahead = any(first <= event.record_offset < end for first, end in position.ahead)
        return event.record_offset >= position.mark and not is_ahead


def _mark(commit: CommitSeen) -> int:
    return commit.mark or 0


def _position(commit: CommitSeen) -> Position:
    return decode_any(commit.group, commit.partition, _mark(commit), commit.metadata).position


# --- L1


def _marks_cover_settled_records_only(history: _History) -> Iterator[Breach]:
    """Each record was settled before the first mark that covers it."""
    for partition, record_offsets in history.produced.items():
        settled = history.first_settled(partition)
        left = iter(record_offsets)
        record_offset = next(left, None)
        for commit in history.commits[partition]:
            while record_offset is not None and commit.mark is not None and record_offset < commit.mark:
                at_ms = settled.get(record_offset)
                if at_ms is None or at_ms > commit.committed_at_ms:
                    late = "never" if at_ms is None else f"{at_ms - commit.committed_at_ms} ms later"
                    yield Breach(
                        "L1",
                        partition,
                        f"offset {record_offset} lay below the mark {commit.mark} committed at "
                        f"{commit.committed_at_ms} and was settled {late}",
                    )
                record_offset = next(left, None)


# --- L2


def _everything_is_settled(history: _History) -> Iterator[Breach]:
    for partition, record_offsets in history.produced.items():
        # A copy in a retry topic is not the end of its record: it must reach a sink or the dead letters.
        settled = {event.record_offset for event in history.events[partition]} | history.dead[partition]
        missing = [record_offset for record_offset in record_offsets if record_offset not in settled]
        if missing:
            yield Breach("L2", partition, f"never settled: offsets {_ranges(missing)}")


def _ranges(numbers: Sequence[int]) -> str:
    ends = [place for place, (one, other) in enumerate(pairwise(numbers), 1) if other != one + 1]
    parts = [numbers[first:end] for first, end in pairwise([0, *ends, len(numbers)])]
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


# --- L3


def _repeats_follow_faults(history: _History) -> Iterator[Breach]:
    """A record runs again only if a fault ended what ran it, and no fault since then found it committed."""
    for partition, events in history.events.items():
        effects: dict[str, list[Event]] = defaultdict(list)
        for event in sorted(events, key=history.took_effect_at):
            effects[event.stable_id].append(event)
        for runs in effects.values():
            for earlier, later in pairwise(runs):
                why = _why_no_repeat(history, earlier, later)
                if why:
                    yield Breach(
                        "L3",
                        partition,
                        f"offset {later.record_offset} ran at {earlier.at_ms} (process {earlier.pid}) and again at "
                        f"{later.at_ms} (process {later.pid}): {why}",
                    )


def _why_no_repeat(history: _History, earlier: Event, later: Event) -> str | None:
    if not any(_parts(fault, earlier, later) for fault in history.faults):
        return "no fault came between"
    # The mark only grows: whoever ran it again began at the mark of the last fault, or later.
    last = [fault for fault in history.faults if fault.at_ms <= history.took_effect_at(later)][-1]
    return None if history.may_repeat(later, last) else f"it was committed when {last.kind} came at {last.at_ms}"


def _parts(fault: Fault, earlier: Event, later: Event) -> bool:
    """Whether the fault ended what ran the first event, and something else ran the second."""
    if fault.at_ms > later.at_ms:
        return False
    if fault.driver is not None:
        return earlier.driver == fault.driver and later.run != earlier.run
    if fault.worker is not None:
        return earlier.pid == fault.worker and later.process != earlier.process
    return earlier.at_ms <= fault.at_ms


# --- L4


def _order_holds(history: _History, order: Order) -> Iterator[Breach]:
    for partition, events in history.events.items():
        lines: dict[bytes | None, list[Event]] = defaultdict(list)
        for event in events:
            if event.record_offset in history.copies[partition]:
                continue
            if order == "partition":
                lines[None].append(event)
            elif event.key is not None:
                lines[event.key].append(event)
        for line in lines.values():
            yield from _first_runs_increase(partition, line)
            yield from _steps_back_follow_faults(history, partition, line)


def _first_runs_increase(partition: Partition, line: list[Event]) -> Iterator[Breach]:
    """No fault excuses this: a restart repeats, and reaches what is new in the old order."""
    seen: set[int] = set()
    newest: Event | None = None
    for event in line:
        if event.record_offset in seen:
            continue
        seen.add(event.record_offset)
        if newest is not None and event.record_offset < newest.record_offset:
            yield Breach(
                "L4",
                partition,
                f"offset {event.record_offset} ran first at {event.at_ms}, after offset {newest.record_offset} "
                f"at {newest.at_ms}",
            )
        else:
            newest = event


def _steps_back_follow_faults(history: _History, partition: Partition, line: list[Event]) -> Iterator[Breach]:
    """After a fault a partition may go back, as far as the mark that was committed then."""
    # What a killed program's tasks still do runs beside its successor: it has no place in the order.
    living = [event for event in line if history.took_effect_at(event) == event.at_ms]
    for earlier, later in pairwise(living):
        if later.record_offset > earlier.record_offset:
            continue
        between = [fault for fault in history.faults if _parts(fault, earlier, later)]
        if not any(history.may_repeat(later, fault) for fault in between):
            why = f"behind the mark committed when {between[0].kind} came" if between else "and no fault came between"
            yield Breach(
                "L4",
                partition,
                f"went back from offset {earlier.record_offset} at {earlier.at_ms} to {later.record_offset} "
                f"at {later.at_ms}, {why}",
            )


# --- L5


def _marks_never_move_back(history: _History) -> Iterator[Breach]:
    for partition, commits in history.commits.items():
        highest = 0
        for commit in commits:
            if commit.mark is None:
                yield Breach("L5", partition, f"lost its mark {highest}: the group's offset was deleted")
            elif commit.mark < highest:
                yield Breach(
                    "L5",
                    partition,
                    f"moved back from mark {highest} to {commit.mark} at {commit.committed_at_ms}",
                )
            highest = max(highest, _mark(commit))
