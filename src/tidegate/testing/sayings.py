"""Pure: what programs said of themselves in their JSON log lines, and what of it excuses a record that runs again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import orjson

from tidegate.records import Partition
from tidegate.testing.record_log import Fault

LOSS_SECONDS = 90.0
"""How long after the end of a fault a member may still learn that it lost its partitions by it."""
_LOST = "lost"
_EXCUSES = {_LOST: ("partitions_lost", 25_000), "cancelled": ("stop_budget_over", 4_000)}
"""What a run says of itself after which records may run again, whatever was the reason; and for how long what was in
flight then may still end: an attempt has its time, a cancelled task lives on."""
_HARMLESS = "worker_killed"
"""What costs no member its partitions: the driver is the member, and lives."""
_NAME = re.compile(r"([\w.-]+)\[(\d+)\]")

Span = tuple[int, int]
"""From when until when something was done, in milliseconds."""


@dataclass(frozen=True, slots=True)
class Said:
    """One log line."""

    action: str
    at_ms: int
    message: str

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """Those that it names."""
        return tuple(Partition(topic, int(number)) for topic, number in _NAME.findall(self.message))


def said_in(err: str, actions: Iterable[str]) -> list[Said]:
    """Return the lines with one of these action words, in order."""
    signs = [f'"action": "{action}"' for action in actions]
    found = []
    for line in err.splitlines():
        if not line.startswith("{") or not any(sign in line for sign in signs):
            continue
        try:
            said = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue  # it was killed while it spoke
        at_ms = int(datetime.fromisoformat(said["time"]).timestamp() * 1000)
        found.append(Said(said["action"], at_ms, said["message"]))
    return found


def spans_of_causes(noted: Iterable[Fault]) -> list[Span]:
    """Return when that was done, of what a record log has noted, which can cost a member its partitions."""
    return [(one.at_ms, one.at_ms + one.lasts_ms) for one in noted if one.kind != _HARMLESS]


def told_faults(err: str, causes: Sequence[Span]) -> list[Fault]:
    """Return what a program said of itself after which records of the partitions that it named may run again.

    A loss that nothing had caused excuses nothing: a member must not fall out of its group by itself.
    """
    found = []
    for said in said_in(err, _EXCUSES):
        if said.partitions and (said.action != _LOST or _has_cause(said, causes)):
            kind, lasts_ms = _EXCUSES[said.action]
            found.append(Fault(kind, said.at_ms, lasts_ms=lasts_ms, partitions=said.partitions))
    return found


def losses_without_cause(err: str, causes: Sequence[Span]) -> list[Said]:
    """Return the losses that a program told of although nothing had been done to it."""
    return [said for said in said_in(err, [_LOST]) if said.partitions and not _has_cause(said, causes)]


def _has_cause(said: Said, causes: Sequence[Span]) -> bool:
    return any(began <= said.at_ms <= ended + LOSS_SECONDS * 1000 for began, ended in causes)
