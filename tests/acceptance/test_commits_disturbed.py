"""Commits refused, late or cut off in mid-flight: the run goes on, and nothing is lost or done twice."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import Scene, channel, evenly, new_name
from tests.acceptance.program import Program
from tests.support import broker_behind_proxy
from tidegate.ops.produce import Message
from tidegate.testing import CopySeen, Delay, DelayAnswers, HideBrokers, KafkaProxy, RefuseCommits, read_copies
from tidegate.testing.requests import (
    COORDINATOR_LOAD_IN_PROGRESS,
    ILLEGAL_GENERATION,
    OFFSET_COMMIT,
    PRODUCE,
    REBALANCE_IN_PROGRESS,
)

LIVES_ON_SECONDS = 6.0
"""A cancelled task may run on for so long."""
LONG_SESSION = ("--set", "session_timeout=45s")
"""Heartbeats wait behind a late commit: the member must not be given up for that."""


@pytest.fixture(scope="module")
def proxy() -> Iterator[KafkaProxy]:
    """A broker of its own for this file."""
    with broker_behind_proxy() as made:
        yield made


@pytest.fixture
def disturbed(proxy: KafkaProxy, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(proxy.bootstrap, tmp_path, new_name(), stays_connected=False)
    yield made
    made.clean_up()


def wait_for_more_records(scene: Scene, program: Program) -> None:
    scene.wait_for_records(scene.log.count(driver=program.pid) + 100, program)


def finish(scene: Scene, program: Program, *, is_quiet: bool = True) -> None:
    """Everything is committed in the end, and the program stops in good order."""
    scene.hurry()
    program.wait_until(lambda: scene.marks() == scene.ends, within=120, what="everything committed")
    program.send(signal.SIGTERM)
    ended = program.wait(within=60)
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err or not is_quiet, ended.err


def check_each_record_ran_once(scene: Scene) -> None:
    assert scene.breaches() == []
    settled = [(one.partition.topic, one.partition.number, one.record_offset) for one in scene.log.read().settled]
    assert sorted(settled) == sorted(scene.produced)


def refuse_for_a_while(scene: Scene, proxy: KafkaProxy, program: Program, error: int, name: str) -> None:
    """Refuse the commits of a program at work until it has said so and worked on; return when it commits again."""
    heard = program.err.count("was refused")
    with proxy.under(RefuseCommits(error)) as refusal:
        program.wait_until(lambda: refusal.struck > 0, within=30, what=f"a refusal: {name}")
        stood = scene.marks()
        program.wait_until(lambda: program.err.count("was refused") > heard, within=60, what=f"a word about it: {name}")
        wait_for_more_records(scene, program)
        assert scene.marks() == stood, f"{name}: the broker has seen none of these commits"
        assert scene.log.count() < len(scene.produced), f"{name}: the refusals came after the work"
    program.wait_until(lambda: scene.marks() != stood, within=60, what=f"commits after the refusals: {name}")


@pytest.mark.timeout(240)
@channel("live")
def test_commits_that_are_refused_for_a_while_are_sent_again(disturbed: Scene, proxy: KafkaProxy, live: str) -> None:
    disturbed.fill(4, evenly(9000, 4))
    program = disturbed.start("slow.py", "--set", f"live={live}", SECONDS_EACH="0.003")
    disturbed.wait_for_records(200, program)
    refuse_for_a_while(disturbed, proxy, program, COORDINATOR_LOAD_IN_PROGRESS, "loading")
    refuse_for_a_while(disturbed, proxy, program, REBALANCE_IN_PROGRESS, "rebalancing")
    finish(disturbed, program)
    check_each_record_ran_once(disturbed)


@pytest.mark.timeout(240)
def test_a_commit_refused_for_its_generation_costs_the_partitions_and_loses_nothing(
    disturbed: Scene, proxy: KafkaProxy
) -> None:
    disturbed.fill(4, evenly(6000, 4))
    program = disturbed.start("slow.py", SECONDS_EACH="0.003")
    disturbed.wait_for_records(200, program)
    with proxy.under(RefuseCommits(ILLEGAL_GENERATION)) as refusal:
        program.wait_until(lambda: "partitions lost" in program.err, within=60, what="it gives its partitions up")
        assert refusal.struck > 0

    stood = disturbed.marks()

    def commits_again() -> bool:
        # What it had in work since its last commit is open from here on. Its rounds end some moments later, it may
        # be even after it has its partitions again.
        disturbed.log.fault("partitions_lost")
        return all(mark > stood.get(number, 0) for number, mark in disturbed.marks().items())

    program.wait_until(commits_again, within=60, what="commits in each partition again")
    assert program.err.count("partitions gained") >= 2
    assert disturbed.marks() != disturbed.ends, "the refusals came after the work"
    finish(disturbed, program)
    assert disturbed.breaches() == []


@pytest.mark.timeout(240)
@channel("live")
def test_a_stop_waits_for_a_late_commit(disturbed: Scene, proxy: KafkaProxy, live: str) -> None:
    disturbed.fill(4, evenly(14_000, 4))
    program = disturbed.start("slow.py", "--set", f"live={live}", *LONG_SESSION, SECONDS_EACH="0.003")
    disturbed.wait_for_records(200, program)
    with proxy.under(Delay([OFFSET_COMMIT], seconds=3.0)) as delay:
        program.wait_until(lambda: delay.struck >= 2 and delay.is_holding, within=60, what="late commits")
        program.send(signal.SIGTERM)
        assert delay.is_holding, "the signal came between two commits"
        ended = program.wait(within=60)
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err, ended.err
    settled = disturbed.log.count()
    assert 200 <= settled < len(disturbed.produced), "the stop came after the work"
    assert sum(disturbed.marks().values()) == settled, "what was settled is committed"

    rest = disturbed.start("slow.py", "--until", "caught-up")
    assert rest.wait(within=120).code == 0
    assert disturbed.marks() == disturbed.ends
    check_each_record_ran_once(disturbed)


@pytest.mark.timeout(240)
@channel("plain")
def test_late_commits_hold_no_work_up(disturbed: Scene, proxy: KafkaProxy, live: str) -> None:
    disturbed.fill(4, evenly(4000, 4))
    program = disturbed.start("slow.py", "--set", f"live={live}", *LONG_SESSION, SECONDS_EACH="0.002")
    disturbed.wait_for_records(100, program)
    with proxy.under(Delay([OFFSET_COMMIT], seconds=3600.0)) as hold:
        program.wait_until(lambda: hold.is_holding, within=60, what="a commit on its way")
        stood = disturbed.marks()
        wait_for_more_records(disturbed, program)
        assert disturbed.marks() == stood
        assert hold.is_holding, "work went on while the commit was on its way"
    with proxy.under(Delay([OFFSET_COMMIT], seconds=3.0)) as delay:
        finish(disturbed, program)
    assert delay.struck > 0, "the last commits were late, too"
    check_each_record_ran_once(disturbed)


@pytest.mark.timeout(240)
@channel("live")
def test_a_run_outlives_its_connections(disturbed: Scene, proxy: KafkaProxy, live: str) -> None:
    disturbed.fill(4, evenly(8000, 4))
    program = disturbed.start("slow.py", "--set", f"live={live}", *LONG_SESSION, SECONDS_EACH="0.003")
    disturbed.wait_for_records(200, program)
    for _ in range(3):
        assert proxy.cut() > 0
        wait_for_more_records(disturbed, program)
    with proxy.under(Delay([OFFSET_COMMIT], seconds=60.0)) as delay:
        program.wait_until(lambda: delay.is_holding, within=60, what="a commit on its way")
        assert proxy.cut() > 0, "the commit goes down with its connection"
    assert disturbed.log.count() < len(disturbed.produced), "the cuts came after the work"
    finish(disturbed, program)
    check_each_record_ran_once(disturbed)


@pytest.mark.timeout(300)
@channel("live")
def test_a_run_outlives_a_broker_that_says_that_there_is_none(disturbed: Scene, proxy: KafkaProxy, live: str) -> None:
    """So says one that its controller has shut out, since it did not answer in time. Clients forget it then."""
    disturbed.fill(4, evenly(2000, 4))
    quick = (f"live={live}", "session_timeout=6s", "commit_every=2s", "timeout=5s", "stall_after=40s")
    program = disturbed.start("slow.py", *(word for one in quick for word in ("--set", one)), SECONDS_EACH="0.03")
    disturbed.wait_for_records(100, program)
    disturbed.log.fault("connections_dropped")

    def is_lost() -> bool:
        proxy.cut()
        return "partitions lost" in program.err

    with proxy.under(HideBrokers()) as hidden:
        program.wait_until(is_lost, within=90, what="it loses its partitions")
        assert hidden.struck > 0
    disturbed.log.fault("partitions_lost", lasts_seconds=LIVES_ON_SECONDS)
    program.wait_until(lambda: program.err.count("partitions gained") > 1, within=120, what="it is a member again")
    # Readers may have forgotten the broker, too: their rounds stand still, and are ended with their workers.
    finish(disturbed, program, is_quiet=False)
    assert disturbed.breaches() == []


def lose_partitions(scene: Scene, proxy: KafkaProxy, program: Program) -> None:
    """Keep a member with `session_timeout=6s` from its broker until its partitions are somebody else's."""
    scene.log.fault("connections_dropped")
    proxy.unplug()
    try:
        program.wait_until(lambda: "the run waits for it" in program.err, within=60, what="it misses the broker")
        time.sleep(8)  # the broker's time: sessions last six seconds
    finally:
        proxy.plug()
    program.wait_until(lambda: "partitions lost" in program.err, within=60, what="it hears that they are lost")


