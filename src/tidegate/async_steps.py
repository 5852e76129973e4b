"""Pure: one record through steps and sinks of which some are `async def`. Runs on an event loop.

Plain functions among the steps run on the loop too: they should be short (a decoder). A plain function as a sink
runs in a thread of its own, so that it holds nobody up.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from tidegate.context import Hand
from tidegate.records import Done
from tidegate.steps import Plan, Step, Value, refuse_single, refuse_unrun, suffix_of

_PLAIN = frozenset({dict, list, str, bytes, int, float, bool, tuple, type(None)})
"""Values that cannot be waited for."""

AsyncChain = Callable[[Value], Awaitable[None]]


MOST_THREADS = 256


class Threads:
    """Calls plain functions beside an event loop, as many at a time as records may be in work, up to a bound."""

    def __init__(self, most: int) -> None:
        # Not the loop's own: that has few threads, and what hangs in them would let sound records wait out their time.
        self._pool = ThreadPoolExecutor(min(most, MOST_THREADS), thread_name_prefix="tidegate-plain")
        self.left_behind = 0
        """Calls that were given up and still run: a thread cannot be stopped."""

    async def call(self, function: Callable[[Value], object], value: Value) -> object:
        """Call it in a thread, with the context of the caller."""
        context, call = contextvars.copy_context(), Future[object]()

        def run() -> None:
            if call.set_running_or_notify_cancel():
                try:
                    call.set_result(context.run(function, value))
                except StopIteration as error:  # no loop takes that: whoever waits would hear nothing, until time is up
                    call.set_exception(_named(error))
                except BaseException as error:  # noqa: BLE001  # whoever waits for it gets it
                    call.set_exception(error)

        try:
            self._pool.submit(run)
        except RuntimeError:  # no thread can be started; others may still run what was queued, unless it is withdrawn
            if call.cancel():
                raise
        try:
            return await asyncio.wrap_future(call)
        except asyncio.CancelledError:
            if not call.cancel() and not call.done():
                self.left_behind += 1
            raise

    def close(self) -> None:
        """Begin no more; nobody waits for what hangs."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _named(stopped: StopIteration) -> RuntimeError:
    """Return what Python itself makes of it where a coroutine raises it."""
    error = RuntimeError("a sink raised StopIteration")
    error.__cause__ = stopped
    return error


class AsyncRunner:
    """Runs a plan on an event loop, one record at a time. `done` tells after a failure what has its effect."""

    def __init__(self, plan: Plan, hand: Hand, taken: list[int], threads: Threads) -> None:
        self._plan = plan
        self._threads = threads
        self._hand = hand
        self.taken = taken
        self.taken_by_me = 0
        self.at_sink = -1
        self._child = 0
        self._before: Done = frozenset()
        self._done: set[tuple[int, int]] = set()
        self._collected: list[tuple[int, Value]] = []
        self._collecting_chain = self._compile(self._into_list)
        self._chain = self._compile(self._into_sinks)

    @property
    def done(self) -> Done:
        """What of the record in hand has its effect by now."""
        return self._before | self._done

    async def run(self, value: Value, done: Done) -> None:
        """Run the whole chain for one value, but for what is done already."""
        self._child, self.at_sink, self._before, self._done = 0, -1, done, set()
        self._hand.suffix = ""
        await self._chain(value)

    async def collect(self, value: Value) -> list[tuple[int, Value]]:
        """Run the steps alone; return what would go to the sinks, each with its child's number."""
        self._child, self._collected = 0, []
        await self._collecting_chain(value)
        self._hand.suffix = ""
        return self._collected

    async def _into_list(self, value: Value) -> None:
        self._collected.append((self._child, value))
        self._child += 1

    def _compile(self, chain: AsyncChain) -> AsyncChain:
        for step in reversed(self._plan.steps):
            chain = self._before_chain(step, chain)
        return chain

    async def _into_sinks(self, value: Value) -> None:
        child = self._child
        self._child += 1
        for number, sink in enumerate(self._plan.sinks):
            if (child, number) in self._before:
                continue
            self.at_sink = number
            self._hand.suffix = suffix_of(self._plan, child, number)
            if sink.when is None or await answer(sink.when(value)):
                if sink.collects:
                    sink.write(value)  # it only notes: no thread is needed for that
                    continue
                if sink.is_async:
                    await answer(sink.write(value))
                else:
                    refuse_unrun(await self._threads.call(sink.write, value))
                self.taken[number] += 1
                self.taken_by_me += 1
            self._done.add((child, number))
        self.at_sink = -1

    def _before_chain(self, step: Step, rest: AsyncChain) -> AsyncChain:
        function = step.function
        if step.kind == "map":

            async def run_map(value: Value) -> None:
                made = function(value)
                # Most steps are plain functions that give plain values: a decoder's answer need not be asked further.
                await rest(made if type(made) in _PLAIN else await answer(made))

            return run_map
        if step.kind == "filter":

            async def run_filter(value: Value) -> None:
                verdict = function(value)
                if verdict if type(verdict) is bool else await answer(verdict):
                    await rest(value)
                else:
                    self._child += 1  # a dropped child keeps its number, so its brothers keep theirs

            return run_filter

        async def run_flat_map(value: Value) -> None:
            children: Iterable[Value] | AsyncIterable[Value] = await answer(function(value))
            if isinstance(children, AsyncIterable):
                async for child in children:
                    self._hand.suffix = f"/{self._child}"
                    await rest(child)
            else:
                refuse_single(function, children)
                for child in children:
                    self._hand.suffix = f"/{self._child}"
                    await rest(child)

        return run_flat_map


async def answer(result: Value) -> Value:
    """Wait for what an `async def` gives; a plain function's answer is there."""
    return await result if inspect.isawaitable(result) else result
