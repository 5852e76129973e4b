"""A lane that stands still is named and replaced; if that does not help, the run ends and says so."""

from __future__ import annotations

import os
import signal

import pytest

from tests.acceptance.conftest import Scene, evenly
from tests.acceptance.program import Program
from tests.support import wait_until
from tidegate.ops.produce import Message

QUICK_TO_NOTICE = ("--set", "timeout=2s", "--set", "stall_after=12s")
"""Longer than a worker takes to start on a busy machine: until then nothing moves either."""


@pytest.fixture(scope="module")
def frozen(module_scene: Scene) -> Program:
    """A run with a record that holds every worker. It gives up after a minute: the other test runs meanwhile."""
    values = [*map(str, range(5)), "frozen", "after"]
    module_scene.fill(1, [Message(value, partition=0) for value in values])
    program = module_scene.start("stuck.py", *QUICK_TO_NOTICE, STUCK_SECONDS="600")
    program.wait_until(lambda: module_scene.log.count("began") == 6, within=120, what="the record at work")
    return program


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("frozen")
def test_a_worker_that_stands_still_is_replaced_and_the_work_goes_on(scene: Scene) -> None:
    scene.fill(1, evenly(1500, 1))
    program = scene.start("slow.py", "--until", "caught-up", *QUICK_TO_NOTICE, SECONDS_EACH="0.003")
    scene.wait_for_records(300, program)
    heard = program.err.count("worker replaced")
    worker = scene.log.read().events[-1].pid
    scene.log.fault("worker_stopped", worker=worker)
    os.kill(worker, signal.SIGSTOP)
    wait_until(
        lambda: program.err.count("worker replaced") > heard, within=60, what=f"the stall is noticed: {program.err}"
    )
    scene.hurry()
    ended = program.wait(within=120)
    assert ended.code == 0, ended.err
    assert scene.marks() == scene.ends
    assert scene.breaches() == []
    assert {event.pid for event in scene.log.read().events} > {worker}, "another worker took over"


@pytest.mark.timeout(240)
def test_a_record_that_holds_every_worker_ends_the_run_with_a_sentence(module_scene: Scene, frozen: Program) -> None:
    ended = frozen.wait(within=120)
    assert ended.code == 1, ended.err
    assert "records wait and the mark does not move" in ended.err
    assert module_scene.marks()[0] <= 5, "the group is not past the record"
    assert not [one for one in module_scene.breaches() if one.law in ("L1", "L5")]
