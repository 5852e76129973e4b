"""Plans the rounds of a DataFrame pipeline: asks where the logs end, beside the loop, and puts a plan on the board."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from tidegate.beside import THIS_MACHINE, Beside
from tidegate.engine.frame_board import FrameBoard, Ready
from tidegate.engine.planning import Pace, RoundLimits, fitting, next_number, plan, share
from tidegate.engine.wording import names
from tidegate.errors import BrokerRefused, SettingsError, TidegateError
from tidegate.records import Partition, Position

logger = logging.getLogger("tidegate.frames")

LOOK_SECONDS = 0.5
TELL_SECONDS = 10.0
GIVE_WAY_SECONDS = 60.0
"""A partition that has just come to a topic is not assigned at once."""

Ends = Callable[[list[Partition]], dict[Partition, int]]
Stand = Callable[[list[Partition]], dict[Partition, Position]]
"""Where partitions stand by the group's commits."""


class Planner:
    """Used by the driver's thread; what blocks is asked in one of its own."""

    def __init__(
        self,
        board: FrameBoard,
        ends: Ends,
        stand: Stand,
        group: str,
        limits: RoundLimits,
        gather_seconds: float,
        beside: Beside = THIS_MACHINE,
    ) -> None:
        self._now, self._wall = beside.now, beside.wall
        self._board = board
        self._ends = ends
        self._stand = stand
        self._group = group
        self._limits = limits
        self._gather_seconds = gather_seconds
        self._asker = beside.open_asker("planner")
        self._asked: tuple[dict[Partition, Ready], Future[dict[Partition, int]]] | None = None
        self._strangers: tuple[dict[Partition, str], Future[dict[Partition, Position]]] | None = None
        self._not_before = 0.0
        self._since: float | None = None
        self._told_at = self._now()
        self._missing_since: float | None = None
        self._has_given_way = False
        self._turn = 0
        self.pace = Pace()
        """What the rounds of this run have shown; set by the thread that runs them."""
        self.planned: set[str] = set()
        """Rounds that were planned by this process and not begun before."""

    def turn(self) -> None:
        """Go on: ask where the logs end, or plan by the answer."""
        now = self._now()
        self._tell_missing(now)
        if self._strangers is not None or (now >= self._not_before and self._board.strangers):
            self._look_for_strangers(now)
            return
        if self._asked is not None:
            if self._asked[1].done():
                (before, answer), self._asked = self._asked, None
                self._not_before = now + LOOK_SECONDS
                self._take(before, answer, now)
            return
        if now >= self._not_before and (ready := self._board.plannable):
            self._asked = (ready, self._asker.submit(self._ends, list(ready)))

    def _look_for_strangers(self, now: float) -> None:
        """See where partitions stand that a planned round names and that this pipeline does not read."""
        if self._strangers is None:
            strangers = self._board.strangers
            self._strangers = (strangers, self._asker.submit(self._stand, list(strangers)))
        strangers, answer = self._strangers
        if not answer.done():
            return
        self._strangers = None
        try:
            still = self._board.heed(strangers, answer.result())
        except TidegateError as error:
            self._not_before = now + LOOK_SECONDS
            logger.debug("where others stand is unknown: %s", error, extra={"action": "strangers_unknown"})
            return
        if still and self._board.strangers:
            raise SettingsError(
                f"round {strangers[still[0]]} was planned over {names(still)}, too, and may have been written; this "
                "pipeline does not read them now",
                "read them, too, until that round is done (once until caught up); or rewind the group to where it is "
                "to go on, which makes new rounds",
            )

    def close(self) -> None:
        """Ask no more."""
        self._asker.shutdown(wait=False)

    def _take(self, before: Mapping[Partition, Ready], answer: Future[dict[Partition, int]], now: float) -> None:
        try:
            ends = answer.result()
        except TidegateError as error:
            logger.debug("the logs' ends are unknown: %s", error, extra={"action": "ends_unknown"})
            return
        bounds = {tp: _least(ends.get(tp, 0), one.until) for tp, one in before.items()}
        backlogs = {tp: end - before[tp].position.mark for tp, end in bounds.items() if end > before[tp].position.mark}
        if not backlogs:
            self._since = None
            return
        self._since = self._since or now
        most = self.pace.most_records(self._limits)
        is_last = any(one.until is not None for one in before.values())
        if sum(backlogs.values()) < most and now - self._since < self._gather_seconds and not is_last:
            return
        self._plan(before, backlogs, most)

    def _plan(self, before: Mapping[Partition, Ready], backlogs: Mapping[Partition, int], most: int) -> None:
        self._turn += 1
        chosen = set(fitting(list(backlogs), self._turn))
        given = share({tp: count for tp, count in backlogs.items() if tp in chosen}, most, self._turn)
        positions = {tp: one.position for tp, one in before.items()}
        ends = {tp: positions[tp].mark + count for tp, count in given.items() if count}
        known = [one.position for one in self._board.owned.values() if one.position is not None]
        planned = plan(self._group, positions, ends, next_number(known, int(self._wall() * 1000)))
        if self._board.plan(planned, {tp: before[tp].epoch for tp in planned}):
            self._since = None
            self._not_before = 0.0
            self.planned |= {one.id for one in planned.values()}

    def _tell_missing(self, now: float) -> None:
        """Say that others have partitions; end where that stays so, unless the others are the ones to go."""
        missing = self._board.missing if self._board.owned else []
        self._missing_since = (self._missing_since or now) if missing else None
        if self._missing_since is None or now - self._told_at < TELL_SECONDS:
            return
        self._told_at = now
        text = (
            f"{names(missing)} belong to another process of the group, and a DataFrame pipeline runs as one at a time"
        )
        if now - self._missing_since > GIVE_WAY_SECONDS and not self._board.owns_first and not self._has_given_way:
            self._has_given_way = True
            raise BrokerRefused(text, "stop the other one first, or let it work: this one has done nothing")
        logger.warning("%s: nothing is begun until this one has them all", text, extra={"action": "frames_wait"})


def _least(end: int, until: int | None) -> int:
    return end if until is None else min(end, until)
