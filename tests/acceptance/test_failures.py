"""Copies, retries, redrives and outages, with the program killed at the worst moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance.conftest import DOOMED, Scene, channel
from tests.acceptance.program import tidegate
from tests.support import wait_until
from tidegate.ops.produce import Message
from tidegate.records import Partition
from tidegate.testing import CopySeen, read_copies

OUTAGE_SECONDS = float(os.environ.get("PROOF_OUTAGE", "8"))


def some_bad(count: int, partitions: int) -> list[Message]:
    return [Message("bad" if one % 5 == 2 else "ok", partition=one % partitions) for one in range(count)]


def bad_ids(count: int, partitions: int) -> set[tuple[int, int]]:
    return {(one % partitions, one // partitions) for one in range(count) if one % 5 == 2}


def dead(scene: Scene) -> list[CopySeen]:
    return [one for one in read_copies(scene.kafka, scene.group) if one.is_dead]


def ended(scene: Scene, topic: str) -> int:
    """How many records lie in a topic; 0 if there is none."""
    infos = scene.admin.existing([topic])
    return sum(scene.admin.ends(infos[topic].each_partition()).values()) if infos else 0


@pytest.mark.timeout(240)
@channel("plain")
def test_a_program_killed_between_copy_and_commit_writes_one_copy_more_and_never_none(scene: Scene, live: str) -> None:
    count = 300
    scene.fill(2, some_bad(count, 2))
    # Without the channel a round is committed at its end: then its copies lie in the topic for long before.
    words = ("--set", f"live={live}", "--set", "commit_every=10s", "--set", "stop_budget=40s")
    first = scene.start("failing.py", *DOOMED, *words, ROW="dead", SECONDS_EACH="0.02")
    first.wait_until(lambda: ended(scene, f"{scene.group}.dead") >= 8, within=90, what="some dead letters")
    scene.log.fault("driver_killed", driver=first.pid)
    first.kill_all()  # its tasks too: nothing is written after this
    before, marks = dead(scene), scene.marks()
    uncommitted = [one for one in before if one.record_offset >= marks.get(one.partition.number, 0)]
    if live == "false":
        assert uncommitted, "the kill was to come between a copy and its commit"

    second = scene.start("failing.py", *words, "--until", "caught-up", ROW="dead")
    assert second.wait(within=120).code == 0
    letters = Counter((one.partition.number, one.record_offset) for one in dead(scene))
    assert set(letters) == bad_ids(count, 2)
    twice = {place for place, number in letters.items() if number > 1}
    assert max(letters.values()) <= 2, "one kill, one copy more at most"
    assert twice <= {(one.partition.number, one.record_offset) for one in uncommitted}
    ids = {(one.partition.number, one.record_offset): one.said.stable_id for one in dead(scene)}
    assert all(stable == f"{scene.group}:{scene.topic}:{number}:{at}" for (number, at), stable in ids.items())
    assert scene.breaches() == []


@pytest.mark.timeout(240)
def test_attempts_made_through_retry_topics_survive_a_kill(scene: Scene) -> None:
    scene.fill(1, [Message("ok"), Message("bad"), Message("ok")])
    first = scene.start("failing.py", *DOOMED, ROW="later", ORDER="none")
    retry = f"{scene.group}.retry.4s"
    first.wait_until(lambda: ended(scene, retry) == 1, within=90, what="the copy in the retry topic")
    first.wait_until(lambda: scene.marks() == {0: 3}, within=60, what="the commit that follows it")
    scene.log.fault("driver_killed", driver=first.pid)
    first.kill()

    second = scene.start("failing.py", "--until", "caught-up", ROW="later", ORDER="none")
    assert second.wait(within=120).code == 0
    [letter] = dead(scene)
    assert (letter.record_offset, letter.said.attempt) == (1, 2)
    assert [past.place for past in letter.said.history] == [f"{scene.topic}[0]:1", f"{retry}[0]:0"]
    [copy] = [one for one in read_copies(scene.kafka, scene.group) if one.topic == retry]
    late = letter.at_ms - copy.at_ms - 4000
    assert late >= 0, "never early, restart or not"
    assert scene.breaches(order="none") == []
    check_any_tool_sees(scene, Partition(retry, 0), mark=1)


def check_any_tool_sees(scene: Scene, partition: Partition, mark: int) -> None:
    """The group's own topics are topics like others: their marks lie in Kafka, and our command shows them."""
    assert scene.admin.committed(scene.group, [partition])[partition].mark == mark
    command = tidegate("offsets", scene.group, "--bootstrap", scene.bootstrap, "--json")
    shown = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)
    marks = {(one["topic"], one["partition"]): one["mark"] for one in shown["partitions"]}
    assert marks[partition.topic, partition.number] == mark


