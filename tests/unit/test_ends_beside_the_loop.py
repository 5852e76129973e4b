"""How records end that run beside the loop of their round: what has ended counts, whatever else is going on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import tidegate as tg
from tests.unit.test_lonely_rounds import PLACE
from tests.unit.test_progress_is_true import LIMITS, Memory
from tidegate.engine.books import Books
from tidegate.engine.copying import Copier
from tidegate.engine.fates import Tools
from tidegate.engine.parallel import Parallel
from tidegate.engine.pool import Ended, Job, Pool
from tidegate.errors import NeverAwaited
from tidegate.records import Lease, LeasedPartition, Position


class ByHand(Pool):
    """Its attempts end when they are told to, and come back when they are told to."""

    def __init__(self, end: Callable[[Job], Ended]) -> None:
        self._end = end
        self._done: list[Job] = []
        super().__init__(_pipeline().plan(), "g")

    def submit(self, job: Job) -> None:
        job.ended = [self._end(job)]
        self._done.append(job)

    def close(self) -> None:
        """It has no threads."""

    def come_back(self) -> None:
        self._ended.put(self._done)
        self._done = []


def _pipeline() -> tg.Pipeline:
    return tg.from_kafka("t", group="g").sink(repr).parallel(8, order="none")


def begun(pool: ByHand, *offsets: int) -> tuple[Parallel, Books]:
    plan, reader = _pipeline().plan(), Memory(*offsets)
    lease = Lease(0, 1, (LeasedPartition(PLACE, 1, Position(0)),), LIMITS)
    books = Books(lease, in_partition_order=False)
    copier = Copier("g", plan.fingerprint, {}, lambda: pytest.fail("no copy is due"))
    work = Parallel(lease, Tools(plan, "g", copier, {}), reader, books, pool)  # type: ignore[arg-type]  # all it asks for
    batch: list[Any] = [*reader.read(10, 0.0)]
    books.take(batch)
    work.run(batch)
    return work, books


def test_an_attempt_that_has_ended_is_not_given_up_though_its_time_is_up_when_somebody_looks() -> None:
    pool = ByHand(lambda job: Ended(job.attempts[0], took_effect=True))
    work, books = begun(pool, 0, 1)
    for job in work._running:
        job.began_at = time.monotonic() - 10 * LIMITS.attempt_seconds
    work.wait(0.0)
    assert work.is_healthy
    pool.come_back()
    work.wait(0.0)
    assert books.ledgers[PLACE].mark == 2
    assert not work.is_busy


def test_what_ended_beside_a_sink_that_is_never_run_is_booked_before_the_run_ends() -> None:
    def end(job: Job) -> Ended:
        (attempt,) = job.attempts
        misused = NeverAwaited("a plain function returned a coroutine", "await it")
        return Ended(attempt, misused) if attempt.message.offset() == 0 else Ended(attempt, took_effect=True)

    pool = ByHand(end)
    work, books = begun(pool, 0, 1, 2)
    pool.come_back()
    with pytest.raises(NeverAwaited):
        work.wait(0.0)
    assert [books.ledgers[PLACE].is_settled(at) for at in range(3)] == [False, True, True]
