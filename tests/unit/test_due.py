"""When a copy in a retry topic is due, by the broker's clock as the lease tells it, and by nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import tidegate as tg
from tests.unit.test_lonely_rounds import PLACE, Written
from tests.unit.test_progress_is_true import Memory
from tidegate.engine.copying import Copier
from tidegate.engine.fates import Tools
from tidegate.engine.round import Round
from tidegate.records import Lease, LeasedPartition, Limits, Position
from tidegate.steps import Order

APPENDED = 2
NOON = 1_800_000_000_000
MINUTE, HOUR, YEAR = 60_000, 3_600_000, 31_536_000_000
DELAY = 600.0


@dataclass(frozen=True)
class Appended(Written):
    """A copy, and when the broker wrote it."""

    at_ms: int = 0

    def timestamp(self) -> tuple[int, int]:
        return (APPENDED, self.at_ms)


class Retries(Memory):
    """A retry topic."""

    def __init__(self, *at_ms: int) -> None:
        super().__init__()
        self._log = [Appended(at, written) for at, written in enumerate(at_ms)]


CASES = [
    # written          broker's time  parked for  because
    (NOON - 11 * MINUTE, NOON, None, "ten minutes have passed"),
    (NOON - MINUTE, NOON, 540.0, "nine of ten minutes are left"),
    (NOON + 5 * MINUTE, NOON, 900.0, "the clock was set forward since the last note: it is heard of within the hour"),
    (NOON + YEAR, NOON, None, "a clock that was a year ahead: nobody waits for it"),
    (2**62, NOON, None, "no calendar has this"),
    (0, NOON, None, "the broker began without a clock"),
    (NOON, 0, None, "so did the broker that tells the time"),
    (NOON, None, 1.0, "the broker's time is not known: rather late than early"),
]


@pytest.mark.parametrize(("written", "broker_ms", "parked", "because"), CASES, ids=[row[3] for row in CASES])
def test_a_copy_is_tried_when_it_is_due_and_no_wrong_clock_makes_it_wait_for_ever(
    written: int, broker_ms: float | None, parked: float | None, because: str
) -> None:
    ran: list[object] = []
    plan = tg.from_kafka("t", group="g").sink(ran.append).plan()
    copier = Copier("g", plan.fingerprint, {}, lambda: pytest.fail("no copy is due"))
    leased = LeasedPartition(PLACE, 1, Position(0), 1)
    lease = Lease(0, 1, (leased,), Limits(0.2, 0.2, 0.2, 20.0), broker_ms=broker_ms)
    tools = Tools(plan, "g", copier, {PLACE.topic: DELAY})
    one = Round(lease, tools, Retries(written))  # type: ignore[arg-type]  # all of a reader that a round asks for
    one.work_through()
    found = one.outcome(0.0, has_resources=False).partitions[0]
    assert (found.position.mark, len(ran)) == ((1, 1) if parked is None else (0, 0)), because
    if parked is None:
        assert found.parked is None
    else:
        assert found.parked is not None
        assert parked - 5 < found.parked <= parked


@dataclass(frozen=True)
class Keyed(Appended):
    """A copy of a record with a key."""

    of: str = ""

    def key(self) -> bytes:  # type: ignore[override]  # the others have none
        return self.of.encode()


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("order", ["key", "none", "partition"])
def test_a_copy_that_is_tried_again_waits_for_none_that_is_not_due_and_is_overtaken_by_none_of_its_key(
    width: int, order: Order
) -> None:
    ran: list[str] = []

    def sink(value: bytes) -> None:
        ran.append(value.decode())
        if ran == ["0"]:
            raise ValueError("not yet")

    pipeline = tg.from_kafka("t", group="g").sink(sink).parallel(width, order=order)
    plan = pipeline.on_error(tg.retry(3, wait="10ms", limit="10ms"), tg.stop()).plan()
    soon = NOON - int(DELAY * 1000) + 500
    reader = Retries()
    reader._log = [Keyed(0, NOON - HOUR, "a"), Keyed(1, soon, "b"), Keyed(2, soon, "a")]
    copier = Copier("g", plan.fingerprint, {}, lambda: pytest.fail("no copy is due"))
    lease = Lease(0, 1, (LeasedPartition(PLACE, 1, Position(0), 3),), Limits(9.0, 9.0, 9.0, 20.0), broker_ms=NOON)
    one = Round(lease, Tools(plan, "g", copier, {PLACE.topic: DELAY}), reader)  # type: ignore[arg-type]  # as above
    one.work_through()
    assert ran[:2] == ["0", "0"]
    assert sorted(ran) == ["0", "0", "1", "2"]
    assert one.outcome(0.0, has_resources=False).partitions[0].position.mark == 3
