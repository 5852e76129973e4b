"""Running programs rewind themselves: asked through their shared history, or over HTTP; killed in the middle."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance.conftest import DOOMED, Scene, evenly
from tests.acceptance.program import Program, tidegate
from tests.acceptance.test_group import owned_by, wait_for_members
from tests.support import wait_until
from tests.web.client import Client
from tidegate.history.store import History
from tidegate.kafka.commits import read_commits
from tidegate.records import Partition


def times_run(scene: Scene) -> Counter[tuple[int, int]]:
    """How often each record was settled, by partition and offset."""
    return Counter((event.partition.number, event.record_offset) for event in scene.log.read().settled)


def steps_back(scene: Scene) -> Counter[int]:
    """How often the mark of each partition went back, by all commits that the broker has taken."""
    marks: dict[int, int] = {}
    found: Counter[int] = Counter()
    for one in read_commits(scene.kafka, scene.group):
        if one.mark is None or one.partition.topic != scene.topic:
            continue
        number = one.partition.number
        found[number] += one.mark < marks.get(number, 0)
        marks[number] = one.mark
    return found


def rewind(scene: Scene, history: Path | str, *words: str) -> subprocess.CompletedProcess[str]:
    command = tidegate("rewind", scene.group, "--bootstrap", scene.bootstrap, "--yes", *words)
    return subprocess.run(
        command,
        env={**os.environ, "TIDEGATE_HISTORY": str(history)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.timeout(300)
def test_copies_that_share_a_history_rewind_together_and_a_killed_ones_part_is_done_by_the_other(scene: Scene) -> None:
    history = scene.folder / "history.sqlite"
    scene.fill(4, evenly(400, 4))
    words = ("--set", f"history={history}", "--set", "history_every=500ms")
    copies = [scene.start("slow.py", *DOOMED, *words, SECONDS_EACH="0.002") for _ in range(2)]
    wait_for_members(scene, [2, 2], *copies)
    wait_until(lambda: scene.marks() == scene.ends, within=120, what="the first pass")

    refused = rewind(scene, "off", "--to", "beginning")
    assert refused.returncode == 1
    assert "2 of them cannot be asked from here" in refused.stderr
    assert (steps_back(scene).total(), times_run(scene)) == (0, Counter(dict.fromkeys(times_run(scene), 1)))

    done = rewind(scene, history, "--to", "beginning")
    assert done.returncode == 0, done.stderr
    assert "goes on from there" in done.stdout
    wait_until(lambda: set(times_run(scene).values()) == {2}, within=120, what="every record again")
    wait_until(lambda: scene.marks() == scene.ends, within=60, what="its commits")
    assert steps_back(scene) == Counter(dict.fromkeys(range(4), 1))

    # The next one is asked for, and one of its two owners dies before it can do its part.
    first, second = copies
    first.send(signal.SIGSTOP)
    cluster = scene.admin.cluster_id()
    History(str(history)).ask(
        cluster, scene.group, {Partition(scene.topic, number): 50 for number in range(4)}, by="a test"
    )
    scene.log.fault("driver_killed", driver=first.pid)
    first.kill()
    wait_for_members(scene, [4], second)
    wait_until(lambda: _again(scene) == {2: 200, 3: 200}, within=120, what="the upper half a third time")
    wait_until(lambda: scene.marks() == scene.ends, within=60, what="its commits")
    rows = History(str(history)).offsets(cluster, scene.group)
    wait_until(
        lambda: all(row.applied_at is not None for row in History(str(history)).offsets(cluster, scene.group)),
        within=60,
        what=f"the note that it was done: {rows}",
    )
    assert steps_back(scene) == Counter(dict.fromkeys(range(4), 2)), "each partition went back once more, and once only"
    second.send(signal.SIGTERM)
    assert second.wait(within=60).code == 0


def _again(scene: Scene) -> dict[int, int]:
    """How many records ran how often."""
    return dict(Counter(times_run(scene).values()))


@pytest.mark.timeout(240)
def test_a_served_run_is_seen_rests_goes_on_and_rewinds_over_http(scene: Scene) -> None:
    scene.fill(2, evenly(100, 2))
    program = scene.start("slow.py", "--serve", "0", "--set", "history=off")
    client = Client(_address(program))
    wait_until(lambda: scene.marks() == scene.ends, within=90, what="the first pass")
    assert client.get("/healthz").status == 200
    wait_until(lambda: client.get("/readyz").status == 200, within=30, what="that it is ready")
    wait_until(lambda: client.get("/api/v1/run").json["counts"]["settled"] == 100, within=30, what="its counts")
    run = client.get("/api/v1/run").json
    assert (run["state"], run["group"]) == ("running", scene.group)
    assert f'tidegate_run_settled_total{{group="{scene.group}"}} 100.0' in client.get("/metrics").body.decode()

    assert client.post("/api/v1/run/pause", {}).status == 200
    wait_until(lambda: client.get("/api/v1/run").json["state"] == "paused", within=30, what="the rest")
    scene.produce(evenly(20, 2))
    plan = client.put(f"/api/v1/groups/{scene.group}/offsets", {"to": "40"}).json
    assert [(move["partition"], move["mark"], move["to"]) for move in plan["moves"]] == [(0, 50, 40), (1, 50, 40)]
    body = {"to": "40", "dry_run": False, "fingerprint": plan["fingerprint"]}
    done = client.put(f"/api/v1/groups/{scene.group}/offsets", body)
    assert (done.status, done.json["is_done"]) == (200, True), done.body
    assert scene.marks() == {0: 40, 1: 40}, "a run that rests goes back, and begins nothing"
    assert set(times_run(scene).values()) == {1}

    assert client.post("/api/v1/run/resume", {}).status == 200
    wait_until(lambda: scene.marks() == scene.ends, within=60, what="the second pass")
    assert times_run(scene) == Counter([(number, at) for number in range(2) for at in [*range(60), *range(40, 50)]]), (
        "the last ten of the first pass again, all others once"
    )
    assert owned_by(scene) == [2]
    program.send(signal.SIGTERM)
    assert program.wait(within=60).code == 0


def _address(program: Program) -> str:
    def found() -> re.Match[str] | None:
        return re.search(r"serving this run at (\S+)", program.err)

    program.wait_until(lambda: found() is not None, within=60, what="its address")
    match = found()
    assert match is not None
    return match.group(1)
