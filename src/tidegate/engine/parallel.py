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
from tidegate.errors import NeverAwaited
from tidegate.kafka.reader import Reader
from tidegate.records import Lease, Partition

BLOCKED_SECONDS = 5.0
"""A loop that ends no attempt for so long beyond its time is blocked by a function that does not wait."""

LOOK_SECONDS = 0.2


class Parallel(Work):
    """Many records at a time."""

    def __init__(self, lease: Lease, tools: Tools, reader: Reader, books: Books, pool: Pool) -> None:
        super().__init__(lease, tools, reader, books, pool.taken)
        self._pool = pool
        self._running: dict[Job, None] = {}
        """An ordered set."""
        self._forming: list[Attempt] = []
        """A list that is being filled."""
        self._formed_at = 0.0
        self._next_look = 0.0

    # --- for the loop

    @property
    def is_busy(self) -> bool:
        """Whether records are being run beside the loop."""
        return bool(self._running)

    def run(self, batch: list[Message]) -> int:
        """Begin records in this order, as long as there is room; the rest stays in the backlog."""
        at = 0
        while at < len(batch) and self._has_room and self._may_begin():
            attempt = self.fates.look_at(batch[at])
            at += 1
            if attempt is not None:
                self._form(attempt)
            if self.holding.is_probing and self._running:
                break  # one record looks for the sink, not as many as there is room for
        self._backlog = batch[at:] + self._backlog
        self._begin_due()
        self._tools.copier.poll()
        return at

    def run_waiting(self) -> int:
        """Book what has ended; begin what has waited long enough, and what is in the backlog."""
        self._collect(0.0)
        self._begin_due()
        if self.holding.is_probing and self._running:
            return 0
        return super().run_waiting() if self._has_room else 0

    def wait(self, seconds: float) -> None:
        """Wait for the end of a record."""
        self._collect(seconds)

    def finish(self) -> None:
        """Wait for everything that was begun."""
        self.is_stopping = True
        while self._running or self._forming:
            if self._forming and self._has_room:
                self._begin()
            self._collect(0.05)

    def unfinished(self) -> set[Partition]:
        """Return the partitions of which records were read and are not through."""
        return (
            super().unfinished()
            | {place(attempt.message) for job in self._running for attempt in job.attempts}
            | {place(attempt.message) for attempt in self._forming}
        )

    def give_up_late(self) -> bool:
        """Never: the loop of the round is not held up by users' functions, and looks itself."""
        return False

    # --- inside

    @property
    def next_start(self) -> float | None:
        """When something that waits may be tried, or a list that is not full goes to its sink."""
        start = super().next_start
        if not self._forming or self._tools.plan.batch is None:
            return start
        goes = self._formed_at + self._tools.plan.batch.within
        return goes if start is None else min(goes, start)

    @property
    def _has_room(self) -> bool:
        return len(self._running) < self._tools.plan.width

    def _form(self, attempt: Attempt) -> None:
        """Begin a record, or put it into the list that is being filled."""
        self._books.keep_open(attempt.message)
        if not self._forming:
            self._formed_at = time.monotonic()
        self._forming.append(attempt)
        if self._tools.plan.batch is None or len(self._forming) >= self._tools.plan.batch.size:
            self._begin()

    def _begin_due(self) -> None:
        """Begin a list that is not full and has waited long enough."""
        batch = self._tools.plan.batch
        if batch is None or not self._forming or not self._has_room:
            return
        if time.monotonic() >= self._formed_at + batch.within:
            self._begin()

    def _begin(self) -> None:
        queues = [self.fates.queue(attempt.message) for attempt in self._forming]
        for queue in queues:
            self.fates.waiting.start(queue)
        job = Job(self._forming, queues)
        self._forming = []
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
        waiting = self.fates.waiting
        # Those that were left alone stand before whatever came behind them meanwhile.
        for ended, queue in reversed(list(zip(job.ended, job.queues, strict=True))):
            if not ended.is_begun:
                waiting.push(queue, ended.attempt.message)
        for ended in job.ended:
            if not ended.is_begun:
                continue
            if isinstance(ended.error, NeverAwaited):
                raise ended.error  # no record is to blame: the pipeline itself cannot work
            if ended.error is None:
                self.fates.succeeded(ended.attempt, took_effect=ended.took_effect)
            else:
                self.fates.failed(ended.attempt, ended.error, ended.done, ended.sink)
        # Unless it waits to be tried again, those behind it are free.
        free = [message for queue in dict.fromkeys(job.queues) for message in waiting.finish(queue)]
        self._backlog = sorted(free, key=lambda message: message.offset()) + self._backlog

    def _give_up_late(self) -> None:
        """A thread cannot be stopped: note that its time is up, begin nothing more, and let the worker end."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        limit = self._attempt_seconds + (BLOCKED_SECONDS if self._pool.can_cancel else 0.0)
        for job in [job for job in self._running if now - job.began_at >= limit]:
            del self._running[job]
            for attempt in job.attempts:
                self._books.keep_open(attempt.message, timed_out(attempt, self._attempt_seconds), attempt.done)
            self.is_stopping = True
            self.is_healthy = False
