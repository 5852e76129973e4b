"""The one lane of a DataFrame pipeline: its rounds run in a thread of the driver, which Spark's jobs belong to."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from tidegate.engine.frame_round import FrameTools, FrameWork
from tidegate.engine.lanes import Lanes, RoundEnded
from tidegate.engine.planner import Planner
from tidegate.engine.spark import RoundDied
from tidegate.engine.wording import names
from tidegate.errors import SparkFailed
from tidegate.records import Lease, Outcome, counted

logger = logging.getLogger("tidegate.frames")

TELL_SECONDS = 10.0


class FrameLanes(Lanes):
    """Runs planned rounds, and lets the planner take its turns."""

    def __init__(self, tools: FrameTools, planner: Planner, ended: Callable[[RoundEnded], None]) -> None:
        super().__init__(tools.spark, tools.group, lambda _: b"", ended, None)
        self._tools = tools
        self._planner = planner
        self._cancelled = -1
        self._round = 0
        self._work: FrameWork | None = None
        self._phase = ""
        self._began = self._told_at = 0.0

    def tick(self, proofs: Callable[[int], Sequence[int]]) -> None:
        """Plan the next round, and say how a long one goes."""
        super().tick(proofs)
        self._planner.turn()
        work, now = self._work, time.monotonic()
        if work is not None and now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            self._tell(work, now)

    def cancel(self, lane: int) -> None:
        """Cancel the round: its Spark jobs end. What the user's own code does outside of Spark cannot be ended."""
        # Not the round that runs: the thread may not have taken this one yet, and would run it all the same.
        self._cancelled = self._rounds[lane][0] if lane in self._rounds else self._round
        super().cancel(lane)

    def close(self) -> None:
        """Let the thread end when its round has."""
        self._planner.close()
        super().close()

    def _run(self, lease: Lease) -> RoundEnded:
        self._round = lease.round
        work = FrameWork(self._tools, lease, self._describe, is_repeat=self._is_repeat(lease))
        self._work, self._began, self._told_at = work, time.monotonic(), time.monotonic()
        try:
            outcome = self._outcome(work)
        except Exception as error:  # noqa: BLE001  # whatever it is, the driver must hear that the round ended
            return RoundEnded(lease, None, error)
        finally:
            self._work = None
        self._planner.pace = self._planner.pace.after(work.found.records, work.found.size, outcome.seconds)
        return RoundEnded(lease, outcome, None)

    def _outcome(self, work: FrameWork) -> Outcome:
        try:
            work.run()
        except SparkFailed:
            raise
        except Exception as error:
            if self._cancelled == self._round:
                raise RoundDied("it was cancelled") from error
            # Otherwise: Spark's Java dies, every call is refused, and the round would be repeated without an end.
            if isinstance(cause := self._spark.cause(error), SparkFailed):
                raise cause from error
            return work.failed(error, time.monotonic() - self._began)
        return work.done(time.monotonic() - self._began)

    def _describe(self, phase: str) -> None:
        """Name what comes next for Spark's pages. A round that was cancelled begins nothing more."""
        work = self._work
        if work is None or self._cancelled == self._round:
            raise RoundDied("it was cancelled")
        self._phase = phase
        records = f" of {counted(work.found.records, 'record')}" if work.found.records else ""
        self._spark.describe(
            self._name(0, self._round),
            f"tidegate {self._group}: {phase}, round {work.id}{records}: {names(work.partitions)}",
        )

    def _is_repeat(self, lease: Lease) -> bool:
        """Whether this is not the first attempt: of this process, or of one that has died."""
        id_ = next((one.position.planned.id for one in lease.partitions if one.position.planned is not None), "")
        is_first = id_ in self._planner.planned
        self._planner.planned.discard(id_)
        return not is_first

    def _tell(self, work: FrameWork, now: float) -> None:
        tasks = self._spark.progress(self._name(0, self._round))
        logger.info(
            "round %s: %s for %.0f s%s%s",
            work.id,
            self._phase,
            now - self._began,
            f", {counted(work.found.records, 'record')}" if work.found.records else "",
            _told(tasks, self._spark.slots),
            extra={"action": "round_progress"},
        )


def _told(tasks: tuple[int, int] | None, slots: int) -> str:
    """Say how far the tasks are; a round that waits for Spark must not look like one that hangs."""
    if tasks is not None:
        return f", {tasks[0]} of {tasks[1]} tasks"
    return "" if slots else ", waiting: Spark has no free slot"
