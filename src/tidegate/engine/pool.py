"""Runs attempts beside the work thread: plain functions in threads, `async def` on one event loop.

Made once per Python worker and plan, after the fork: users' connections are bound to the thread or the loop
that made them, and live as long as the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.async_steps import AsyncRunner, Threads, answer
from tidegate.context import Hand, current, take_in_hand
from tidegate.deadlines import Deadlines
from tidegate.engine.attempts import Attempt
from tidegate.engine.waiting import Queue
from tidegate.errors import TimedOut
from tidegate.lists import Item, Part, write_lists
from tidegate.records import Done
from tidegate.steps import Plan, Runner, Value, refuse_unrun


@dataclass
class Ended:
    """How one attempt ended."""

    attempt: Attempt
    error: BaseException | None = None
    done: Done = frozenset()
    sink: int = -1
    """Where it failed."""
    took_effect: bool = False
    outputs: list[Any] = field(default_factory=list)
    """What sinks that write in bulk made of it."""
    is_begun: bool = True
    """False: one before it in its queue failed, so it was left alone."""


@dataclass(eq=False)
class Job:
    """One attempt that is being made, or a list of them."""

    attempts: list[Attempt]
    queues: list[Queue]
    began_at: float = field(default_factory=time.monotonic)
    """When the call to a user's function began that is going on now."""
    ended: list[Ended] = field(default_factory=list)
    progress: Callable[[], Done] | None = None
    """What of a single record has its effect by now."""


