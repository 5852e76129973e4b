"""Runs attempts beside the work thread: plain functions in threads, `async def` on one event loop.

Made once per Python worker and plan, after the fork: users' connections are bound to the thread or the loop
that made them, and live as long as the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from tidegate.async_steps import AsyncRunner
from tidegate.context import Hand, take_in_hand
from tidegate.engine.fates import Attempt
from tidegate.errors import TimedOut
from tidegate.records import Done
from tidegate.steps import Plan, Runner


@dataclass(eq=False)
class Job:
    """One attempt that is being made."""

    attempt: Attempt
    began_at: float = field(default_factory=time.monotonic)
    error: BaseException | None = None
    done: Done = frozenset()
    sink: int = -1
    """Where it failed."""
    took_effect: bool = False


class Pool(ABC):
    """Makes attempts; what has ended comes out of `ended`, in no order."""

    def __init__(self, plan: Plan, group: str) -> None:
        self.plan = plan
        self._group = group
        self.taken = [0] * len(plan.sinks)
        """How many values each sink has taken, in this round."""
        self._ended: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self.can_cancel = False
        """Whether an attempt that takes too long is ended by the pool itself."""

    def begin_round(self) -> None:
        """A new round: what earlier ones left behind is of no use."""
        for number in range(len(self.taken)):
            self.taken[number] = 0
        with contextlib.suppress(queue.Empty):
            while True:
                self._ended.get_nowait()

    def ended(self, wait_seconds: float = 0.0) -> list[Job]:
        """Return the attempts that have ended, waiting so long for the first."""
        found = []
        with contextlib.suppress(queue.Empty):
            found.append(self._ended.get(timeout=wait_seconds) if wait_seconds > 0 else self._ended.get_nowait())
            while True:
                found.append(self._ended.get_nowait())
        return found

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Begin an attempt. Never more at a time than the pool is wide."""


class ThreadPool(Pool):
    """As many threads as records may be in work, each with its own hand."""

    def __init__(self, plan: Plan, group: str) -> None:
        super().__init__(plan, group)
        self._given: queue.SimpleQueue[Job] = queue.SimpleQueue()
        for number in range(plan.width):
            threading.Thread(target=self._serve, name=f"tidegate-{number}", daemon=True).start()

    def submit(self, job: Job) -> None:
        """Give it to whichever thread is free."""
        self._given.put(job)

    def _serve(self) -> None:
        hand = Hand(self._group)
        runner = Runner(self.plan, hand, self.taken)
        take_in_hand(hand)
        while True:
            job = self._given.get()
            attempt = job.attempt
            hand.copy, hand.attempt, hand.message = attempt.copy, attempt.number, attempt.message
            hand.suffix = ""
            runner.resume(attempt.done)
            taken = runner.taken_by_me
            try:
                runner.run_noting(attempt.message.value())
            except BaseException as error:  # noqa: BLE001  # whatever a user's function raises fails its record, no more
                job.error, job.done, job.sink = error, runner.done, runner.at_sink
            job.took_effect = runner.taken_by_me > taken
            hand.message = None
            self._ended.put(job)


class LoopPool(Pool):
    """One event loop in a thread of its own."""

    def __init__(self, plan: Plan, group: str, attempt_seconds: float) -> None:
        super().__init__(plan, group)
        self.can_cancel = True
        self._seconds = attempt_seconds
        self._free: list[tuple[Hand, AsyncRunner]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self._serve, name="tidegate-loop", daemon=True).start()

    def submit(self, job: Job) -> None:
        """Begin it on the loop."""
        self.loop.call_soon_threadsafe(self._begin, job)

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def _begin(self, job: Job) -> None:
        task = self.loop.create_task(self._run(job))
        self._tasks.add(task)  # the loop itself keeps only a weak reference
        task.add_done_callback(self._tasks.discard)

    async def _run(self, job: Job) -> None:
        hand, runner = self._free.pop() if self._free else self._make()
        attempt = job.attempt
        hand.copy, hand.attempt, hand.message = attempt.copy, attempt.number, attempt.message
        take_in_hand(hand)
        taken = runner.taken_by_me
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                await runner.run(attempt.message.value(), attempt.done)
        except BaseException as error:  # noqa: BLE001  # whatever a user's function raises fails its record, no more
            late = isinstance(error, TimeoutError) and limit.expired()
            job.error = TimedOut(f"one attempt took longer than timeout={self._seconds:g}s") if late else error
            job.done, job.sink = runner.done, runner.at_sink
        job.took_effect = runner.taken_by_me > taken
        hand.message = None
        self._free.append((hand, runner))
        self._ended.put(job)

    def _make(self) -> tuple[Hand, AsyncRunner]:
        hand = Hand(self._group)
        return hand, AsyncRunner(self.plan, hand, self.taken)


_pools: dict[tuple[int, int, str], Pool] = {}


def worker_pool(plan: Plan, group: str, attempt_seconds: float) -> Pool:
    """Return this worker's pool for a plan, made on first use."""
    key = (os.getpid(), id(plan), group)
    if key not in _pools:
        _pools.clear()
        _pools[key] = LoopPool(plan, group, attempt_seconds) if plan.is_async else ThreadPool(plan, group)
    pool = _pools[key]
    pool.begin_round()
    return pool
