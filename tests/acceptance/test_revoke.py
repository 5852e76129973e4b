"""A partition is to go to another copy while a record of it is in work: finished in time, or left to the other."""

from __future__ import annotations

import signal

import pytest

from tests.acceptance.conftest import Scene, channel, evenly
from tests.acceptance.program import Program
from tests.acceptance.test_group import owned_by, wait_for_members
from tidegate.kafka.commits import CommitSeen, read_commits
from tidegate.ops.produce import Message
from tidegate.testing import Event

NO_WATCHDOG = ("--set", "stall_after=600s")
"""It must not take what stands still here for stalled, however long the second copy takes to start."""
BEFORE = 5
"""The record that takes long has this offset, in both partitions: which of the two goes is the group's choice."""


def start_at_work(scene: Scene, value: str, *words: str, **environment: str) -> Program:
    """Start a copy that has committed some records of each partition, and has one that takes long in work."""
    scene.fill(2, evenly(2 * BEFORE, 2))
    program = scene.start("stuck.py", *words, **environment)
    program.wait_until(lambda: scene.marks() == scene.ends, within=90, what="the first records committed")
    scene.produce(Message(one, partition=number) for one in (value, "after", "after") for number in (0, 1))
    program.wait_until(lambda: begun(scene, program) == {0, 1}, within=30, what="both records in work")
    return program


def begun(scene: Scene, program: Program) -> set[int]:
    """The partitions in which this program has begun the record that takes long."""
    events = scene.log.read().events
    return {one.partition.number for one in events if one.driver == program.pid and one.record_offset == BEFORE}


def events_of(scene: Scene, program: Program, number: int) -> list[Event]:
    events = scene.log.read().events
    return [one for one in events if one.driver == program.pid and one.partition.number == number]


def commits_of(scene: Scene, number: int) -> list[CommitSeen]:
    return [one for one in read_commits(scene.kafka, scene.group) if one.partition.number == number]


def the_other_ones(scene: Scene, program: Program) -> int:
    """The one partition in which this program has begun anything."""
    (number,) = {one.partition.number for one in scene.log.read().events if one.driver == program.pid}
    return number


@pytest.mark.timeout(300)
@channel("plain")
def test_a_record_in_work_is_finished_and_committed_before_its_partition_goes(scene: Scene, live: str) -> None:
    sign = scene.folder / "sign"
    patient = ("--set", f"live={live}", "--set", "timeout=150s", "--set", "stop_budget=160s", *NO_WATCHDOG)
    first = start_at_work(scene, "waits", *patient, SIGN=str(sign))
    second = scene.start("stuck.py", *patient, SIGN=str(sign))
    # One partition is no longer the first one's and not yet the second one's: it is being given back.
    wait_for_members(scene, [0, 1], first, second)
    assert scene.log.count() == 2 * BEFORE, "its record is still in work"
    sign.touch()
    wait_for_members(scene, [1, 1], first, second)
    second.wait_until(lambda: scene.marks() == scene.ends, within=60, what="everything committed")
    moved = next(number for number in (0, 1) if f"{scene.topic}[{number}]" in given_back(first))
    scene.produce([Message("later", partition=moved)])
    scene.wait_for_records(1, second)
    for program in (first, second):
        program.send(signal.SIGTERM)
        assert program.wait(within=60).code == 0

    assert scene.breaches() == []
    assert scene.log.count() == len(scene.produced), "nothing ran twice"
    theirs = events_of(scene, second, moved)
    handed_over = [one for one in commits_of(scene, moved) if one.committed_at_ms <= theirs[0].at_ms][-1]
    assert theirs[0].record_offset > BEFORE, "the first copy had finished the record"
    assert handed_over.mark == theirs[0].record_offset, "and committed it"


def given_back(program: Program) -> str:
    """The words in which it gave something back."""
    return "\n".join(line for line in program.err.splitlines() if "given back" in line)


@pytest.mark.timeout(300)
@channel("live")
def test_a_record_that_outlasts_the_budget_is_left_to_the_next_owner(scene: Scene, live: str) -> None:
    words = ("--set", f"live={live}", "--set", "timeout=2s", "--set", "stop_budget=8s", *NO_WATCHDOG)
    first = start_at_work(scene, "frozen", *words, STUCK_SECONDS="600")
    second = scene.start("stuck.py", *words, STUCK_SECONDS="0")
    wait_for_members(scene, [1, 1], first, second)
    scene.wait_for_records(3, second)
    moved = the_other_ones(scene, second)
    assert scene.marks()[1 - moved] == BEFORE
    assert f"not finished in time: {scene.topic}[{moved}]\n" in first.err, first.err
    assert f"{scene.topic}[{moved}]" in given_back(first)
    assert owned_by(scene) == [1, 1], "the first copy keeps the other one"

    first.send(signal.SIGTERM)
    ended = first.wait(within=60)
    assert ended.code == 0, ended.err
    assert f"{scene.topic}[{1 - moved}]  did not finish within the stop budget" in ended.out
    second.wait_until(lambda: scene.marks() == scene.ends, within=90, what="everything committed")
    second.send(signal.SIGTERM)
    assert second.wait(within=60).code == 0

    assert scene.breaches() == []
    for number in (0, 1):
        ours, theirs = events_of(scene, first, number), events_of(scene, second, number)
        assert [one.kind for one in ours if one.record_offset == BEFORE] == ["began"], "the first copy never ended it"
        assert theirs[0].record_offset == BEFORE, "the second one begins exactly there"
        assert [one.kind for one in theirs if one.record_offset == BEFORE] == ["began", "settled"], "and runs it again"
        marks = [one.mark for one in commits_of(scene, number) if one.committed_at_ms <= theirs[0].at_ms]
        assert marks[-1] == BEFORE, "no commit was past it"
