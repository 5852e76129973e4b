"""A record that ends its worker stops the run exactly there; every other client sees the group where we say."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.acceptance.conftest import Scene
from tests.acceptance.program import Ended, tidegate
from tidegate.dev.jars import tools_classpath
from tidegate.java import find_java
from tidegate.ops.produce import Message

POISON_AT = 9
ENDS = {0: 40, 1: 30, 2: 40}
MARKS = {0: 40, 1: POISON_AT, 2: 40}


@pytest.fixture(scope="module")
def ended(module_scene: Scene) -> Ended:
    """A run that met the poison."""
    scene = module_scene
    poisoned = [Message(b"poison" if at == POISON_AT else b"fine", partition=1) for at in range(ENDS[1])]
    others = [Message(b"fine", partition=number) for number in (0, 2) for _ in range(ENDS[number])]
    scene.fill(3, [*others, *poisoned])
    return scene.start("poison.py").wait(within=120)


@pytest.mark.timeout(180)
def test_the_run_stops_at_the_record_and_says_why(module_scene: Scene, ended: Ended) -> None:
    assert ended.code == 3, ended.err
    last = ended.err.strip().splitlines()[-1]
    assert last.startswith(f"tidegate: stopped at {module_scene.topic}[1] offset {POISON_AT}: WorkerDied: ")
    assert f"{module_scene.topic}[1]  mark {POISON_AT}  failed here: WorkerDied" in ended.out
    assert "Traceback" not in ended.err
    assert "\tat " not in ended.err


def test_all_others_are_settled_and_nothing_behind_it_ran(module_scene: Scene, ended: Ended) -> None:
    assert ended.code == 3
    assert module_scene.marks() == MARKS
    entries = module_scene.log.read()
    settled = {(event.partition.number, event.record_offset) for event in entries.settled}
    assert settled == {(number, at) for number, mark in MARKS.items() for at in range(mark)}
    began_behind = [event for event in entries.events if event.partition.number == 1]
    assert max(event.record_offset for event in began_behind) == POISON_AT
    assert len(entries.faults) >= 4, "two rounds together and two alone should have died"


def test_the_deaths_on_the_way_broke_no_law(module_scene: Scene, ended: Ended) -> None:
    assert ended.code == 3
    breaches = module_scene.breaches()

    assert [(breach.law, str(breach)) for breach in breaches] == [
        ("L2", f"L2: {module_scene.topic}[1] never settled: offsets {POISON_AT}-{ENDS[1] - 1}")
    ]


def test_kafkas_own_tool_and_ours_agree_on_the_group(module_scene: Scene, ended: Ended) -> None:
    assert ended.code == 3
    ours = {
        (one["topic"], one["partition"]): (one["mark"], one["end_offset"], one["lag"])
        for one in our_offsets(module_scene)["partitions"]
    }
    theirs = consumer_groups_tool(module_scene)

    watched = run(
        tidegate(
            "watch",
            module_scene.group,
            "--bootstrap",
            module_scene.bootstrap,
            "--from-beginning",
            "--until-end",
            "--json",
        )
    )
    last = {(one["topic"], one["partition"]): one["mark"] for one in map(json.loads, watched.splitlines())}

    assert ours == theirs
    assert last == {place: mark for place, (mark, _, _) in theirs.items()}, "the last commits that watch shows"
    assert {number: mark for (_, number), (mark, _, _) in ours.items()} == MARKS


def test_kcat_reads_on_where_the_group_stands(module_scene: Scene, ended: Ended) -> None:
    """As a member of the same group. It commits what it reads, so the group is put back afterwards."""
    assert ended.code == 3
    before = module_scene.admin.committed(module_scene.group)
    lines = kcat(module_scene, "-G", module_scene.group, "-e", "-q", "-f", "%p %o\n", module_scene.topic).splitlines()
    seen_by_us = {one["partition"]: one["mark"] for one in our_offsets(module_scene)["partitions"]}
    module_scene.admin.commit_for_empty_group(
        module_scene.group, {partition: (one.mark, one.metadata) for partition, one in before.items()}
    )

    assert sorted(lines) == sorted(f"{number} {at}" for number in ENDS for at in range(MARKS[number], ENDS[number]))
    assert seen_by_us == ENDS, "what another client commits, our command shows"


def test_kcat_sees_the_same_partitions_and_ends(module_scene: Scene, ended: Ended) -> None:
    assert ended.code == 3
    listed = json.loads(kcat(module_scene, "-L", "-J", "-t", module_scene.topic))
    [topic] = listed["topics"]
    asked = [word for number in ENDS for word in ("-t", f"{module_scene.topic}:{number}:-1")]
    ends = kcat(module_scene, "-Q", *asked).splitlines()

    ours = our_offsets(module_scene)["partitions"]
    assert sorted(one["partition"] for one in topic["partitions"]) == [one["partition"] for one in ours]
    assert sorted(ends) == sorted(f"{one['topic']} [{one['partition']}] offset {one['end_offset']}" for one in ours)


def our_offsets(scene: Scene) -> dict:  # type: ignore[type-arg]  # JSON
    return json.loads(run(tidegate("offsets", scene.group, "--bootstrap", scene.bootstrap, "--json")))  # type: ignore[no-any-return]  # JSON


def consumer_groups_tool(scene: Scene) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Return mark, end and lag of each partition, as Kafka's own tool prints them."""
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    words = ["--bootstrap-server", scene.bootstrap, "--describe", "--group", scene.group]
    printed = run([str(find_java()), "-cp", tools_classpath(), tool, *words])
    rows = [line.split() for line in printed.splitlines() if line.startswith(scene.group)]
    return {(topic, int(number)): (int(mark), int(end), int(lag)) for _, topic, number, mark, end, lag, *_ in rows}


def kcat(scene: Scene, *words: str) -> str:
    return run(["kcat", "-b", scene.bootstrap, *words])


def run(command: list[str]) -> str:
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout
