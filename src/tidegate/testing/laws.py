"""Pure: the laws L1 to L6, checked from what a record log, the group's commits and its effects say.

All times are milliseconds of one clock: broker and workers run on one machine.
Proved by a table of good and bad histories in `tests/unit/test_laws.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Literal

from tidegate.records import Partition
from tidegate.testing.story import ZOMBIE_MS, Breach, InOrder, Place, Produced, Story, breach, mark_of, pairs, ranges

if TYPE_CHECKING:
    from tidegate.kafka.commits import CommitSeen
    from tidegate.testing.copies import CopySeen
    from tidegate.testing.record_log import Event, Fault, Rewind

Order = Literal["partition", "key", "none"]


def check_laws(  # what happened is told by that many witnesses
    produced: Produced,
    events: Iterable[Event],
    commits: Iterable[CommitSeen],
    faults: Iterable[Fault] = (),
    *,
    copies: Iterable[CopySeen] = (),
    rewinds: Iterable[Rewind] = (),
    effects: Iterable[Place] | None = None,
    order: Order = "partition",
) -> list[Breach]:
    """Return every breach of a history; none means that it was lawful.

    `produced`: the records that should reach the sink (none that a filter drops, none before a chosen
    start). `events` in the order of the record log. `commits` as `read_commits` gives them. `copies` as
    `read_copies` gives them: a record with a copy is settled where it lay, and one in the dead letters for good.
    `rewinds`: what was asked for, noted before. `order`: what the pipeline promised; a record that has a copy
    has given its place up.

    `effects`: where the sink keeps the marks, one place for each effect that can be seen when nothing runs any more.
    They take the place of events: L2, L5 and L6 are checked, since each effect came with its mark, or not at all.
    Of events as of effects, those of records that nobody produced are breaches of L6.
    As `InOrder`, L4 is checked as well, where the order "partition" was promised.

    Several effects of one record (`flat_map`, several sinks) are judged one by one with `by_part`.
    """
    story = Story(produced, events, commits, faults, copies, rewinds, effects)
    if effects is not None:
        return [
            *_everything_is_settled(story),
            *_copies_follow_faults(story),
            *_marks_never_move_back(story),
            *_effects_are_there_once(story),
            *_effects_are_of_records(story),
            *(_effects_keep_their_order(story) if isinstance(effects, InOrder) and order == "partition" else ()),
        ]
    return [
        *_marks_cover_settled_records_only(story),
        *_marks_cover_copies_that_went_on(story),
        *_everything_is_settled(story),
        *_repeats_follow_faults(story),
        *_copies_follow_faults(story),
        *(() if order == "none" else _order_holds(story, order)),
        *_marks_never_move_back(story),
        *_events_are_of_records(story),
    ]


# --- L1


def _marks_cover_settled_records_only(story: Story) -> Iterator[Breach]:
    """Each record was settled before the first mark that covers it, or that names it as ahead; again after a rewind."""
    for partition, record_offsets in story.produced.items():
        for since_ms, commits in story.journeys(partition):
            yield from _covered_too_early(story, partition, record_offsets, since_ms, commits)


def _covered_too_early(
    story: Story, partition: Partition, record_offsets: list[int], since_ms: float, commits: list[CommitSeen]
) -> Iterator[Breach]:
    settled = story.first_settled(partition, since_ms)
    covered: set[int] = set()
    reached = bisect_left(record_offsets, mark_of(commits[0])) if since_ms > 0 and commits else 0
    for commit in commits:
        end = bisect_left(record_offsets, mark_of(commit))
        below, reached = record_offsets[reached:end], max(reached, end)
        ahead = _within(record_offsets, story.position_of(commit).ahead) if commit.metadata else []
        for record_offset in (*below, *ahead):
            if record_offset in covered:
                continue
            covered.add(record_offset)
            at_ms = settled.get(record_offset)
            if at_ms is None or at_ms > commit.committed_at_ms:
                late = "never" if at_ms is None else f"{at_ms - commit.committed_at_ms} ms later"
                where = "lay below" if record_offset < mark_of(commit) else "was ahead of"
                yield breach(
                    "L1",
                    partition,
                    [record_offset],
                    f"offset {record_offset} {where} the mark {commit.mark} committed at "
                    f"{commit.committed_at_ms} and was settled {late}",
                )


def _marks_cover_copies_that_went_on(story: Story) -> Iterator[Breach]:
    """Of each copy in a retry or redrive topic something came before its own mark: an effect, or another copy."""
    ran: dict[tuple[Partition, int], list[int]] = defaultdict(list)
    for event in chain.from_iterable(story.events.values()):
        ran[event.partition, event.record_offset].append(event.at_ms)
    for (partition, record_offset), copies in story.letters.items():
        for copy in copies:
            # Where some children or sinks have the record already, those that are judged may be among them.
            covering = None if copy.is_dead or copy.said.done else story.first_over(copy)
            if covering is None or record_offset not in story.wanted[partition]:
                continue
            came = [one.at_ms for one in copies if (one.topic, one.said) != (copy.topic, copy.said)]
            came += ran.get((partition, record_offset), ())
            if not any(copy.at_ms <= at_ms <= covering.committed_at_ms for at_ms in came):
                yield breach(
                    "L1",
                    partition,
                    [record_offset],
                    f"the copy of offset {record_offset} written to {copy.topic} at {copy.at_ms} lay below the mark "
                    f"{covering.mark} committed there at {covering.committed_at_ms}, and nothing had come of it",
                )


def _within(sorted_offsets: list[int], stretches: Iterable[tuple[int, int]]) -> list[int]:
    """Return those that lie in one of these stretches."""
    return [
        at
        for first, end in stretches
        for at in sorted_offsets[bisect_left(sorted_offsets, first) : bisect_left(sorted_offsets, end)]
    ]


# --- L2


def _everything_is_settled(story: Story) -> Iterator[Breach]:
    for partition, record_offsets in story.produced.items():
        # A copy in a retry topic is not the end of its record: it must reach a sink or the dead letters. Nor is a
        # dead letter that was redriven.
        settled = {event.record_offset for event in story.events[partition]} | set(story.effects[partition])
        settled |= {at for at in story.dead[partition] if story.has_letter_left(partition, at)}
        missing = [record_offset for record_offset in record_offsets if record_offset not in settled]
        if missing:
            yield breach("L2", partition, missing, f"never settled: offsets {ranges(missing)}")


# --- L3


def _repeats_follow_faults(story: Story) -> Iterator[Breach]:
    """A record runs again only if a fault ended what ran it, and no fault since then found it committed.

    Or if somebody asked for it; or if there is a copy of it, which stands for one more run.
    """
    for partition, events in story.events.items():
        effects: dict[str, list[Event]] = defaultdict(list)
        for event in sorted(events, key=story.took_effect_at):
            effects[event.stable_id].append(event)
        for runs in effects.values():
            yield from _unexcused(story, partition, runs)


def _unexcused(story: Story, partition: Partition, runs: list[Event]) -> Iterator[Breach]:
    """The record where it lay first, and each copy of it, may come once; and each again, if a fault ended it."""
    passes = story.passes_left[partition, runs[0].record_offset]
    whys = [
        {at: _why_no_repeat(story, runs[at], later) for at in range(0 if passes else max(0, place - 1), place)}
        for place, later in enumerate(runs)
    ]
    repeats = pairs([[at for at, why in known.items() if why is None] for known in whys])
    first_runs = [place for place in range(len(runs)) if place not in repeats]
    for place in first_runs[1 + passes :]:
        earlier, later = runs[place - 1], runs[place]
        yield breach(
            "L3",
            partition,
            [later.record_offset],
            f"offset {later.record_offset} ran at {earlier.at_ms} (process {earlier.pid}) and again at "
            f"{later.at_ms} (process {later.pid}): {whys[place][place - 1] or 'more often than its copies explain'}",
        )


def _copies_follow_faults(story: Story) -> Iterator[Breach]:
    """A copy of the same pass, with the same attempts, is written again only if a fault came between, or a rewind."""
    for (partition, record_offset), copies in story.letters.items():
        same: dict[tuple[object, ...], list[CopySeen]] = defaultdict(list)
        for copy in sorted(copies, key=lambda one: one.at_ms):
            # One that was redriven is known by the dead letter that it was made from.
            said = copy.said
            which = (said.stable_id, said.attempt, said.redrives, said.replay, said.redriven_from)
            same[copy.topic, *which].append(copy)
        for written in same.values():
            for first, second in pairwise(written):
                if not story.may_copy_again(first, second):
                    yield breach(
                        "L3",
                        partition,
                        [record_offset],
                        f"offset {record_offset} was copied to {second.topic} at {first.at_ms} and again at "
                        f"{second.at_ms}: no fault came between",
                    )


def _why_no_repeat(story: Story, earlier: Event, later: Event) -> str | None:
    if story.was_rewound(earlier, later):
        return None
    if not any(_parts(fault, earlier, later) for fault in story.faults):
        return "no fault came between"
    # The mark only grows: whoever ran it again began at the mark of the last fault, or later; or of one that lasts.
    at_ms = story.took_effect_at(later)
    before = [fault for fault in story.faults if fault.at_ms <= at_ms]
    counted = [before[-1], *(fault for fault in before[:-1] if fault.at_ms + fault.lasts_ms >= later.at_ms)]
    if any(story.may_repeat(later, fault) for fault in counted):
        return None
    return f"it was committed when {before[-1].kind} came at {before[-1].at_ms}"


def _parts(fault: Fault, earlier: Event, later: Event) -> bool:
    """Whether the fault ended what ran the first event, and something else ran the second."""
    if fault.at_ms > later.at_ms or (fault.partitions and later.partition not in fault.partitions):
        return False
    if fault.lasts_ms:
        is_struck = fault.driver in (None, earlier.driver, later.driver)
        return is_struck and earlier.at_ms <= fault.at_ms + fault.lasts_ms
    if fault.driver is not None:
        is_in_time = earlier.at_ms <= fault.at_ms + ZOMBIE_MS
        return is_in_time and earlier.driver == fault.driver and later.run != earlier.run
    if fault.worker is not None:
        is_in_time = earlier.at_ms <= fault.at_ms + ZOMBIE_MS  # its process id may come again
        return is_in_time and earlier.pid == fault.worker and later.process != earlier.process
    return earlier.at_ms <= fault.at_ms


# --- L4


def _order_holds(story: Story, order: Order) -> Iterator[Breach]:
    for partition, events in story.events.items():
        lines: dict[bytes | None, list[Event]] = defaultdict(list)
        for event in events:
            if event.record_offset in story.copies[partition]:
                continue
            if order == "partition":
                lines[None].append(event)
            elif event.key is not None:
                lines[event.key].append(event)
        for line in lines.values():
            yield from _first_runs_increase(partition, line)
            yield from _steps_back_follow_faults(story, partition, line)


def _first_runs_increase(partition: Partition, line: list[Event]) -> Iterator[Breach]:
    """No fault excuses this: a restart repeats, and reaches what is new in the old order."""
    seen: set[int] = set()
    newest: Event | None = None
    for event in line:
        if event.record_offset in seen:
            continue
        seen.add(event.record_offset)
        if newest is not None and event.record_offset < newest.record_offset:
            yield breach(
                "L4",
                partition,
                [event.record_offset],
                f"offset {event.record_offset} ran first at {event.at_ms}, after offset {newest.record_offset} "
                f"at {newest.at_ms}",
            )
        else:
            newest = event


def _steps_back_follow_faults(story: Story, partition: Partition, line: list[Event]) -> Iterator[Breach]:
    """After a fault a partition may go back, as far as the mark that was committed then; after a rewind, to that."""
    # What a killed program's tasks still do runs beside its successor: it has no place in the order.
    living = [event for event in line if story.took_effect_at(event) == event.at_ms]
    for earlier, later in pairwise(living):
        is_brother = later.record_offset == earlier.record_offset and later.stable_id != earlier.stable_id
        if later.record_offset > earlier.record_offset or is_brother or story.was_rewound(earlier, later):
            continue
        between = [fault for fault in story.faults if _parts(fault, earlier, later)]
        if not any(story.may_repeat(later, fault) for fault in between):
            why = f"behind the mark committed when {between[0].kind} came" if between else "and no fault came between"
            yield breach(
                "L4",
                partition,
                [later.record_offset],
                f"went back from offset {earlier.record_offset} at {earlier.at_ms} to {later.record_offset} "
                f"at {later.at_ms}, {why}",
            )


def _effects_keep_their_order(story: Story) -> Iterator[Breach]:
    """Effects of a partition came in the order of its records; each step back is a rewind that was asked for."""
    for partition, seen in story.effects_seen.items():
        passes, at = story.passes(partition), 0
        line = [one for one in seen if one not in story.copies[partition]]
        for earlier, later in pairwise(line):
            if later > earlier:
                continue
            begun = [place for place in range(at + 1, len(passes)) if passes[place][0] <= later]
            if begun:
                at = begun[0]
            else:
                yield breach(
                    "L4",
                    partition,
                    [later],
                    f"the effect of offset {later} came behind that of offset {earlier}, and no rewind was asked for",
                )


# --- L5


def _marks_never_move_back(story: Story) -> Iterator[Breach]:
    for partition, commits in story.commits.items():
        for step in story.steps_back.get(partition, ()):
            if step.asked_ms is None:
                yield Breach("L5", partition, f"moved back from mark {step.highest} to {step.mark} at {step.at_ms}")
        highest = 0
        for commit in commits:
            if commit.mark is None:
                yield Breach("L5", partition, f"lost its mark {highest}: the group's offset was deleted")
            highest = max(highest, mark_of(commit))


# --- L6


def _effects_are_there_once(story: Story) -> Iterator[Breach]:
    """Each effect is there as often as the mark has passed its record; a copy may stand in its place."""
    for partition, record_offsets in story.produced.items():
        passes, seen = story.passes(partition), story.effects[partition]
        for record_offset in record_offsets:
            passed = sum(start <= record_offset < end for start, end in passes)
            times = seen[record_offset]
            has_copy = record_offset in story.copies[partition]
            # One that is in the dead letters is nowhere else, but for what was redriven of it.
            given_up = story.times_given_up(partition, record_offset)
            if times + given_up > passed or (times < passed and not has_copy):
                yield breach(
                    "L6",
                    partition,
                    [record_offset],
                    f"offset {record_offset} was passed by the mark {_times(passed)} and its effect is there "
                    f"{_times(times)}{f', and {_times(given_up)} in the dead letters' if given_up else ''}",
                )


def _effects_are_of_records(story: Story) -> Iterator[Breach]:
    for partition, seen in story.effects.items():
        yield from _outputs_are_of_records(story, partition, set(seen))


def _events_are_of_records(story: Story) -> Iterator[Breach]:
    """Of topics of which nothing is known nothing is said: a program may read more than what a trial writes."""
    topics = {partition.topic for partition in story.produced}
    for partition, events in story.events.items():
        if partition.topic in topics:
            yield from _outputs_are_of_records(story, partition, {event.record_offset for event in events})


def _outputs_are_of_records(story: Story, partition: Partition, outputs: set[int]) -> Iterator[Breach]:
    """No sink has an output of a record that was never there, or that should reach none."""
    unknown = sorted(outputs - set(story.produced.get(partition, ())))
    if unknown:
        told = f"effects of records that nobody produced: offsets {ranges(unknown)}"
        yield breach("L6", partition, unknown, told)


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")