@pytest.mark.timeout(300)
@channel("live")
def test_a_run_until_caught_up_that_loses_its_partitions_ends_only_when_all_is_committed(
    disturbed: Scene, proxy: KafkaProxy, live: str
) -> None:
    disturbed.fill(2, evenly(1600, 2))
    words = ("--until", "caught-up", "--set", f"live={live}", "--set", "session_timeout=6s")
    program = disturbed.start("slow.py", *words, SECONDS_EACH="0.02")
    disturbed.wait_for_records(100, program)
    lose_partitions(disturbed, proxy, program)
    disturbed.log.fault("partitions_lost", lasts_seconds=LIVES_ON_SECONDS)
    assert disturbed.marks() != disturbed.ends, "the loss came after the work"
    ended = program.wait(within=180)

    assert ended.code == 0, ended.err
    assert ended.err.count("partitions gained") > 1, "it was to end as a member again"
    assert disturbed.marks() == disturbed.ends
    settled = {(one.partition.topic, one.partition.number, one.record_offset) for one in disturbed.log.read().settled}
    assert settled == disturbed.produced
    assert disturbed.breaches() == []


@pytest.mark.proof
@pytest.mark.timeout(240)
def test_a_round_whose_worker_comes_after_its_partitions_were_lost_begins_nothing(
    disturbed: Scene, proxy: KafkaProxy, tmp_path: Path
) -> None:
    """Spark hangs up on the worker that a cancelled task was waiting for."""
    gate, asked, python = tmp_path / "gate", tmp_path / "asked", tmp_path / "python"
    waits = f"touch {asked}; until [ -e {gate} ]; do sleep 0.1; done; exec {sys.executable}"
    python.write_text(f'#!/bin/sh\n{waits} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    disturbed.fill(2, evenly(400, 2))
    words = ("--set", "session_timeout=6s", "--set", "lanes=1")
    program = disturbed.start("slow.py", *words, SECONDS_EACH="0.01", PYSPARK_PYTHON=str(python))
    program.wait_until(asked.exists, within=120, what="Spark asks for a Python worker")
    lose_partitions(disturbed, proxy, program)
    program.wait_until(lambda: program.err.count("partitions gained") > 1, within=60, what="it is a member again")
    assert disturbed.log.count() == 0, "no worker is there yet"
    gate.touch()
    finish(disturbed, program, is_quiet=False)  # PySpark's daemon may tell of the worker that was hung up on
    check_each_record_ran_once(disturbed)


@pytest.mark.timeout(240)
def test_a_round_that_cannot_hear_that_its_partitions_are_lost_is_cancelled(
    disturbed: Scene, proxy: KafkaProxy
) -> None:
    """Otherwise it runs on for a minute, with what it has read ahead, beside whoever has the partitions now."""
    disturbed.fill(2, evenly(3000, 2))
    deaf = ("live=false", "commit_every=60s", "stop_budget=120s", "stall_after=10m", "session_timeout=6s")
    program = disturbed.start("slow.py", *(word for one in deaf for word in ("--set", one)), SECONDS_EACH="0.05")
    disturbed.wait_for_records(20, program)
    first = {one.process for one in disturbed.log.read().settled}
    lose_partitions(disturbed, proxy, program)
    lost_ms = int(time.time() * 1000)
    disturbed.log.fault("partitions_lost", lasts_seconds=LIVES_ON_SECONDS)

    def others_work() -> bool:
        return any(one.process not in first for one in disturbed.log.read().settled)

    program.wait_until(others_work, within=90, what="another round, in other workers")
    late = [
        one.record_offset
        for one in disturbed.log.read().settled
        if one.process in first and one.at_ms > lost_ms + LIVES_ON_SECONDS * 1000
    ]
    assert late == []
    disturbed.hurry()  # a round of this kind hears no signal
    program.send(signal.SIGTERM)
    assert program.wait(within=120).code == 0, program.err
    assert [one for one in disturbed.breaches() if one.law != "L2"] == []


@pytest.mark.timeout(240)
def test_a_copy_whose_answer_is_lost_is_sent_again_and_stays_open_until_one_is_answered(
    disturbed: Scene, proxy: KafkaProxy
) -> None:
    disturbed.fill(1, [Message("bad" if one == 5 else "ok") for one in range(10)])

    def letters() -> list[CopySeen]:
        return [one for one in read_copies(disturbed.kafka, disturbed.group) if one.is_dead]

    with proxy.under(DelayAnswers([PRODUCE], seconds=3600.0)) as held:
        disturbed.log.fault("answers_lost", lasts_seconds=60)
        program = disturbed.start("failing.py", *LONG_SESSION, ROW="dead")
        program.wait_until(lambda: held.is_holding and bool(letters()), within=90, what="a letter without an answer")
        program.wait_until(lambda: len(letters()) > 1, within=90, what="the same letter, once more")
        assert disturbed.marks().get(0, 0) <= 5, "nobody has heard that there is one"
    finish(disturbed, program)

    found = letters()
    assert {one.said.stable_id for one in found} == {f"{disturbed.group}:{disturbed.topic}:0:5"}
    assert 2 <= len(found) <= held.struck + 1
    assert {one.record_offset for one in disturbed.log.read().settled} == set(range(10)) - {5}
    assert disturbed.breaches() == []
