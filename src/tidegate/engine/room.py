"""How many rounds Spark has room for, on a cluster: asked beside the loop, followed as executors come and go.

A round that waits for a slot looks like one that hangs: here it is told apart, and said.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from tidegate.engine.board import Board
from tidegate.engine.spark import Spark
from tidegate.records import counted

logger = logging.getLogger("tidegate.spark")

ASK_SECONDS = 1.0
LOOK_SECONDS = 0.2
SAY_SECONDS = 30.0
FIRST_SECONDS = 10.0
"""Executors take some seconds to come up: before that, an empty cluster is nothing to speak of."""
ANY_NUMBER = 1_000_000


@dataclass(frozen=True)
class Seen:
    """What Spark answered."""

    slots: int
    waiting: frozenset[int]
    """Lanes whose round has no task that runs."""


def wait_for_slots(spark: Spark) -> None:
    """Wait until Spark can run anything: a program that cannot must not take partitions from one that can."""
    began, said_at = time.monotonic(), -SAY_SECONDS
    while not spark.slots and not spark.asks_for_more:
        now = time.monotonic()
        if now - began >= FIRST_SECONDS and now - said_at >= SAY_SECONDS:
            said_at = now
            _say_no_slot(spark, 0, "the run")
        time.sleep(LOOK_SECONDS)  # between two questions


def _say_no_slot(spark: Spark, slots: int, who: str) -> None:
    logger.warning(
        "Spark has no free slot on %s (%s in all), so %s must wait; its page shows who has them, and whether the "
        "executors fit its workers (spark.executor.memory, spark.cores.max)",
        spark.master,
        counted(slots, "slot"),
        who,
        extra={"action": "no_slot"},
    )


class Room:
    """Keeps a board's lanes within Spark's slots. All but the asking happens in the driver's thread."""

    def __init__(self, spark: Spark, board: Board, most: int | None) -> None:
        """`most`: lanes that were asked for."""
        self._spark = spark
        self._board = board
        self._most = most or ANY_NUMBER
        self._asks_for_more = spark.asks_for_more
        self._asker = ThreadPoolExecutor(1, thread_name_prefix="room")
        self._asked: Future[Seen] | None = None
        self._next = self._since = time.monotonic()
        """When to ask next; since when somebody waits."""
        self._said_at = -SAY_SECONDS
        self._slots: int | None = None

    def turn(self, doubtful: Sequence[tuple[int, str]]) -> None:
        """Ask now and then, and take the answer. `doubtful`: lanes, with their names, of which nothing is heard."""
        now = time.monotonic()
        if self._asked is None and now >= self._next:
            self._asked = self._asker.submit(self._ask, list(doubtful))
        elif self._asked is not None and self._asked.done():
            asked, self._asked, self._next = self._asked, None, now + ASK_SECONDS
            if asked.exception() is None:
                self._take(asked.result(), now)
            else:
                # Spark is gone, most likely: a round finds out why, and ends the run with it.
                self._board.resize(max(1, self.lanes(self._slots or 0)))

    def close(self) -> None:
        """Ask no more."""
        self._asker.shutdown(wait=False)

    def _ask(self, doubtful: list[tuple[int, str]]) -> Seen:
        waiting = frozenset(lane for lane, name in doubtful if self._spark.is_waiting(name))
        return Seen(self._spark.slots, waiting)

    def _take(self, seen: Seen, now: float) -> None:
        lanes = self.lanes(seen.slots)
        self._board.resize(lanes)
        self._board.waiting = seen.waiting
        if seen.slots != self._slots:
            self._tell_change(seen.slots)
        if seen.slots and not seen.waiting:
            self._since, self._said_at = now, -SAY_SECONDS
        elif now - self._since >= FIRST_SECONDS and now - self._said_at >= SAY_SECONDS:
            self._said_at = now
            who = " and ".join(f"lane {lane}" for lane in sorted(seen.waiting)) if seen.slots else "the run"
            _say_no_slot(self._spark, seen.slots, who)

    def lanes(self, slots: int) -> int:
        """Return how many lanes there may be. Where Spark brings more slots on demand, somebody must demand them."""
        return self._most if self._asks_for_more else min(self._most, slots)

    def _tell_change(self, slots: int) -> None:
        before, self._slots = self._slots, slots
        if before is None:
            return
        level = logging.WARNING if slots < before else logging.INFO
        has = f"{counted(slots, 'slot')}, before it was {before}" if slots else f"no slot left of {before}"
        logger.log(level, "Spark has %s: the lanes follow", has, extra={"action": "slots_changed"})
