"""The history of one run, written beside it: the driver only notes, a thread of its own writes.

Nothing here ever waits for the database but that thread. While the database is away the latest mark of each
partition and the latest failures are kept, so that memory stays bounded.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from tidegate.errors import TidegateError
from tidegate.history.pruning import FINE_SECONDS
from tidegate.history.rows import Batch, FailureRow, MarkRow, RunRow
from tidegate.history.store import History
from tidegate.records import Counts, Partition

logger = logging.getLogger("tidegate.history")

MOST_NOTED_FAILURES = 200
"""Failures between two writes: of more, the oldest are dropped."""
_TEXT_SHOWN = 4_000
_SAY_AGAIN_SECONDS = 60.0
_PRUNE_SECONDS = 60.0
_FINE_ROWS = 720
"""Commits of a partition that are kept before they are thinned, at most."""


class HistoryWriter:
    """Takes what a run has to say, and writes it every so often. No method but `close` ever waits."""

    def __init__(self, history: History, every_seconds: float, *, keep_seconds: float = 604_800.0) -> None:
        self._history = history
        self._every = every_seconds
        self._keep = keep_seconds
        self._lock = threading.Lock()
        self._run: RunRow | None = None
        self._marks: dict[Partition, MarkRow] = {}
        self._failures: deque[FailureRow] = deque(maxlen=MOST_NOTED_FAILURES)
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._warnings = _Warnings(history.shown)
        self._pruned_at: float | None = None

    def begin(self, run: RunRow) -> None:
        """Begin to write, with this run; its `seen_at` is renewed by every write."""
        with self._lock:
            self._run = run
        self._thread = threading.Thread(target=self._work, name="tidegate-history", daemon=True)
        self._thread.start()

    def note_marks(self, marks: Mapping[Partition, MarkRow]) -> None:
        """Note where partitions stand now: of each, the latest is written."""
        with self._lock:
            self._marks |= marks

    def note_failure(self, failure: FailureRow) -> None:
        """Note a record that failed."""
        short = replace(failure, message=failure.message[:_TEXT_SHOWN], traceback=failure.traceback[-_TEXT_SHOWN:])
        with self._lock:
            self._failures.append(short)

    def note_counts(self, counts: Counts) -> None:
        """Note what became of the run's records so far."""
        self._change(counts=counts)

    def note_state(self, state: str) -> None:
        """Note what the run does now."""
        self._change(state=state)

    def note_member(self, member_id: str, topics: tuple[str, ...] | None = None) -> None:
        """Note under which id it is in the group, and what it reads."""
        self._change(member_id=member_id, **({} if topics is None else {"topics": topics}))

    def close(self, state: str = "done", error: str = "", *, within_seconds: float = 5.0) -> None:
        """Write the end of the run and let go of the history; give up on it after this time."""
        if self._thread is None:
            return
        self._change(state=state, error=error[:_TEXT_SHOWN], ended_at=datetime.now(UTC))
        self._ending.set()
        self._thread.join(within_seconds)
        if self._thread.is_alive():
            self._warnings.failed(f"no answer within {within_seconds:g}s: the end of the run is not written")

    def _change(self, **values: object) -> None:
        with self._lock:
            if self._run is not None:
                self._run = replace(self._run, **values)  # type: ignore[arg-type]  # the callers above name fields

    def _work(self) -> None:
        is_last = False
        while True:
            self._write()
            if is_last:
                self._history.close()
                return
            is_last = self._ending.wait(self._every)

    def _write(self) -> None:
        batch = self._taken()
        if batch is None:
            return
        try:
            self._history.write(batch)
            self._prune()
        except TidegateError as error:
            self._put_back(batch)
            self._warnings.failed(str(error))
        except Exception as error:  # noqa: BLE001  # a defect here must not end the thread, and so the history
            self._put_back(batch)
            self._warnings.failed(f"{type(error).__name__}: {error}")
        else:
            self._warnings.worked()

    def _taken(self) -> Batch | None:
        with self._lock:
            if self._run is None:
                return None
            run = replace(self._run, seen_at=datetime.now(UTC))
            batch = Batch(run, self._marks, tuple(self._failures))
            self._marks = {}
            self._failures.clear()
            return batch

    def _put_back(self, batch: Batch) -> None:
        """Keep what was not written, but for what has been overtaken since."""
        with self._lock:
            self._marks = {**batch.marks, **self._marks}
            kept = [*batch.failures, *self._failures]
            self._failures.clear()
            self._failures.extend(kept)

    def _prune(self) -> None:
        now = time.monotonic()
        if self._pruned_at is None or now - self._pruned_at >= _PRUNE_SECONDS:
            self._pruned_at = now
            self._history.prune(self._keep, min(FINE_SECONDS, _FINE_ROWS * self._every))


class _Warnings:
    """Says once that the history is away, again after a minute, and that it is back."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._said_at: float | None = None

    def failed(self, why: str) -> None:
        now = time.monotonic()
        if self._said_at is None or now - self._said_at >= _SAY_AGAIN_SECONDS:
            self._said_at = now
            logger.warning("%s; the run goes on without its history", why, extra={"action": "history_failed"})

    def worked(self) -> None:
        if self._said_at is not None:
            self._said_at = None
            logger.info("the history %s is written again", self._shown, extra={"action": "history_back"})
