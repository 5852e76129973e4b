"""Runs several records of a lane at a time. The work thread begins them and books their ends; a pool runs them.

Records of one queue (a partition, a key) never overlap: while one runs, those behind it wait, as they do behind
one that will be tried again.
"""

from __future__ import annotations

import time

from tidegate.context import Message
from tidegate.engine.books import Books, place
from tidegate.engine.fates import Attempt, Tools, timed_out
from tidegate.engine.pool import Job, Pool
from tidegate.engine.work import Work
from tidegate.kafka.reader import Reader
from tidegate.records import Lease, Partition

BLOCKED_SECONDS = 5.0
"""A loop that ends no attempt for so long beyond its time is blocked by a function that does not wait."""


class Parallel(Work):
    """Many records at a time."""

    def __init__(self, lease: Lease, tools: Tools, reader: Reader, books: Books, pool: Pool) -> None:
        super().__init__(lease, tools, reader, books, pool.taken)
        self._pool = pool
        self._running: dict[Job, None] = {}
        """In the order in which they began: the first is the oldest."""

    # --- for the loop

    @property
    def is_busy(self) -> bool:
        """Whether records are being run beside the loop."""
        return bool(self._running)

    def run(self, batch: list[Message]) -> int:
        """Begin records in this order, as long as there is room; the rest stays in the backlog."""
        at = 0
        width = self._tools.plan.width
        while at < len(batch) and len(self._running) < width and self._may_begin():
            attempt = self.fates.look_at(batch[at])
            at += 1
            if attempt is not None:
                self._begin(attempt)
            if self.holding.is_probing and self._running:
                break  # one record looks for the sink, not as many as there is room for
        self._backlog = batch[at:] + self._backlog
        self._tools.copier.poll()
        return at

    def run_waiting(self) -> int:
        """Book what has ended; begin what has waited long enough, and what is in the backlog."""
        self._collect(0.0)
        if self.holding.is_probing and self._running:
            return 0
        if len(self._running) >= self._tools.plan.width:
            return 0
        return super().run_waiting()

    def wait(self, seconds: float) -> None:
        """Wait for the end of a record."""
        self._collect(seconds)

    def finish(self) -> None:
        """Wait for everything that was begun."""
        self.is_stopping = True
        while self._running:
            self._collect(0.05)

    def unfinished(self) -> set[Partition]:
        """Return the partitions of which records were read and are not through."""
        return super().unfinished() | {place(job.attempt.message) for job in self._running}

    def give_up_late(self) -> bool:
        """Never: the loop of the round is not held up by users' functions, and looks itself."""
        return False

    # --- inside

    def _begin(self, attempt: Attempt) -> None:
        self._books.keep_open(attempt.message)
        self.fates.waiting.start(self.fates.queue(attempt.message))
        job = Job(attempt)
        self._running[job] = None
        self._pool.submit(job)

    def _collect(self, wait_seconds: float) -> None:
        """Book the ends of attempts; wait so long for the first."""
        self._tools.copier.poll()
        for job in self._pool.ended(wait_seconds if self._running else 0.0):
            if job in self._running:  # one that was given up may still end
                del self._running[job]
                self._book(job)
        self._give_up_late()

    def _book(self, job: Job) -> None:
        attempt = job.attempt
        if job.error is None:
            self.fates.succeeded(attempt, took_effect=job.took_effect)
        else:
            self.fates.failed(attempt, job.error, job.done, job.sink)
        # Unless it waits to be tried again, those behind it are free.
        self._backlog = self.fates.waiting.finish(self.fates.queue(attempt.message)) + self._backlog

    def _give_up_late(self) -> None:
        """A thread cannot be stopped: note that its time is up, begin nothing more, and let the worker end."""
        oldest = next(iter(self._running), None)
        grace = BLOCKED_SECONDS if self._pool.can_cancel else 0.0
        while oldest is not None and time.monotonic() - oldest.began_at >= self._attempt_seconds + grace:
            del self._running[oldest]
            self._books.keep_open(oldest.attempt.message, timed_out(oldest.attempt, self._attempt_seconds), oldest.done)
            self.is_stopping = True
            self.is_healthy = False
            oldest = next(iter(self._running), None)
