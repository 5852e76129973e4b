"""Live reports: commits follow the work, and a broken channel costs nothing but speed."""

from __future__ import annotations

import gc
import os
import signal
import socket
import time

import pytest

from tests.spark.conftest import Beside, World
from tests.support import wait_until
from tidegate.engine.channel import LiveDesk


def slow(value: object) -> object:
    time.sleep(0.01)
    return value


def test_marks_are_committed_while_a_round_runs(world: World) -> None:
    world.produce(range(800))
    behind: list[int] = []

    def look() -> None:
        for goal in (50, 200, 350, 500):
            wait_until(lambda goal=goal: (world.mark() or 0) >= goal, within=60, what=f"mark {goal}")  # type: ignore[misc]
            behind.append(len(world.trail.lines()) - (world.mark() or 0))

    beside = Beside(look, stops=False)
    report = world.run(world.pipeline().map(slow).sink(world.trail))
    beside.check()
    assert report.settled == 800
    assert world.trail.offsets() == list(range(800))
    # 200 ms are 20 records here. The question itself takes time: the bound is generous.
    assert sorted(behind)[1] <= 100, behind
    assert len(world.commits()) >= 10, "many commits, where a plain round of this length makes two"


def test_a_stop_is_heard_in_the_middle_of_a_long_round(world: World) -> None:
    world.produce(range(3000))

    def stop() -> None:
        wait_until(lambda: len(world.trail.lines()) > 100, within=60, what="the run is at work")
        os.kill(os.getpid(), signal.SIGTERM)

    beside = Beside(stop, stops=False)
    world.run(world.pipeline().map(slow).sink(world.trail), until="stopped")
    beside.check()
    ran = world.trail.offsets()
    assert ran == list(range(len(ran)))
    assert world.mark() == len(ran)
    assert len(ran) < 100 + 400, "a plain round would have read on for five seconds"


def cut_all_lines() -> int:
    """Break every live line of this process, as a network would."""
    cut = 0
    for desk in [one for one in gc.get_objects() if isinstance(one, LiveDesk)]:
        for line in list(desk._lines.values()):
            line.shutdown(socket.SHUT_RDWR)
            cut += 1
    return cut


def test_a_channel_cut_in_the_middle_loses_and_repeats_nothing(world: World) -> None:
    world.produce(range(800))
    cuts: list[int] = []

    def cut() -> None:
        for goal in (50, 250, 450):
            wait_until(lambda goal=goal: len(world.trail.lines()) > goal, within=60, what=f"{goal} records")  # type: ignore[misc]
            wait_until(lambda: bool(cut_all_lines()), within=30, what="a line to cut")
            cuts.append(goal)

    beside = Beside(cut, stops=False)
    report = world.run(world.pipeline().map(slow).sink(world.trail))
    beside.check()
    assert len(cuts) == 3, "the faults did happen"
    assert report.settled == 800
    assert world.trail.offsets() == list(range(800))
    assert world.mark() == 800


@pytest.mark.parametrize("live", [True, False])
def test_both_kinds_of_rounds_count_each_record_once(world: World, live: bool) -> None:
    world.produce(range(60))
    world.settings = {"live": live}
    assert world.run(world.pipeline().map(slow).sink(world.trail)).settled == 60


def test_a_failure_in_a_live_round_ends_the_run_soon(world: World) -> None:
    world.produce(range(2000))

    def refuse(value: bytes) -> bytes:
        time.sleep(0.005)
        if value == b"300":
            raise ValueError(value)
        return value

    began = time.monotonic()
    report = world.run(world.pipeline().map(refuse).sink(world.trail), until="stopped")
    assert report.failure is not None
    assert report.failure.record_offset == 300
    assert world.mark() == 300
    assert time.monotonic() - began < 40, "it does not wait for the round's minute"
