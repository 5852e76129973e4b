"""What a run says while it goes on."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from tidegate.beside import Beside
from tidegate.engine import tally
from tidegate.engine.tally import Tally
from tidegate.records import Counts, Failure, Outcome, Partition

ORDERS = Partition("orders", 0)


@pytest.fixture
def clock() -> list[float]:
    return [1000.0]


def by(clock: list[float]) -> Beside:
    return Beside(now=lambda: clock[0])


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "no record has come" in one.getMessage()]


def test_a_run_that_finds_nothing_says_so_once_and_soon(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    run = Tally("billing", 300, by(clock))
    run.stand({ORDERS: 4, Partition("orders", 1): 7})  # the second one has gone to another copy
    run.tell([ORDERS])
    assert said(caplog) == []
    for _ in range(3):
        clock[0] += tally.FIRST_NOTICE_SECONDS
        run.tell([ORDERS])
    assert said(caplog) == [
        "no record has come yet: the group stands at orders[0] 4; tidegate offsets billing shows whether any waits"
    ]
    clock[0] += 300
    run.tell([ORDERS])
    assert said(caplog)[1:] == ["no record has come for 300 s"]


def test_a_run_that_has_worked_is_not_told_that_nothing_came(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    run = Tally("billing", 300, by(clock))
    run.count(replace(Outcome(0, 1, ()), counts=Counts(settled=1)), is_final=True)
    clock[0] += 2 * tally.FIRST_NOTICE_SECONDS
    run.tell([ORDERS])
    assert said(caplog) == []


def test_a_failed_record_is_told_with_its_place_as_fields(caplog: pytest.LogCaptureFixture) -> None:
    trace = 'Traceback (most recent call last):\n  File "/a/app.py", line 5, in price\n    x\nKeyError: 1\n'
    Tally("billing", idle_seconds=300).fail(Failure(ORDERS, 7, "KeyError", "1", trace))
    [line] = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert line.getMessage() == "orders[0] offset 7 failed: KeyError: 1 (app.py line 5 in price)"
    fields = vars(line)
    assert (fields["topic"], fields["partition"], fields["offset"], fields["trace"]) == ("orders", 0, 7, trace)


def test_a_round_that_could_not_begin_after_others_did_is_counted_as_one_that_did_nothing() -> None:
    run = Tally("billing", 300)
    run.count(Outcome(0, 1, (), proofs=(3, 3)), is_final=True)
    run.count(Outcome(0, 2, (), broken="ModuleNotFoundError: No module named 'prices'"), is_final=True)
    assert run.proofs() == (3, 3)