class Pool(ABC):
    """Makes attempts; what has ended comes out of `ended`, in no order."""

    def __init__(self, plan: Plan, group: str) -> None:
        self.plan = plan
        self._group = group
        self.taken = [0] * len(plan.sinks)
        """How many values each sink has taken, in this round."""
        self._ended: queue.SimpleQueue[list[Job]] = queue.SimpleQueue()
        self._seconds = 0.0
        self.can_cancel = False
        """Whether an attempt that takes too long is ended by the pool itself."""

    @property
    def has_stuck_thread(self) -> bool:
        """Whether a call was given up that still runs, so that this worker must end."""
        return False

    def begin_round(self, attempt_seconds: float) -> None:
        """A new round: what earlier ones left behind is of no use."""
        self._seconds = attempt_seconds
        for number in range(len(self.taken)):
            self.taken[number] = 0
        with contextlib.suppress(queue.Empty):
            while True:
                self._ended.get_nowait()

    def ended(self, wait_seconds: float = 0.0) -> list[Job]:
        """Return the attempts that have ended, waiting so long for the first."""
        found: list[Job] = []
        with contextlib.suppress(queue.Empty):
            found += self._ended.get(timeout=wait_seconds) if wait_seconds > 0 else self._ended.get_nowait()
            while True:
                found += self._ended.get_nowait()
        return found

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Begin an attempt. Never more at a time than the pool is wide."""

    @abstractmethod
    def close(self) -> None:
        """Let its threads end: another plan has taken its place."""


class ThreadPool(Pool):
    """As many threads as records may be in work, each with its own hand."""

    def __init__(self, plan: Plan, group: str) -> None:
        super().__init__(plan, group)
        self._given: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        for number in range(plan.width):
            threading.Thread(target=self._serve, name=f"tidegate-{number}", daemon=True).start()

    def submit(self, job: Job) -> None:
        """Give it to whichever thread is free."""
        self._given.put(job)

    def close(self) -> None:
        """Let the threads end."""
        for _ in range(self.plan.width):
            self._given.put(None)

    def _serve(self) -> None:
        hand = Hand(self._group)
        runner = Runner(self.plan, hand, self.taken)
        take_in_hand(hand)
        while (job := self._given.get()) is not None:
            job.ended = self._run_list(job, hand, runner) if self.plan.batch else [self._run(job, hand, runner)]
            hand.message = None
            job.progress = None  # the runner is about to be another record's
            self._ended.put([job])

    @staticmethod
    def _run(job: Job, hand: Hand, runner: Runner) -> Ended:
        attempt, taken = job.attempts[0], runner.taken_by_me
        take_up(hand, attempt)
        runner.resume(attempt.done)
        job.progress = runner.progress()
        ended = Ended(attempt)
        try:
            runner.run_noting(attempt.message.value())
        except BaseException as error:  # noqa: BLE001  # whatever a user's function raises fails its record, no more
            ended.error, ended.sink = error, runner.at_sink
        ended.done = runner.done
        ended.outputs = hand.outputs
        ended.took_effect = runner.taken_by_me > taken
        return ended

    def _run_list(self, job: Job, hand: Hand, runner: Runner) -> list[Ended]:
        parts: list[Part] = []
        failed: set[Queue] = set()
        for attempt, queue_ in zip(job.attempts, job.queues, strict=True):
            part = Part(queue_, before=attempt.done, is_begun=queue_ not in failed)
            parts.append(part)
            if part.is_begun:
                take_up(hand, attempt)
                job.began_at = time.monotonic()
                try:
                    part.values = with_records(self.plan, runner.collect(attempt.message.value()))
                    part.stable_id = current().stable_id
                except BaseException as error:  # noqa: BLE001  # as above
                    part.error = error
                    failed.add(queue_)
        hand.message = None
        calls = write_lists(parts, len(self.plan.sinks))
        call = next(calls, None)
        while call is not None:
            number, items = call
            job.began_at = time.monotonic()
            given: object
            try:
                hand.ids = ids_of(items)
                given = self.plan.sinks[number].write([value for _, _, value in items])
                refuse_unrun(given)
            except BaseException as error:  # noqa: BLE001  # as above
                given = error
            call = next_call(calls, given)
        return ended_parts(job, parts, self.taken)


class LoopPool(Pool):
    """One event loop in a thread of its own.

    Waking a thread costs as much as half a request: jobs go to the loop together, all that were submitted until it
    looks, and what ended in one turn of the loop comes back together.
    """

    def __init__(self, plan: Plan, group: str) -> None:
        super().__init__(plan, group)
        self.can_cancel = True
        self._free: list[tuple[Hand, AsyncRunner]] = []
        self._tasks: dict[Job, asyncio.Task[None]] = {}
        self._given: deque[Job] = deque()
        self._is_called = False
        """Whether the loop will look at what is given."""
        self._finished: list[Job] = []
        self._deadlines = Deadlines(0.0)
        self._is_closed = False
        self._threads = Threads(plan.width)
        self.loop = new_loop()
        threading.Thread(target=self._serve, name="tidegate-loop", daemon=True).start()

    @property
    def has_stuck_thread(self) -> bool:
        """Whether a plain sink was given up and still runs, or somebody has closed the loop."""
        return self._threads.left_behind > 0 or (self.loop.is_closed() and not self._is_closed)

    def begin_round(self, attempt_seconds: float) -> None:
        """A new round, in which attempts may take so long."""
        super().begin_round(attempt_seconds)
        if self._deadlines.seconds != attempt_seconds:
            self._deadlines = Deadlines(attempt_seconds)

    def submit(self, job: Job) -> None:
        """Begin it on the loop."""
        self._given.append(job)
        if not self._is_called:
            self._is_called = True
            self.loop.call_soon_threadsafe(self._begin_given)

    def close(self) -> None:
        """Let the loop end."""
        self._is_closed = True
        with contextlib.suppress(RuntimeError):  # somebody has closed it
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._threads.close()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        # One that somebody has closed would raise at once, for ever.
        while not (self._is_closed or self.loop.is_closed()):
            # A task of a user's own that raises `SystemExit` ends the loop, and with it all others that wait in it.
            with contextlib.suppress(BaseException):
                self.loop.run_forever()

    def _begin_given(self) -> None:
        self._is_called = False  # first: what is given from now on calls again
        while self._given:
            job = self._given.popleft()
            self._tasks[job] = self.loop.create_task(self._run(job))  # the loop itself keeps only a weak reference

    def _hand_over(self) -> None:
        finished, self._finished = self._finished, []
        self._ended.put(finished)

    async def _run(self, job: Job) -> None:
        hand, runner = self._free.pop() if self._free else self._make()
        take_in_hand(hand)
        if self.plan.batch is None:
            job.ended = [await self._run_one(job.attempts[0], hand, runner)]
        else:
            job.ended = await self._run_list(job, hand, runner)
        hand.message = None
        self._free.append((hand, runner))
        if not self._finished:
            self.loop.call_soon(self._hand_over)
        self._finished.append(job)
        del self._tasks[job]

    async def _run_one(self, attempt: Attempt, hand: Hand, runner: AsyncRunner) -> Ended:
        taken, ended = runner.taken_by_me, Ended(attempt)
        take_up(hand, attempt)
        ended.error = await self._within_time(runner.run(attempt.message.value(), attempt.done))
        ended.done = runner.done
        if ended.error is not None:
            ended.sink = runner.at_sink
        ended.outputs = hand.outputs
        ended.took_effect = runner.taken_by_me > taken
        return ended

    async def _run_list(self, job: Job, hand: Hand, runner: AsyncRunner) -> list[Ended]:
        parts: list[Part] = []
        failed: set[Queue] = set()

        async def collect(part: Part, attempt: Attempt) -> None:
            part.values = with_records(self.plan, await runner.collect(attempt.message.value()))
            part.stable_id = current().stable_id

        for attempt, queue_ in zip(job.attempts, job.queues, strict=True):
            part = Part(queue_, before=attempt.done, is_begun=queue_ not in failed)
            parts.append(part)
            if part.is_begun:
                take_up(hand, attempt)
                job.began_at = time.monotonic()
                part.error = await self._within_time(collect(part, attempt))
                if part.error is not None:
                    failed.add(queue_)
        hand.message = None
        calls = write_lists(parts, len(self.plan.sinks))
        call = next(calls, None)
        while call is not None:
            number, items = call
            job.began_at = time.monotonic()
            answers: list[object] = []
            hand.ids = ids_of(items)
            error = await self._within_time(self._write(number, [value for _, _, value in items], answers))
            call = next_call(calls, answers[0] if error is None else error)
        return ended_parts(job, parts, self.taken)

    async def _write(self, number: int, values: list[object], answers: list[object]) -> None:
        sink = self.plan.sinks[number]
        if sink.is_async:
            answers.append(await answer(sink.write(values)))
        else:
            answers.append(await self._threads.call(sink.write, values))
            refuse_unrun(answers[0])

    async def _within_time(self, work: Awaitable[None]) -> BaseException | None:
        """Wait for a user's function; return what it raised, or that its time was up."""
        limit = self._deadlines.limit()
        try:
            with limit:
                await work
        except BaseException as error:  # noqa: BLE001  # whatever a user's function raises fails its record, no more
            if isinstance(error, TimeoutError) and limit.has_expired:
                return TimedOut(f"one attempt took longer than timeout={self._seconds:g}s")
            return error
        return None

    def _make(self) -> tuple[Hand, AsyncRunner]:
        hand = Hand(self._group)
        return hand, AsyncRunner(self.plan, hand, self.taken, self._threads)


