"""Pure: what the figures of a partition or a group mean, in one word and one sentence.

No client, no clock. Proved by one table in `tests/unit/test_verdicts.py`. The words:

unknown   nobody can say how far it is: no commit, the topic is gone or made anew, no leader, or records are lost
stalled   somebody works on it and records wait, but its mark has not moved for a while
rewound   its mark lies lower than it did, and has not come back to where it was
stopped   nobody works on it
behind    records wait for too long, or too many of them and they do not become fewer
ok        none of these
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.records import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.ops.model import PartitionLag, Verdict

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a figure becomes a verdict."""

    stall_seconds: float = 90.0
    """A mark that has not moved for so long, with records waiting, is stalled; as the setting `stall_after`."""
    behind_seconds: float = 60.0
    """A record that has waited for so long makes its partition behind."""
    behind_records: int = 10_000
    """So many records make it behind too, while they do not become fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of one partition of a group. What is not known is None."""

    mark: int | None
    beginning: int | None
    """None where nobody answers for the partition."""
    end_offset: int | None
    lag: int | None
    lost: int = 0
    is_made_anew: bool = False
    """Whether the commit was made for another topic of the same name."""
    is_worked_on: bool = True
    """Whether a member has it, may have it in a moment, or somebody who is no member moves the mark."""
    waiting_seconds: float | None = None
    still_seconds: float | None = None
    rewound_from: int | None = None
    growth: int | None = None
    """How much the lag has grown since the earlier look."""


def judge(now: Standing, limits: Limits) -> tuple[Verdict, str]:
    """Return the verdict on one partition, and why: the first rule that holds."""
    if doubt := _doubt(now):
        return "unknown", doubt
    if now.mark is None or now.lag is None:
        return "ok", "no commit yet, and no record to read"
    waits = _waits(now.lag, now.waiting_seconds)
    nobody = "" if now.is_worked_on else "nobody works on it; "
    grown = "" if now.growth is None else f", {now.growth} more than at the look before"
    is_too_long = _reaches(now.waiting_seconds, limits.behind_seconds)
    is_too_many = now.lag >= limits.behind_records and (now.growth is None or now.growth >= 0)
    rules: tuple[tuple[Verdict, bool, str], ...] = (
        (
            "stalled",
            now.is_worked_on and bool(now.lag) and _reaches(now.still_seconds, limits.stall_seconds),
            f"the mark {now.mark} has not moved for {spoken(now.still_seconds or 0.0)}, and {waits}",
        ),
        (
            "rewound",
            now.rewound_from is not None,
            f"the mark went back from {now.rewound_from} and stands at {now.mark}; {nobody}{waits}",
        ),
        ("stopped", not now.is_worked_on, f"{nobody}{waits}"),
        ("behind", bool(now.lag) and is_too_long, waits),
        ("behind", is_too_many, f"{waits}{grown}"),
    )
    return next(((verdict, why) for verdict, holds, why in rules if holds), ("ok", waits))


def judge_group(partitions: Sequence[PartitionLag], *, has_members: bool) -> tuple[Verdict, str]:
    """Return the verdict on a group: the worst of its partitions', and why."""
    if not partitions:
        return "unknown", "no commit yet" if has_members else "no members and no commits"
    worst = max(partitions, key=lambda one: (severity(one), one.lag or 0))
    alike = [one for one in partitions if severity(one) == severity(worst)]
    if len(partitions) == 1:
        return worst.verdict, worst.why
    if severity(worst) <= _HARMLESS:
        waiting = [one.waiting_seconds for one in partitions if one.waiting_seconds is not None]
        nobody = "nobody works on it; " if worst.verdict == "stopped" else ""
        return worst.verdict, nobody + _waits(sum(one.lag or 0 for one in partitions), max(waiting, default=None))
    share = "all" if len(alike) == len(partitions) else f"{len(alike)} of {len(partitions)}"
    return worst.verdict, f"{share} partitions {worst.verdict}; {worst.partition}: {worst.why}"


def still_for(lag: int | None, waiting_seconds: float | None, unmoved_seconds: float | None) -> float | None:
    """Return for how long a mark has stood still with records waiting, from one look alone.

    It cannot be longer than the first of them has waited, nor than the mark has been where it is.
    """
    if not lag:
        return None if lag is None else 0.0
    if waiting_seconds is None or unmoved_seconds is None:
        return None
    return max(0.0, min(waiting_seconds, unmoved_seconds))


def still_since(before: PartitionLag, mark: int | None, lag: int | None, elapsed_seconds: float) -> float | None:
    """Return the same with an earlier look: time counts while the mark is the same and records wait at both."""
    if lag is None or mark is None:
        return None
    if mark != before.mark or not lag or not before.lag:
        return 0.0
    return (before.still_seconds or 0.0) + elapsed_seconds


def went_back_from(before: PartitionLag | None, mark: int | None) -> int | None:
    """Return where the mark was before it went back, until it is there again."""
    if before is None or before.mark is None or mark is None:
        return None
    highest = before.mark if before.rewound_from is None else max(before.mark, before.rewound_from)
    return highest if mark < highest else None


def spoken(seconds: float) -> str:
    """Return a time for people: `45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    whole = int(seconds)
    if whole < 2 * _MINUTE:
        return f"{whole} s" if whole or not seconds else f"{seconds:.1f} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def _doubt(now: Standing) -> str:
    """Say why nobody can tell how far the partition is; nothing where it can be told."""
    if now.end_offset is None or now.beginning is None:
        return "the topic or the partition is gone, or has no leader" + (
            "" if now.mark is None else f"; the mark was {now.mark}"
        )
    if now.mark is None:
        records = now.end_offset - now.beginning
        return f"no commit yet; {counted(records, 'record')} at most in the log" if records else ""
    if now.is_made_anew:
        return f"the topic was made anew after the commit: the mark {now.mark} belongs to the one before"
    if now.lost:
        lost = f"{counted(now.lost, 'record')} at most lost"
        return f"{lost}: the log begins at {now.beginning}, the mark is {now.mark}" + (
            "" if now.is_worked_on else "; nobody works on it"
        )
    return ""


def _reaches(figure: float | None, limit: float) -> bool:
    return figure is not None and figure >= limit


def _waits(lag: int, waiting_seconds: float | None) -> str:
    if not lag:
        return "nothing waits"
    verb = "waits" if lag == 1 else "wait"
    since = "" if waiting_seconds is None else f", {'' if lag == 1 else 'the first '}for {spoken(waiting_seconds)}"
    return f"{counted(lag, 'record')} {verb}{since}"


_HARMLESS = 1


def severity(one: PartitionLag) -> int:
    """Rank by what should wake somebody first: lost records, then work that does not go on."""
    if one.verdict == "unknown":
        return 7 if one.lost else 2
    if one.verdict == "stopped":
        return 5 if one.lag else _HARMLESS
    return {"stalled": 6, "behind": 4, "rewound": 3, "ok": 0}[one.verdict]
