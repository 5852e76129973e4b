"""Stopping in good order: work in flight is finished and committed, nothing runs again, nothing is left behind."""

from __future__ import annotations

import signal

import pytest

from tests.acceptance.conftest import Scene, evenly
from tidegate.ops.produce import Message
from tidegate.testing.programs import kill

SLOW = "0.001"


@pytest.mark.timeout(240)
def test_stops_under_load_repeat_nothing_and_an_idle_run_stops_at_once(scene: Scene) -> None:
    scene.fill(4, evenly(12_000, 4))

    by_signal = scene.start("slow.py", SECONDS_EACH=SLOW)
    scene.wait_for_records(2500, by_signal)
    by_signal.send(signal.SIGTERM)
    first = by_signal.wait(within=60)
    settled_then = scene.log.count()

    by_key = scene.start("slow.py", SECONDS_EACH=SLOW)
    scene.wait_for_records(2500, by_key)
    by_key.press_ctrl_c()
    second = by_key.wait(within=60)

    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "stopping; work in flight is finished and committed" in first.err
    assert f"{settled_then} records settled in this run" in first.out
    assert 2500 < settled_then < scene.log.count() < 12_000, "a stop came too late to prove anything"
    assert sum(scene.marks().values()) == scene.log.count()

    idle = scene.start("slow.py")
    idle.wait_until(lambda: scene.marks() == scene.ends, within=120, what="everything committed")
    idle.send(signal.SIGTERM)
    third = idle.wait(within=60)

    assert third.code == 0, third.err
    assert third.seconds < 15
    assert scene.breaches() == []
    for ended in (first, second, third):
        assert "Traceback" not in ended.err, ended.err


@pytest.mark.timeout(240)
def test_a_run_whose_java_is_killed_says_so_in_one_sentence_and_the_next_one_goes_on(scene: Scene) -> None:
    scene.fill(2, evenly(4000, 2))
    program = scene.start("slow.py", SECONDS_EACH=SLOW)
    scene.wait_for_records(500, program)
    [java] = program.javas()
    scene.log.fault("java_killed", driver=program.pid)
    kill(java)
    ended = program.wait(within=60)

    assert ended.code == 1, ended.err
    said = [line for line in ended.err.splitlines() if "Spark ended under the run" in line]
    assert len(said) == 1, ended.err
    assert "start again" in said[0]
    for noise in ("Traceback", "Exception", "Error"):
        assert noise not in ended.err, ended.err
    assert scene.marks() != scene.ends, "it was killed too late to prove anything"

    scene.hurry()
    following = scene.start("slow.py")
    following.wait_until(lambda: scene.marks() == scene.ends, within=120, what="everything committed")
    following.send(signal.SIGTERM)
    assert following.wait(within=60).code == 0
    assert scene.breaches() == []


@pytest.mark.timeout(240)
def test_a_second_signal_ends_at_once_and_the_record_in_work_stays_open(scene: Scene) -> None:
    scene.fill(1, [Message(b"quick"), Message(b"slow"), Message(b"quick")])
    program = scene.start("stuck.py")
    program.wait_until(lambda: scene.log.count("began") == 2, within=120, what="the slow record at work")
    program.send(signal.SIGTERM)
    program.wait_until(
        lambda: "a second signal ends at once" in program.err, within=10, what="that it heard the signal"
    )
    program.send(signal.SIGTERM)
    ended = program.wait(within=30)

    assert ended.code == 128 + signal.SIGTERM
    assert ended.seconds < 5
    assert scene.marks()[0] <= 1
    assert [event.record_offset for event in scene.log.read().settled] == [0]


@pytest.mark.proof
@pytest.mark.timeout(240)
def test_work_that_outlasts_the_stop_budget_is_named_and_stays_open(scene: Scene) -> None:
    scene.fill(1, [Message(b"quick"), Message(b"frozen"), Message(b"quick")])
    program = scene.start("stuck.py", "--set", "timeout=1s", "--set", "stop_budget=7s")
    program.wait_until(lambda: scene.log.count("began") == 2, within=120, what="the frozen record at work")
    program.send(signal.SIGTERM)
    ended = program.wait(within=60)

    assert ended.code == 0, ended.err
    assert f"{scene.topic}[0]  did not finish within the stop budget" in ended.out
    assert 2 <= ended.seconds < 30
    assert scene.marks()[0] <= 1
    assert [event.record_offset for event in scene.log.read().settled] == [0]
