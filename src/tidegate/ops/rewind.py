"""Move a group to other offsets: plan it, do it, read it back.

While it has members the broker takes commits from them alone: then they are asked to do it, if they can be.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from tidegate.errors import BrokerRefused, GroupMissing, SettingsError
from tidegate.ledger import Home, decode_any, encode
from tidegate.names import belongs_to
from tidegate.ops.cluster import chosen_cluster
from tidegate.ops.reach import Reach, chosen_reach
from tidegate.records import Position

if TYPE_CHECKING:
    from tidegate.kafka.admin import Admin
    from tidegate.kafka.connection import Kafka
    from tidegate.records import Partition

_CURE = 'say "beginning", "end", an offset (1200), a time (2026-11-16T08:00:00Z), or a shift (-1000, +1000)'


@dataclass(frozen=True, slots=True)
class Aim:
    """Where a group is to go."""

    kind: Literal["beginning", "end", "offset", "time", "shift"]
    number: int = 0
    """The offset, the shift, or the time in milliseconds."""


@dataclass(frozen=True, slots=True)
class Move:
    """What a rewind does to one partition."""

    partition: Partition
    mark: int | None
    """Where the group stands; None: nowhere yet."""
    to: int
    again: int
    """Offsets between the new mark and the old one: their records run again."""
    passed: int
    """Offsets between the old mark and the new one: their records are passed by."""
    out_of_log: int
    """By how much what was asked for lies outside of the log: the move ends at the log's border."""


@dataclass(frozen=True, slots=True)
class RewindPlan:
    """What a rewind would do, or has done."""

    group: str
    to: str
    moves: tuple[Move, ...]
    waiting: int
    """Copies in the group's retry and redrive topics that are not touched and will still run."""
    members: int = 0
    """Running processes, which rewind themselves; 0: nobody works for the group now."""
    is_done: bool = False


def rewind(
    group: str,
    to: str,
    *,
    topic: str | None = None,
    partition: int | None = None,
    dry_run: bool = False,
    kafka: Kafka | None = None,
) -> RewindPlan:
    """Move a group, and return what was done.

    `to` is "beginning", "end", an offset ("1200"), a time ("2026-11-16T08:00:00Z": the first record with this
    timestamp or a later one) or a shift ("-1000", "+1000"). Without `topic` every topic for which the group has a
    commit is moved, its own retry topics excepted. With `dry_run` nothing is moved. Other groups are never touched, and
    only what is still retained can be had again: the plan says what is not. Running pipelines of Tidegate rewind
    themselves if they use the same `history` as this process; a group with any other member is refused.
    """
    cluster = chosen_cluster(kafka)
    reach = chosen_reach()
    plan = plan_rewind(cluster.admin, group, to, topic, partition, reach)
    return plan if dry_run else carry_out(cluster.admin, plan, reach)


def parse_aim(text: str) -> Aim:
    """Read where to go."""
    wanted = text.strip()
    if wanted in ("beginning", "end"):
        return Aim(wanted)  # type: ignore[arg-type]  # one of the two
    if re.fullmatch(r"[+-]\d+", wanted):
        return Aim("shift", int(wanted))
    if re.fullmatch(r"\d+", wanted):
        return Aim("offset", int(wanted))
    try:
        moment = datetime.fromisoformat(wanted)
    except ValueError:
        raise SettingsError(f"{text!r} is no place in a log", _CURE) from None
    if moment.tzinfo is None:
        raise SettingsError(f"the time {text!r} names no zone", f"write it like {moment.isoformat()}Z or +02:00")
    return Aim("time", int(moment.astimezone(UTC).timestamp() * 1000))


def plan_rewind(
    admin: Admin, group: str, to: str, topic: str | None, partition: int | None, reach: Reach
) -> RewindPlan:
    """Look what a rewind would do; that it cannot be done is an error."""
    aim = parse_aim(to)
    if partition is not None and topic is None:
        raise SettingsError(f"partition {partition} of which topic?", "name the topic, too")
    found = admin.group_members(group)
    committed = admin.committed(group)
    if not committed and topic is None:
        raise GroupMissing(f"the group {group} has no commit", "check its name, or name the topic to be placed in")
    reach.check(admin, group, found.members)
    marks = {tp: one.mark for tp, one in committed.items()}
    places = _places(admin, group, marks, topic, partition)
    beginnings, ends = admin.beginnings(places), admin.ends(places)
    asked = _asked(admin, aim, places, marks, beginnings, ends)
    moves = tuple(plan_move(tp, marks.get(tp), asked[tp], beginnings[tp], ends[tp]) for tp in places)
    return RewindPlan(group, to, moves, _waiting(admin, group, marks), len(found.members))


