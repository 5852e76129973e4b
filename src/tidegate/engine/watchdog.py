"""Pure: which partitions stand still although there is work, and what to do about it.

No clock: callers tell the time. A partition is *stalled* when its log has records beyond the mark and
the mark has not moved for `stall_after`. First its lane is replaced; if it stalls again at the same
mark for as long, the run must end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.records import Partition


@dataclass
class _Seen:
    mark: int
    since: float
    """When this mark was first seen with work beyond it."""
    replaced_at: float | None = None


@dataclass(frozen=True)
class Verdicts:
    """What stands still."""

    replace: tuple[Partition, ...]
    """Stalled for the first time at this mark: its lane should be replaced."""
    hopeless: tuple[Partition, ...]
    """Stalled again after its lane was replaced."""


class Watchdog:
    """Remembers when each mark moved last."""

    def __init__(self, stall_seconds: float) -> None:
        self._stall_seconds = stall_seconds
        self._seen: dict[Partition, _Seen] = {}

    def look(self, marks: Mapping[Partition, int], ends: Mapping[Partition, int], now: float) -> Verdicts:
        """Compare marks and log ends; partitions that are not in `marks` are forgotten."""
        replace, hopeless = [], []
        self._seen = {partition: seen for partition, seen in self._seen.items() if partition in marks}
        for partition, mark in marks.items():
            seen = self._seen.get(partition)
            if ends.get(partition, 0) <= mark:
                self._seen.pop(partition, None)
            elif seen is None or seen.mark != mark:
                self._seen[partition] = _Seen(mark, now)
            elif seen.replaced_at is None and now - seen.since >= self._stall_seconds:
                seen.replaced_at = now
                replace.append(partition)
            elif seen.replaced_at is not None and now - seen.replaced_at >= self._stall_seconds:
                hopeless.append(partition)
        return Verdicts(tuple(replace), tuple(hopeless))

    def standing(self, now: float) -> dict[Partition, float]:
        """Return for how long partitions with work have stood at their mark."""
        return {partition: now - seen.since for partition, seen in self._seen.items()}
