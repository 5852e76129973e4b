"""Rounds under a rate: a permit is used by a record that begins, by no other, and the driver hears of it at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

import tidegate as tg
from tests.support import wait_until
from tests.unit.test_lonely_rounds import LIVE, PLACE, PLAIN, Tape
from tidegate.engine import channel
from tidegate.engine.channel import LiveDesk, LiveLine, call_driver
from tidegate.engine.copying import Copier
from tidegate.engine.fates import Tools
from tidegate.engine.round import Round
from tidegate.engine.watch import watch
from tidegate.pipeline import Pipeline
from tidegate.records import Lease, LeasedPartition, Position


class Shelf(Tape):
    """A log that is read no further where a partition waits."""

    def release(self, *_: object) -> None:
        pass

    def stop(self, *_: object) -> None:
        pass


def paced_round(pipeline: Pipeline, permits: int, offsets: Sequence[int]) -> Round:
    plan = pipeline.plan()
    lease = Lease(0, 1, (LeasedPartition(PLACE, 1, Position(0)),), PLAIN, permits=permits)
    copier = Copier("g", plan.fingerprint, {}, lambda: pytest.fail("no copy is due"))
    return Round(lease, Tools(plan, "g", copier, {}, 1000.0, None), Shelf(*offsets))  # type: ignore[arg-type]  # all of a reader that a round asks for


def test_a_permit_is_told_as_used_while_its_record_still_runs() -> None:
    began, goes_on = list[object](), threading.Event()

    def sink(value: object) -> None:
        began.append(value)
        if value == b"0":
            assert goes_on.wait(20)

    pipeline = tg.from_kafka("t", group="g").sink(sink).parallel(2, order="none")
    round_ = paced_round(pipeline, 1, (0, 1))
    round_.go_live(LIVE)
    round_.report()
    work = threading.Thread(target=round_.work_through)
    work.start()
    try:
        wait_until(lambda: began == [b"0"], within=10, what="the first record runs")
        told = round_.report()
        assert told is not None, "else the driver gives no permit for the next one until this one has ended"
        assert (told.spent, told.counts.settled) == (1, 0)
        assert round_.report() is None, "that is no news any more"
        round_.learn([], 2)
        wait_until(lambda: began == [b"0", b"1"], within=10, what="the second record runs beside it")
    finally:
        goes_on.set()
        round_.stop_reading()
        work.join(20)
    assert round_.outcome(0.0, has_resources=False).partitions[0].position.mark == 2


@pytest.mark.parametrize(
    "how", [lambda one: one, lambda one: one.parallel(2, order="partition")], ids=["one by one", "beside the loop"]
)
def test_records_that_wait_behind_another_use_no_permit(how: Callable[[Pipeline], Pipeline]) -> None:
    began: list[object] = []

    def sink(value: object) -> None:
        began.append(value)
        if len(began) == 1:
            raise ValueError("not yet")

    pipeline = how(tg.from_kafka("t", group="g").sink(sink).on_error(tg.retry(2, wait="50ms")))
    round_ = paced_round(pipeline, 4, (0, 1, 2))
    round_.work_through()
    outcome = round_.outcome(0.0, has_resources=False)
    assert began == [b"0", b"0", b"1", b"2"], "four attempts, and four permits"
    assert (outcome.spent, outcome.partitions[0].position.mark) == (4, 3)


def test_a_round_without_a_permit_waits_until_it_is_known_whether_it_can_be_given_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel, "_unreachable_until", 0.0)
    desk = LiveDesk("127.0.0.1", "127.0.0.1", LIVE, lambda _: None)
    desk.grant({1: 3})
    got: list[bytes] = []

    def sink(value: bytes) -> None:
        got.append(value)
        if len(got) == 3:
            desk.finish(0, 1)

    def call_slowly() -> LiveLine | None:
        threading.Event().wait(0.3)  # a machine that is busy, or a driver that is far away
        return call_driver(desk.address, 0, 1)

    assert watch(paced_round(tg.from_kafka("t", group="g").sink(sink), 0, range(3)), call_slowly, LIVE)
    assert got == [b"0", b"1", b"2"]
    desk.close()


def test_a_round_without_a_permit_that_cannot_be_given_one_ends() -> None:
    assert watch(paced_round(tg.from_kafka("t", group="g").sink(pytest.fail), 0, range(3)), lambda: None, LIVE)