def plan_move(partition: Partition, mark: int | None, asked: int, beginning: int, end: int) -> Move:
    """Pure: what happens to one partition whose log goes from `beginning` to `end`."""
    to = min(max(asked, beginning), end)
    return Move(
        partition,
        mark,
        to,
        again=0 if mark is None else max(0, mark - to),
        passed=0 if mark is None else max(0, to - mark),
        out_of_log=abs(asked - to),
    )


def carry_out(admin: Admin, plan: RewindPlan, reach: Reach, say: Callable[[str], None] = lambda _: None) -> RewindPlan:
    """Store the new marks, or let the members do it, and read them back. `say` hears what takes long."""
    stored = {tp: decode_any(plan.group, tp, one.mark, one.metadata) for tp, one in admin.committed(plan.group).items()}
    number = max([int(time.time() * 1000), *(one.position.replay + 1 for one in stored.values())])
    if plan.members:
        reach.move(admin, plan.group, {move.partition: move.to for move in plan.moves}, number, say)
        _check_moved(admin, plan, number)
    else:
        is_ours = any(one.topic_id is not None for one in stored.values())
        finished = {tp: one.position.finished for tp, one in stored.items()}
        admin.commit_for_empty_group(plan.group, _commits(admin, plan, number if is_ours else None, finished))
        _check_stands(admin, plan)
    return replace(plan, is_done=True)


def _check_moved(admin: Admin, plan: RewindPlan, number: int) -> None:
    """The members go on from there at once: that they were moved is seen by the number of the rewind."""
    found = admin.committed(plan.group, [move.partition for move in plan.moves])
    stood = [
        tp for tp, one in found.items() if decode_any(plan.group, tp, one.mark, one.metadata).position.replay < number
    ]
    if stood:
        raise _not_there(stood)


def _check_stands(admin: Admin, plan: RewindPlan) -> None:
    found = admin.committed(plan.group, [move.partition for move in plan.moves])
    wrong = [move.partition for move in plan.moves if found.get(move.partition) is None]
    wrong += [
        move.partition for move in plan.moves if move.partition in found and found[move.partition].mark != move.to
    ]
    if wrong:
        raise _not_there(wrong)


def _not_there(partitions: Iterable[Partition]) -> BrokerRefused:
    return BrokerRefused(
        f"the group does not stand where it was put: {', '.join(map(str, partitions))}",
        "somebody else moves it at the same time: look at it with tidegate offsets",
    )


def _commits(
    admin: Admin, plan: RewindPlan, number: int | None, finished: Mapping[Partition, str]
) -> dict[Partition, tuple[int, str]]:
    """Return what is to be committed. What was settled beyond the old mark has no meaning for the new one.

    Which DataFrame round was finished last stays known: others that were in it may not have heard of it.

    For a group of ours the rewind gets a number: by it a table that keeps the marks beside rows knows that it is to
    follow, and what fails now is told from what failed before. Commits of other clients carry nothing of ours.
    """
    if number is None:
        return {move.partition: (move.to, "") for move in plan.moves}
    infos = admin.describe(move.partition.topic for move in plan.moves)
    commits = {}
    for move in plan.moves:
        tp = move.partition
        position = Position(move.to, replay=number, finished=finished.get(tp, ""))
        home = Home(plan.group, infos[tp.topic].topic_id, tp.number, "")
        commits[tp] = (move.to, encode(position, home, is_move=True))
    return commits


def _places(
    admin: Admin, group: str, marks: Iterable[Partition], topic: str | None, number: int | None
) -> list[Partition]:
    if topic is None:
        there = admin.existing(one.topic for one in marks)
        return sorted(
            one
            for one in marks
            if not belongs_to(one.topic, group) and one.topic in there and one.number < there[one.topic].partitions
        )
    info = admin.describe([topic])[topic]
    return list(info.each_partition()) if number is None else [info.partition(number)]


def _asked(
    admin: Admin,
    aim: Aim,
    places: list[Partition],
    marks: Mapping[Partition, int],
    beginnings: Mapping[Partition, int],
    ends: Mapping[Partition, int],
) -> Mapping[Partition, int]:
    match aim.kind:
        case "beginning":
            return beginnings
        case "end":
            return ends
        case "offset":
            return dict.fromkeys(places, aim.number)
        case "time":
            return admin.offsets_at(places, aim.number)
        case "shift":
            nowhere = [str(one) for one in places if one not in marks]
            if nowhere:
                raise SettingsError(
                    f"the group stands nowhere in {', '.join(nowhere)}, so it cannot be shifted", "name an offset"
                )
            return {one: marks[one] + aim.number for one in places}


def _waiting(admin: Admin, group: str, marks: Mapping[Partition, int]) -> int:
    """How many copies lie before the group in its own topics."""
    there = admin.existing({one.topic for one in marks if belongs_to(one.topic, group)})
    own = [one for one in marks if one.topic in there and one.number < there[one.topic].partitions]
    ends = admin.ends(own)
    return sum(max(0, ends[one] - marks[one]) for one in own)
