"""Rounds of one record, by which the one that ends its worker is found: they stay so, and name it by the mark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

import tidegate as tg
from tidegate.engine.copying import Copier
from tidegate.engine.fates import Tools
from tidegate.engine.round import Round
from tidegate.records import Lease, LeasedPartition, Limits, Partition, Position

PLACE = Partition("t", 0)
PLAIN = Limits(2.0, 0.2, 0.3, 20.0)
LIVE = Limits(60.0, 60.0, 60.0, 20.0)


@dataclass(frozen=True)
class Written:
    """A record in the log."""

    at: int

    def topic(self) -> str:
        return PLACE.topic

    def partition(self) -> int:
        return PLACE.number

    def offset(self) -> int:
        return self.at

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return str(self.at).encode()

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (0, 0)

    def error(self) -> None:
        return None


class Tape:
    """A log without a broker: gives what lies from the marks on."""

    def __init__(self, *offsets: int) -> None:
        self._log = [Written(at) for at in offsets]
        self.lost: dict[Partition, int] = {}

    def begin(self, marks: Mapping[Partition, int], _era: str) -> None:
        self._log = [one for one in self._log if one.at >= marks[PLACE]]

    def read(self, most: int, _wait: float) -> list[Written]:
        taken, self._log = self._log[:most], self._log[most:]
        return taken

    def put_back(self, messages: list[Written]) -> None:
        self._log = messages + self._log

    def stand_at(self, *_: object) -> None:
        pass

    def take_ends(self, _unfinished: object) -> dict[Partition, int]:
        return {}


def lonely_round(tape: Tape, mark: int, sink: Callable[[object], None]) -> Round:
    plan = tg.from_kafka("t", group="g").sink(sink).on_error(tg.skip()).plan()
    limits = Limits(PLAIN.read_seconds, PLAIN.quiet_seconds, PLAIN.idle_seconds, PLAIN.attempt_seconds, records=1)
    lease = Lease(0, 1, (LeasedPartition(PLACE, 1, Position(mark)),), limits)
    tools = Tools(plan, "g", Copier("g", plan.fingerprint, {}, lambda: pytest.fail("no copy is due")), {}, 0.0, None)
    return Round(lease, tools, tape)  # type: ignore[arg-type]  # all of a reader that a round asks for


def test_a_round_of_one_record_stays_one_when_the_driver_hears_it() -> None:
    ran: list[object] = []
    one = lonely_round(Tape(0, 1, 2), 0, ran.append)
    one.go_live(LIVE)
    one.work_through()
    assert ran == [b"0"]
    assert one.outcome(0.0, has_resources=False).partitions[0].position.mark == 1


def test_a_round_of_one_record_that_begins_in_a_gap_runs_nothing_and_moves_the_mark_to_the_record() -> None:
    ran: list[object] = []
    tape = Tape(13, 14)
    first = lonely_round(tape, 10, ran.append)
    first.work_through()
    assert ran == []
    assert first.outcome(0.0, has_resources=False).partitions[0].position.mark == 13
    second = lonely_round(tape, 13, ran.append)
    second.work_through()
    assert ran == [b"13"]
    assert second.outcome(0.0, has_resources=False).partitions[0].position.mark == 14


def test_a_round_without_that_limit_goes_through_the_gap() -> None:
    ran: list[object] = []
    one = lonely_round(Tape(13, 14), 10, ran.append)
    one.limits = PLAIN
    stop = threading.Timer(1.0, one.stop_reading)
    stop.start()
    one.work_through()
    stop.cancel()
    assert ran == [b"13", b"14"]
