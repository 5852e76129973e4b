"""Pure: which partitions stand still although there is work, and what to do about it.

No clock: callers tell the time. A partition is *stalled* when its log has records beyond the mark, the mark does not
move, and its lane did nothing for others that have work, for `stall_after`. First its lane is replaced; if it stalls
again at the same mark for as long, the run must end. One whose lane never gets to it is helped by a new worker now and
then; that ends no run, since what others of the lane have in the reader may take hours in a slow sink.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.engine.owned import Life
from tidegate.records import Partition

TURNS = 20
"""So many times the patience one may wait while its lane serves others, for each partition that shares the lane."""


@dataclass
class _Seen:
    mark: int
    since: float
    """When this mark was first seen with work beyond it, or its lane was replaced on its account."""
    idle_since: float
    """When its lane was last seen to do something for others that have work."""
    is_replaced: bool = False

    def is_idle(self, now: float, patience: float) -> bool:
        """Whether its lane did nothing at all for so long."""
        return now - max(self.since, self.idle_since) >= patience


@dataclass(frozen=True)
class Verdicts:
    """What stands still."""

    replace: tuple[Partition, ...]
    """Stalled for the first time at this mark, or left out for very long: its lane should be replaced."""
    hopeless: tuple[Partition, ...]
    """Stalled again after its lane was replaced."""


class Watchdog:
    """Remembers when each mark moved last, and when each lane did something."""

    def __init__(self, stall_seconds: float) -> None:
        self._stall_seconds = stall_seconds
        self._seen: dict[Partition, _Seen] = {}
        self._lives: Mapping[Partition, Life] = {}
        self._ends: Mapping[Partition, int] = {}

    def look(
        self,
        marks: Mapping[Partition, int],
        ends: Mapping[Partition, int],
        now: float,
        lives: Mapping[Partition, Life],
        turn_seconds: float = 0.0,
    ) -> Verdicts:
        """Compare marks and log ends; partitions that are not in `marks` are forgotten.

        `lives`: of everything that the lanes serve, also of what is not in `marks`. `turn_seconds`: how long a lane may
        have to wait before it may begin a record at all.
        """
        patience = self._stall_seconds + turn_seconds
        # One that is as far by now as its log was at the last look keeps nobody waiting.
        behind = {tp: one for tp, one in lives.items() if self._ends.get(tp, 0) > one.mark}
        moved = {tp for tp, one in behind.items() if tp in self._lives and one.has_gone_on(self._lives[tp])}
        sharers = Counter(one.lane for one in behind.values())
        movers = Counter(behind[tp].lane for tp in moved)
        waiting = {tp: mark for tp, mark in marks.items() if ends.get(tp, 0) > mark}
        self._seen = {tp: seen for tp, seen in self._seen.items() if tp in waiting}
        replace: list[Partition] = []
        hopeless: list[Partition] = []
        for partition, mark in waiting.items():
            seen, lane = self._seen.get(partition), lives[partition].lane
            if seen is None or seen.mark != mark or self._has_tried(partition, lives[partition]):
                self._seen[partition] = _Seen(mark, now, now)
                continue
            if movers[lane] > (partition in moved):
                seen.idle_since = now
            is_idle = seen.is_idle(now, patience)
            if is_idle or now - seen.since >= TURNS * sharers[lane] * patience:
                (hopeless if is_idle and seen.is_replaced else replace).append(partition)
                self._seen[partition] = _Seen(mark, now, seen.idle_since, is_replaced=is_idle)
        self._lives, self._ends = lives, ends
        return Verdicts(tuple(replace), tuple(hopeless))

    def _has_tried(self, partition: Partition, life: Life) -> bool:
        """Whether an open record of it was tried since the last look: it stands, and knows why."""
        before = self._lives.get(partition)
        return before is not None and life.tried != before.tried

    def standing(self, now: float) -> dict[Partition, float]:
        """Return for how long partitions with work have stood at their mark, and their lane with them."""
        return {partition: now - seen.idle_since for partition, seen in self._seen.items()}
