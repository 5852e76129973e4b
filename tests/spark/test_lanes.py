"""Rounds that are cancelled before Spark has heard of them."""

from __future__ import annotations

import queue
import threading

import pytest
from pyspark.sql import SparkSession

from tidegate.engine.lanes import Lanes, RoundEnded
from tidegate.engine.spark import RoundBroken, RoundDied, open_spark
from tidegate.records import Lease, Limits

LIMITS = Limits(5.0, 1.0, 3.0, 20.0)


@pytest.mark.timeout(120)
def test_a_round_that_is_cancelled_before_it_reaches_spark_begins_nothing_and_the_next_one_does(
    spark: SparkSession,
) -> None:
    asked, go_on = threading.Event(), threading.Event()
    ended: queue.SimpleQueue[RoundEnded] = queue.SimpleQueue()

    def slowly(_lease: Lease) -> bytes:
        asked.set()
        assert go_on.wait(60)
        return b"no job: a task that begins cannot read it, and says so"

    session = open_spark(spark, master="", app_name="", debug=False)
    lanes = Lanes(session, "group", slowly, ended.put, None)
    lanes.start(Lease(0, 1, (), LIMITS))
    assert asked.wait(60)
    lanes.cancel(0)
    go_on.set()
    assert isinstance(ended.get(timeout=60).error, RoundDied), "it must not have begun"
    lanes.start(Lease(0, 2, (), LIMITS))
    assert isinstance(ended.get(timeout=60).error, RoundBroken), "it begins"
    lanes.close()
    next_run = Lanes(session, "group", slowly, ended.put, None)
    next_run.start(Lease(0, 1, (), LIMITS))
    assert isinstance(ended.get(timeout=60).error, RoundBroken), "the same round of another run begins, too"
    next_run.close()
