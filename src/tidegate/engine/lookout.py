"""Looks at the logs' ends and at the topics now and then, beside the loop.

So that a partition that stands still is noticed, and a topic that was deleted, made anew or has come.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from tidegate.beside import THIS_MACHINE, Beside
from tidegate.engine.board import Board
from tidegate.engine.topics import Change, Topics, expand
from tidegate.engine.watchdog import Verdicts, Watchdog
from tidegate.errors import TidegateError
from tidegate.kafka.admin import Admin, TopicInfo
from tidegate.records import Partition

logger = logging.getLogger("tidegate.lookout")

LOOK_SECONDS = 3.0
EXPAND_SECONDS = 10.0
"""How often a pattern is expanded again: that asks for every topic of the cluster."""


@dataclass(frozen=True)
class Sight:
    """Where the logs end, and which topics there are."""

    ends: Mapping[Partition, int]
    """Only where the topic has the same id after the asking as at the last look: of a topic made anew, none."""
    topics: Mapping[str, TopicInfo]


@dataclass(frozen=True)
class Looked:
    """What was seen, or why nothing was."""

    sight: Future[Sight]


class Lookout:
    """Asks in a thread of its own. What cannot be asked now is asked later."""

    def __init__(
        self,
        admin: Admin,
        topics: Topics,
        pattern: re.Pattern[str] | None,
        stall_seconds: float,
        post: Callable[[Looked], None],
        beside: Beside = THIS_MACHINE,
    ) -> None:
        self._now = beside.now
        self._admin = admin
        self._topics = topics
        self._pattern = pattern
        self._post = post
        self._watchdog = Watchdog(stall_seconds)
        self._every_seconds = min(LOOK_SECONDS, stall_seconds / 4)
        self._asker = beside.open_asker("lookout")
        self._next = self._now() + self._every_seconds
        self._next_expansion = self._now() + EXPAND_SECONDS
        self._is_asking = False
        self.ends: Mapping[Partition, int] = {}
        """Where the logs ended when they were looked at last."""

    def look(self, board: Board) -> None:
        """Ask for the ends of what is ours and for the topics, if it is time to."""
        if self._is_asking or self._now() < self._next:
            return
        self._is_asking = True
        is_expanding = self._pattern is not None and self._now() >= self._next_expansion
        if is_expanding:
            self._next_expansion = self._now() + EXPAND_SECONDS
        future = self._asker.submit(self._see, list(board.marks), self._pattern if is_expanding else None)
        future.add_done_callback(lambda sight: self._post(Looked(sight)))

    def take(self, looked: Looked) -> Sight | None:
        """Return what was seen; None if nothing could be asked."""
        self._is_asking = False
        self._next = self._now() + self._every_seconds
        try:
            return looked.sight.result()
        except TidegateError as error:
            logger.debug("the topics cannot be asked for: %s", error, extra={"action": "ends_unknown"})
            return None

    def judge(self, sight: Sight | None, board: Board, turn_seconds: float = 0.0) -> Verdicts:
        """Return what stands still; `turn_seconds`: how long a lane may have to wait for its turn to begin a record."""
        self.ends = self.ends if sight is None else sight.ends
        ends = {} if sight is None else sight.ends
        for partition in ends.keys() & board.owned.keys():
            board.owned[partition].absolve(ends[partition])
        now = self._now()
        return self._watchdog.look(board.workable_marks(now), ends, now, board.lives, turn_seconds)

    @property
    def standing(self) -> Mapping[Partition, float]:
        """For how long partitions with work have stood at their marks, in seconds."""
        return self._watchdog.standing(self._now())

    def compare(self, sight: Sight) -> Change:
        """Return which topics are not what they were."""
        return self._topics.see(sight.topics, self._now())

    def close(self) -> None:
        """Ask no more."""
        self._asker.shutdown(wait=False)

    def _see(self, partitions: list[Partition], pattern: re.Pattern[str] | None) -> Sight:
        before = dict(self._topics.infos)
        try:
            ends = self._admin.ends(partitions)
        except TidegateError as error:
            logger.debug("the logs' ends are unknown: %s", error, extra={"action": "ends_unknown"})
            ends = {}
        # The topics after the ends: an id that is still the same says whose ends these were.
        topics = self._admin.existing(self._topics.looked_for)
        same = {name for name, info in topics.items() if name in before and info.topic_id == before[name].topic_id}
        if pattern is not None:
            topics |= expand(pattern, self._admin.topics())
        return Sight({tp: end for tp, end in ends.items() if tp.topic in same}, topics)
