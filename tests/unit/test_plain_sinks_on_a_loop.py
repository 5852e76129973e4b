"""Plain functions as sinks beside `async def` steps: each has a thread, and one that hangs costs its worker."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import tidegate as tg
from tests.unit.test_lonely_rounds import PLACE, Written
from tidegate.engine import pool as pool_module
from tidegate.engine.attempts import Attempt
from tidegate.engine.pool import Ended, Job, LoopPool
from tidegate.errors import TimedOut

HANGING, SOUND = 40, 8
"""More that hang than an event loop has threads of its own."""


async def look_up(value: bytes) -> bytes:
    return value


@pytest.mark.parametrize("batch", [None, 1])
def test_sinks_that_hang_take_no_thread_from_sound_records_and_end_their_worker(batch: int | None) -> None:
    go_on, got = threading.Event(), []

    def write(value: Any) -> None:
        number = int(value[0] if isinstance(value, list) else value)
        if number < HANGING:
            go_on.wait(30)
        got.append(number)

    pipeline = tg.from_kafka("t", group="g").map(look_up).sink(write).parallel(HANGING + SOUND, order="none")
    pool = LoopPool((pipeline if batch is None else pipeline.batch(batch)).plan(), "g")
    pool.begin_round(0.5)
    assert not pool.has_stuck_thread
    try:
        for at in range(HANGING + SOUND):
            pool.submit(Job([Attempt(Written(at))], [(PLACE, at)]))
        ended: list[Ended] = []
        while len(ended) < HANGING + SOUND and (jobs := pool.ended(10.0)):
            ended += [one for job in jobs for one in job.ended]
        late = {one.attempt.message.offset() for one in ended if isinstance(one.error, TimedOut)}
        assert late == set(range(HANGING))
        assert sorted(got) == list(range(HANGING, HANGING + SOUND))
        assert pool.has_stuck_thread
    finally:
        go_on.set()
        pool.close()


def test_a_sink_that_no_thread_can_be_started_for_fails_its_record_and_is_never_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    got: list[object] = []
    start, is_short = threading.Thread.start, [True]

    def start_if_there_is_room(thread: threading.Thread) -> None:
        if is_short[0] and thread.name.startswith("tidegate-plain"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_if_there_is_room)
    pool = LoopPool(tg.from_kafka("t", group="g").map(look_up).sink(got.append).parallel(4, order="none").plan(), "g")
    pool.begin_round(10.0)
    try:
        ended = []
        for at in range(3):
            is_short[0] = at < 2  # for the third one there is room: its thread meets what was queued for the others
            pool.submit(Job([Attempt(Written(at))], [(PLACE, at)]))
            ended += [one for job in pool.ended(10.0) for one in job.ended]
    finally:
        pool.close()
    assert [type(one.error) for one in ended] == [RuntimeError, RuntimeError, type(None)]
    assert got == [b"2"]
    assert not pool.has_stuck_thread


@pytest.mark.parametrize("batch", [None, 1])
def test_a_sink_that_finds_nothing_more_fails_its_record_at_once(batch: int | None) -> None:
    def write(_value: Any) -> None:
        next(iter(()))

    pipeline = tg.from_kafka("t", group="g").map(look_up).sink(write).parallel(1, order="none")
    pool = LoopPool((pipeline if batch is None else pipeline.batch(batch)).plan(), "g")
    pool.begin_round(10.0)
    try:
        pool.submit(Job([Attempt(Written(0))], [(PLACE, 0)]))
        [job] = pool.ended(20.0)
        error = job.ended[0].error
        assert isinstance(error, RuntimeError)
        assert isinstance(error.__cause__, StopIteration)
    finally:
        pool.close()


class ClosedWhereItStops(asyncio.SelectorEventLoop):
    """Somebody closes it in the moment in which it does not run."""

    def run_forever(self) -> None:
        super().run_forever()
        self.close()


def test_a_loop_that_somebody_closes_ends_its_worker_instead_of_turning_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_module, "new_loop", ClosedWhereItStops)
    before = set(threading.enumerate())
    pool = LoopPool(tg.from_kafka("t", group="g").map(look_up).sink(print).parallel(4, order="none").plan(), "g")
    [serving] = [one for one in set(threading.enumerate()) - before if one.name == "tidegate-loop"]
    assert not pool.has_stuck_thread
    pool.loop.call_soon_threadsafe(pool.loop.stop)
    serving.join(10)
    try:
        assert not serving.is_alive()
        assert pool.loop.is_closed()
        assert pool.has_stuck_thread
    finally:
        pool.close()