def new_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop: uvloop's where that is installed. It behaves as Python's own, and costs a third less."""
    try:
        import uvloop  # noqa: PLC0415  # comes with an extra
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def take_up(hand: Hand, attempt: Attempt) -> None:
    """Put a record into a hand."""
    hand.copy, hand.attempt, hand.message, hand.suffix = attempt.copy, attempt.number, attempt.message, ""
    hand.ids, hand.outputs = (), []


def with_records(plan: Plan, values: list[tuple[int, Value]]) -> list[tuple[int, Value]]:
    """Return the values as records, where the sink wants these."""
    if plan.batch is None or not plan.batch.with_records:
        return values
    record = current()
    return [
        (child, replace(record, value=value, stable_id=record.stable_id + (f"/{child}" if plan.has_children else "")))
        for child, value in values
    ]


def ids_of(items: list[Item]) -> tuple[str, ...]:
    """Return what tells the values of a list from all others, in every attempt alike."""
    return tuple(f"{part.stable_id}/{child}" for part, child, _ in items)


def next_call(calls: Generator[tuple[int, list[Item]], object, None], answer: object) -> tuple[int, list[Item]] | None:
    """Tell what a sink answered; return the next call to make."""
    try:
        return calls.send(answer)
    except StopIteration:
        return None


def ended_parts(job: Job, parts: list[Part], taken: list[int]) -> list[Ended]:
    """Return how each record of a list ended."""
    ended = []
    for attempt, part in zip(job.attempts, parts, strict=True):
        for _, number in part.done:
            taken[number] += 1
        done = attempt.done | part.done
        ended.append(Ended(attempt, part.error, done, part.sink, bool(part.done), is_begun=part.is_begun))
    return ended


MOST_POOLS = 4
"""Pools that one worker keeps: more than one only where several pipelines share a Spark session."""

_pools: list[Pool] = []


def worker_pool(plan: Plan, group: str, attempt_seconds: float) -> Pool:
    """Return this worker's pool for a plan, made on first use."""
    pool = next((one for one in _pools if one.plan is plan), None)
    if pool is None:
        pool = LoopPool(plan, group) if plan.is_async else ThreadPool(plan, group)
        _pools.append(pool)
        while len(_pools) > MOST_POOLS:
            _pools.pop(0).close()
    pool.begin_round(attempt_seconds)
    return pool
