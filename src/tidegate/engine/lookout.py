"""Looks at the logs' ends now and then, beside the loop, so that a partition that stands still is noticed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from tidegate.engine.board import Board
from tidegate.engine.watchdog import Verdicts, Watchdog
from tidegate.errors import TidegateError
from tidegate.kafka.admin import Admin
from tidegate.records import Partition

logger = logging.getLogger("tidegate.lookout")


@dataclass(frozen=True)
class Looked:
    """Where the logs end, or why nobody knows."""

    ends: Future[dict[Partition, int]]


class Lookout:
    """Asks for the logs' ends in a thread of its own. What cannot be asked now is asked later."""

    def __init__(self, admin: Admin, stall_seconds: float, post: Callable[[Looked], None]) -> None:
        self._admin = admin
        self._post = post
        self._watchdog = Watchdog(stall_seconds)
        self._every_seconds = min(10.0, stall_seconds / 4)
        self._asker = ThreadPoolExecutor(1, thread_name_prefix="lookout")
        self._next = time.monotonic() + self._every_seconds
        self._is_asking = False

    def look(self, board: Board) -> None:
        """Ask for the ends of what is ours, if it is time to."""
        if self._is_asking or time.monotonic() < self._next or not board.marks:
            return
        self._is_asking = True
        future = self._asker.submit(self._admin.ends, list(board.marks))
        future.add_done_callback(lambda ends: self._post(Looked(ends)))

    def judge(self, looked: Looked, board: Board) -> Verdicts:
        """Return what stands still."""
        self._is_asking = False
        self._next = time.monotonic() + self._every_seconds
        try:
            ends: Mapping[Partition, int] = looked.ends.result()
        except TidegateError as error:
            logger.debug("the logs' ends are unknown: %s", error, extra={"action": "ends_unknown"})
            ends = {}
        return self._watchdog.look(board.workable_marks, ends, time.monotonic())

    def close(self) -> None:
        """Ask no more."""
        self._asker.shutdown(wait=False)
