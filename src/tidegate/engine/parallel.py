"""Runs several records of a lane at a time. The work thread begins them and books their ends; a pool runs them.

Records of one queue (a partition, a key) never overlap: while one runs, those behind it wait, as they do behind
one that will be tried again.
"""

from __future__ import annotations

import contextlib
import time

from tidegate.context import Message
from tidegate.engine.attempts import Attempt, timed_out
from tidegate.engine.books import Books, place
from tidegate.engine.fates import Tools
from tidegate.engine.pool import Job, Pool
from tidegate.engine.waiting import Queue
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
            else:
                self._begin_nothing()
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
            if self.holding.is_on:
                self._forming = []  # its sink is away: the next round forms it anew
            if self._forming and self._has_room:
                self._begin()
            self._collect(0.05)

    def abandon(self) -> None:
        """The round ends by an error: let what runs come to its end, so that the next round does not meet it."""
        self._forming = []
        self.is_stopping = True
        while self._running:
            with contextlib.suppress(Exception):
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
        if batch is None or not self._forming or not self._has_room or self.holding.is_on:
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
        found = self._pool.ended(wait_seconds if self._running else 0.0)
        ended = [job for job in found if job in self._running]  # one that was given up may still end
        for job in ended:  # first: whatever becomes of one of them, nobody waits for the others again
            del self._running[job]
        misused = [error for job in ended if (error := self._book(job)) is not None]
        if misused:
            raise misused[0]  # no record is to blame: the pipeline itself cannot work
        if self._pool.has_stuck_thread:
            self.is_stopping, self.is_healthy = True, False
        self._give_up_late()

    def _book(self, job: Job) -> NeverAwaited | None:
        """Book how the records of a job ended; return the error that ends the run instead of failing one of them."""
        waiting = self.fates.waiting
        misused = next((one.error for one in job.ended if isinstance(one.error, NeverAwaited)), None)
        if misused is not None:
            return misused
        # Last to first: each is put before those that wait, so that they stand there in their old order.
        for ended, queue in reversed(list(zip(job.ended, job.queues, strict=True))):
            if not ended.is_begun:
                self._books.keep_open(ended.attempt.message, done=ended.done)
                waiting.push(queue, ended.attempt.message)
            elif ended.error is not None:
                self.fates.failed(ended.attempt, ended.error, ended.done, ended.sink)
            else:
                self.fates.succeeded(ended.attempt, ended.done, took_effect=ended.took_effect, outputs=ended.outputs)
        for queue in dict.fromkeys(job.queues):
            self._go_on_with(queue)
        return None

    def _go_on_with(self, queue: Queue) -> None:
        """Begin the next of a queue whose record has ended, unless it waits to be tried again."""
        waiting, batch = self.fates.waiting, self._tools.plan.batch
        # No more than its list has room for: the rest would run beside it.
        room = 1 if batch is None else batch.size - len(self._forming)
        has_begun = False
        # One by one: where one of them has to wait, so have all behind it.
        while room and waiting.is_running(queue):
            taken = waiting.take_next(queue) if self._may_go_on else None
            if taken is None:
                break
            attempt = self.fates.look_at(taken, is_next=True)
            if attempt is not None:
                self._form(attempt)
                room, has_begun = room - 1, True
        if not has_begun and waiting.is_running(queue):
            waiting.open(queue)  # else it stays closed until these have ended

    @property
    def _may_go_on(self) -> bool:
        return self._has_room and self.turnstile is None and not (self.is_stopping or self.holding.is_on)

    def _give_up_late(self) -> None:
        """A thread cannot be stopped: note that its time is up, begin nothing more, and let the worker end."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        limit = self._attempt_seconds + (BLOCKED_SECONDS if self._pool.can_cancel else 0.0)
        # One that has ended is about to be collected: what it has done counts.
        for job in [job for job in self._running if now - job.began_at >= limit and not job.ended]:
            del self._running[job]
            for attempt in job.attempts:
                progress = job.progress  # it may still end in this very moment
                done = attempt.done if progress is None else progress()
                self._books.keep_open(attempt.message, timed_out(attempt, self._attempt_seconds), done)
            self.is_stopping = True
            self.is_healthy = False
