"""A partition of which so much waits that nothing more is read: it rests until the first of it may be tried."""

from __future__ import annotations

import pytest

import tidegate as tg
from tests.unit.test_lonely_rounds import Written
from tests.unit.test_progress_is_true import Memory, a_round, came_back
from tidegate.records import Limits

LIMITS = Limits(30.0, 20.0, 20.0, 20.0)


class InBatches(Memory):
    """Reads as much at a time as ours does."""

    def read(self, most: int, wait: float) -> list[Written]:
        return super().read(min(most, 500), wait)


@pytest.mark.parametrize(("every", "is_full"), [(3, True), (1500, False)])
def test_a_partition_that_is_full_is_not_read_again_and_again_while_its_records_wait(every: int, is_full: bool) -> None:
    count = 9000
    tried: list[int] = []

    def sink(value: bytes) -> None:
        if int(value) % every == 0:
            tried.append(int(value))
            raise ValueError("not yet")

    pipeline = tg.from_kafka("t", group="g").sink(sink).parallel(2, order="none")
    pipeline = pipeline.on_error(tg.retry(2, wait="60s", limit="60s"), tg.stop())
    limits = LIMITS if is_full else Limits(30.0, 0.2, 0.2, 20.0)
    one = a_round(pipeline, InBatches(*range(count)), 0, limits=limits)
    one.work_through()
    found = came_back(one)
    assert found.position.mark == 0
    assert len(tried) == len(set(tried))
    if is_full:
        assert len(tried) < count / every, "it was not read to its end"
        assert found.parked is not None
        assert 20 < found.parked <= 60
    else:
        assert found.parked is None, "there may be something to read at any moment"
