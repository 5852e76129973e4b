"""A partition of which so much waits that nothing more is read: it rests until the first of it may be tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

import tidegate as tg
from tests.unit.test_lonely_rounds import Written
from tests.unit.test_progress_is_true import Memory, a_round, came_back
from tidegate.engine.books import place
from tidegate.engine.copying import Copier
from tidegate.engine.fates import Tools
from tidegate.engine.round import Round
from tidegate.records import Lease, LeasedPartition, Limits, Partition, Position

LARGE = b"x" * 500_000
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


@dataclass(frozen=True)
class Large(Written):
    """One of which few fill the memory."""

    def value(self) -> bytes:
        return LARGE


@dataclass(frozen=True)
class Elsewhere(Written):
    """A record of one of many partitions."""

    number: int = 0

    def partition(self) -> int:
        return self.number


class Given(Memory):
    """A log of any records."""

    def __init__(self, log: Sequence[Written]) -> None:
        super().__init__()
        self._log = list(log)

    def begin(self, _marks: Mapping[Partition, int], _era: str) -> None: ...

    def read(self, most: int, wait: float) -> list[Written]:
        return super().read(min(most, 50), wait)


@pytest.mark.parametrize(
    "log",
    [[Large(at) for at in range(1000)], [Elsewhere(at, number) for at in range(1000) for number in range(25)]],
    ids=["few that are large", "some of each of many partitions"],
)
def test_whatever_crowds_the_memory_rests_until_it_may_be_tried(log: list[Written]) -> None:
    def sink(_value: bytes) -> None:
        raise ValueError("not yet")

    pipeline = tg.from_kafka("t", group="g").sink(sink).parallel(2, order="none")
    plan = pipeline.on_error(tg.retry(2, wait="60s", limit="60s"), tg.stop()).plan()
    leased = [LeasedPartition(place(one), 1, Position(0)) for one in {place(one): one for one in log}.values()]
    tools = Tools(plan, "g", Copier("g", plan.fingerprint, {}, lambda: pytest.fail("no copy is due")), {})
    one = Round(Lease(0, 1, tuple(leased), LIMITS), tools, Given(log))  # type: ignore[arg-type]  # all that it asks for
    one.work_through()
    found = one.outcome(0.0, has_resources=False)
    assert sum(len(item.open) for item in found.partitions) < len(log), "it was not read to its end"
    rest = [item for item in found.partitions if item.parked is not None]
    assert sum(len(item.open) for item in rest) >= sum(len(item.open) for item in found.partitions) / 2