@pytest.mark.timeout(240)
def test_dead_letters_that_are_redriven_reach_their_sink_while_the_program_runs(scene: Scene) -> None:
    count = 100
    scene.fill(2, some_bad(count, 2))
    program = scene.start("failing.py", ROW="dead")
    program.wait_until(lambda: ended(scene, f"{scene.group}.dead") == count // 5, within=90, what="the dead letters")

    def dead_command(*words: str) -> str:
        command = tidegate("dead", *words, "--bootstrap", scene.bootstrap)
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    assert "ValueError" in dead_command("list", scene.group)
    dead_command("redrive", scene.group, "--yes")  # not mended yet: they die again, as new letters
    program.wait_until(lambda: ended(scene, f"{scene.group}.dead") == 2 * count // 5, within=60, what="dead again")
    Path(scene.log.path + ".mended").touch()
    dead_command("redrive", scene.group, "--yes")
    bad = bad_ids(count, 2)

    def is_settled() -> bool:
        settled = {(event.partition.number, event.record_offset) for event in scene.log.read().settled}
        return bad <= settled

    program.wait_until(is_settled, within=60, what="what was redriven")
    program.send(signal.SIGTERM)
    assert program.wait(within=60).code == 0
    again = [one for one in dead(scene) if one.said.redrives == 1]
    assert {(one.partition.number, one.record_offset) for one in again} == bad
    settled = Counter((event.partition.number, event.record_offset) for event in scene.log.read().settled)
    assert set(settled.values()) == {1}, "each record reached its sink once"
    assert scene.breaches(order="none") == []


def memory_of(pids: list[int]) -> int:
    """The resident memory of these processes, in megabytes."""
    found = 0
    for pid in pids:
        status = Path(f"/proc/{pid}/status")
        if status.exists() and "java" not in Path(f"/proc/{pid}/comm").read_text():  # Java grows as it likes
            found += sum(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return found // 1024


@pytest.mark.timeout(240 + 2 * OUTAGE_SECONDS)
@channel("live")
def test_an_outage_of_the_sink_costs_nothing_but_time(scene: Scene, live: str) -> None:
    count = 20_000
    scene.fill(2, [Message(f"ok {one}", partition=one % 2) for one in range(2000)])
    program = scene.start("failing.py", "--set", f"live={live}", ROW="hold", SECONDS_EACH="0.0005")
    scene.wait_for_records(500, program)
    away = Path(scene.log.path + ".away")
    away.touch()
    scene.produce([Message(f"more {one}", partition=one % 2) for one in range(count - 2000)])
    settled = scene.log.count()
    members = scene.admin.group_members(scene.group).members
    early = memory_of(program.processes())
    tries = scene.log.count("began")
    gone = time.monotonic()
    wait_until(lambda: time.monotonic() - gone > OUTAGE_SECONDS, within=OUTAGE_SECONDS + 60, what="the outage is over")
    assert program.is_running, program.err
    assert scene.log.count("began") > tries, "it was looked for"
    assert scene.log.count() - settled <= 4, "what was in the sink's hands when it went"
    assert scene.admin.group_members(scene.group).members == members, "it stayed in the group"
    late = memory_of(program.processes())
    assert late < early * 1.5 + 50, f"memory grew from {early} to {late} MB"

    back, before = time.monotonic(), scene.log.count()
    away.unlink()
    program.wait_until(lambda: scene.log.count() > before, within=60, what="work goes on")
    assert time.monotonic() - back < 5.0 * 3, "promised within five seconds"
    program.wait_until(lambda: scene.marks() == scene.ends, within=120, what="everything is committed")
    program.send(signal.SIGTERM)
    assert program.wait(within=60).code == 0
    assert dead(scene) == []
    assert ended(scene, f"{scene.group}.dead") == 0
    assert scene.breaches() == []
    assert "a sink is away" in program.err
