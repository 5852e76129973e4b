"""A round for which Spark could start no Python worker: no record has run, and none is to blame."""

from __future__ import annotations

import pytest

from tidegate.engine.births import MOST_IN_A_ROW, Births
from tidegate.engine.board import Board
from tidegate.engine.wording import no_worker
from tidegate.records import Limits, Partition, Position

PLACE = Partition("orders", 0)
START = "Job aborted: Lost task 0.0 in stage 0.0: org.apache.spark.SparkException: \n"
TRACE = "\n\tat org.apache.spark.api.python.PythonWorkerFactory.startDaemon(PythonWorkerFactory.scala:386)\n"
AT_THE_PORT = "EOFException occurred while reading the port number from pyspark.daemon's stdout"
SAID = [
    # what Spark says, and what is told of it
    (
        f"{START}Error from python worker:\n  one\n  no such thing\nPYTHONPATH was:\n  /x\n{AT_THE_PORT}",
        "no such thing",
    ),
    (f"{START}Error from python worker:\n\nPYTHONPATH was:\n  /x\n{AT_THE_PORT}{TRACE}", "Error from python worker:"),
    (f"{START}{AT_THE_PORT} and terminated with code: 97.{TRACE}", AT_THE_PORT.partition("occurred ")[1]),
    (f"{START}\nBad data in pyspark.daemon's standard output. Invalid port number:{TRACE}", "Bad data in"),
    (f"{START}Python daemon failed to launch worker with code -11{TRACE}", "Python daemon failed to launch worker"),
    (f"{START}Python worker exited unexpectedly (crashed): EOFException", None),
    ("Job 7 cancelled part of cancelled job group x", None),
]


@pytest.mark.parametrize(("text", "told"), SAID)
def test_a_worker_that_could_not_be_started_is_told_from_one_that_died(text: str, told: str | None) -> None:
    why = no_worker(text)
    if told is None:
        assert why is None
    else:
        assert why is not None
        assert told.strip() in why


def test_only_several_in_a_row_end_the_run() -> None:
    births = Births()
    for _ in range(3):
        assert [births.failed("why") for _ in range(MOST_IN_A_ROW - 1)] == [None] * (MOST_IN_A_ROW - 1)
        births.went_well()
    found = [births.failed("no memory") for _ in range(MOST_IN_A_ROW)]
    assert found[:-1] == [None] * (MOST_IN_A_ROW - 1)
    assert f"could not start a Python worker {MOST_IN_A_ROW} times in a row: no memory; " in str(found[-1])


def test_no_record_is_blamed_for_rounds_that_never_began() -> None:
    board = Board(1, Limits(5.0, 1.0, 3.0, 20.0))
    [epoch] = board.gain([PLACE]).values()
    board.place(PLACE, epoch, Position(7), is_committed=True)
    for _ in range(10):
        [lease] = board.leases()
        assert lease.limits.records is None, "no record is looked for"
        assert board.bury(lease.lane, lease.round, "no worker", has_begun=False) == []
    assert board.marks == {PLACE: 7}
