"""Limits that share a timer end as `asyncio.timeout` does, each at its own time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tidegate.deadlines import Deadlines

SHORT, LONG = 0.05, 30.0


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(20):
            await work()

    asyncio.run(within())


async def wait(deadlines: Deadlines, seconds: float) -> str:
    try:
        with deadlines.limit():
            await asyncio.sleep(seconds)
    except TimeoutError:
        return "too late"
    return "in time"


def test_what_takes_too_long_is_ended_and_the_rest_is_not() -> None:
    async def work() -> None:
        deadlines = Deadlines(SHORT)
        assert await asyncio.gather(*(wait(deadlines, one) for one in (LONG, 0.0, LONG, 0.001))) == [
            "too late", "in time", "too late", "in time",
        ]  # fmt: skip

    run(work)


def test_each_has_its_own_time_although_they_share_a_timer() -> None:
    async def work() -> None:
        deadlines, loop = Deadlines(0.2), asyncio.get_running_loop()
        first = asyncio.create_task(wait(deadlines, LONG))
        await asyncio.sleep(0.1)
        began = loop.time()
        assert await wait(deadlines, LONG) == "too late"
        assert loop.time() - began >= 0.2
        assert await first == "too late"

    run(work)


def test_a_timer_that_nobody_needs_any_more_does_no_harm() -> None:
    async def work() -> None:
        deadlines = Deadlines(SHORT)
        assert await wait(deadlines, 0.0) == "in time"
        await asyncio.sleep(2 * SHORT)
        assert await wait(deadlines, LONG) == "too late"

    run(work)


def test_a_task_goes_on_after_its_limit_as_if_nobody_had_cancelled_it() -> None:
    async def work() -> None:
        assert await wait(Deadlines(SHORT), LONG) == "too late"
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)

    run(work)


def test_whoever_cancels_a_task_from_outside_is_heard() -> None:
    async def work() -> None:
        task = asyncio.create_task(wait(Deadlines(LONG), LONG))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work)


@pytest.mark.parametrize(("inner", "outer", "verdict"), [(SHORT, LONG, "inner"), (LONG, SHORT, "outer")])
def test_of_two_limits_around_one_wait_the_one_that_is_over_speaks(inner: float, outer: float, verdict: str) -> None:
    async def nested() -> str:
        try:
            with Deadlines(outer).limit():
                return "inner" if await wait(Deadlines(inner), LONG) == "too late" else "none"
        except TimeoutError:
            return "outer"

    async def work() -> None:
        assert await nested() == verdict

    run(work)


def test_an_error_of_the_work_itself_is_not_taken_for_the_limit() -> None:
    async def work() -> None:
        limit = Deadlines(LONG).limit()
        with pytest.raises(TimeoutError, match="the server says so"), limit:
            raise TimeoutError("the server says so")
        assert not limit.has_expired

    run(work)


def test_work_that_ends_well_although_it_was_cancelled_is_done() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            return "done all the same"
        return "slept"

    async def work() -> None:
        with Deadlines(SHORT).limit():
            assert await stubborn() == "done all the same"
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    run(work)
