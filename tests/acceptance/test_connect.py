"""The same pipelines over a Spark Connect server: kills, cuts and restarts on either side of it."""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.conftest import DOOMED, Scene, evenly
from tests.acceptance.cut import Cut
from tests.acceptance.program import APPS
from tidegate.ops.produce import Message
from tidegate.testing import read_copies

if TYPE_CHECKING:
    from tests.acceptance.program import Program
    from tests.connect_server import ConnectServer

PARTITIONS = 2
FOLDER = APPS / "connect"
SLOW = "0.02"


def start(scene: Scene, url: str, *words: str, app: str = "app.py", **environment: str) -> Program:
    return scene.start(FOLDER / app, "--master", url, *words, **environment)


@pytest.mark.timeout(400)
def test_a_pipeline_runs_over_connect_with_its_retries_its_dead_letters_and_its_modules(
    scene: Scene, connect_server: ConnectServer
) -> None:
    kinds = ["bad" if number % 10 == 3 else "once" if number % 10 == 6 else "ok" for number in range(60)]
    scene.fill(PARTITIONS, [Message(f"{kind} {n}", partition=n % PARTITIONS) for n, kind in enumerate(kinds)])

    ended = start(scene, connect_server.url, "--until", "caught-up").wait(within=300)

    assert ended.code == 0, ended.err
    assert scene.breaches() == []
    assert scene.marks() == scene.ends
    settled = {(event.partition.number, event.record_offset) for event in scene.log.read().settled}
    dead = {(copy.partition.number, copy.record_offset) for copy in read_copies(scene.kafka, scene.group)}
    bad = {(number % PARTITIONS, number // PARTITIONS) for number, kind in enumerate(kinds) if kind == "bad"}
    assert dead == bad
    assert settled == {(number, record_offset) for _, number, record_offset in scene.produced} - bad
    [tidegate_file, module_file] = Path(scene.log.path + ".origins").read_text(encoding="utf-8").splitlines()
    assert ".zip/tidegate/" in tidegate_file, "the workers must run the Tidegate of the program, not one of their own"
    assert ".zip/" in module_file


@pytest.mark.timeout(400)
def test_connections_that_are_cut_make_no_round_run_twice(scene: Scene, connect_server: ConnectServer) -> None:
    scene.fill(PARTITIONS, evenly(600, PARTITIONS))
    with Cut(connect_server.port) as way:
        url = f"sc://127.0.0.1:{way.port}"
        program = start(scene, url, "--until", "caught-up", "--set", "commit_every=3s", SECONDS_EACH=SLOW)
        for count in (50, 200, 350):
            scene.wait_for_records(count, program)
            assert way.cut() > 0, "there was nothing to cut"
        ended = program.wait(within=300)

    assert ended.code == 0, ended.err
    assert scene.breaches() == []
    times = Counter((event.partition.number, event.record_offset) for event in scene.log.read().settled)
    assert set(times.values()) == {1}, "a round ran twice"
    assert len(times) == len(scene.produced)


@pytest.mark.timeout(400)
def test_a_program_killed_over_connect_leaves_a_round_that_ends_by_itself_and_nothing_is_lost(
    scene: Scene, connect_server: ConnectServer
) -> None:
    scene.fill(PARTITIONS, evenly(700, PARTITIONS))
    killed = start(scene, connect_server.url, *DOOMED, "--set", "commit_every=2s", SECONDS_EACH=SLOW)
    scene.wait_for_records(150, killed)
    scene.log.fault("driver_killed", driver=killed.pid)
    killed.kill()
    at_death = scene.log.count(driver=killed.pid)

    ended = start(scene, connect_server.url, "--until", "caught-up", SECONDS_EACH=SLOW).wait(within=300)

    assert ended.code == 0, ended.err
    assert scene.breaches() == []
    assert scene.marks() == scene.ends
    entries = scene.log.read()
    [fault] = entries.faults
    orphaned = [event.at_ms - fault.at_ms for event in entries.settled if event.driver == killed.pid]
    assert len(orphaned) > at_death, "the round did not outlive its driver, so nothing was proved"
    # Two seconds of reading at most, and the record in hand; a busy machine gets some more.
    assert max(orphaned) < 4_000


@pytest.mark.timeout(500)
def test_a_server_that_dies_ends_the_run_in_a_sentence_and_the_next_one_goes_on(
    scene: Scene, connect_server: ConnectServer
) -> None:
    scene.fill(PARTITIONS, evenly(600, PARTITIONS))
    program = start(scene, connect_server.url, SECONDS_EACH=SLOW)
    scene.wait_for_records(100, program)
    scene.log.fault("server_killed", driver=program.pid)  # which ends with it
    connect_server.kill()
    connect_server.start()
    back_ms = time.time() * 1000
    first = program.wait(within=120)
    assert scene.marks() != scene.ends, "the server died after the work"

    second = start(scene, connect_server.url, "--until", "caught-up", SECONDS_EACH=SLOW).wait(within=300)

    assert first.code == 1, first.err
    # The second, if the new server is up before the old one is given up.
    said = rf"the Spark Connect server {connect_server.url} (does not answer|has lost this session); start again"
    assert re.search(said, first.err), first.err
    assert "Traceback" not in first.err
    assert "a worker died" not in first.err
    late = [one for one in scene.log.read().events if one.driver == program.pid and one.at_ms > back_ms]
    assert late == [], "the new server ran a round of the old one"
    assert second.code == 0, second.err
    assert scene.breaches() == []
    assert scene.marks() == scene.ends


@pytest.mark.timeout(400)
def test_a_dataframe_pipeline_runs_over_connect_and_what_cannot_is_refused(
    scene: Scene, connect_server: ConnectServer
) -> None:
    orders = [{"id": number, "amount": -1 if number % 50 == 7 else number} for number in range(500)]
    scene.fill(PARTITIONS, [Message(order, partition=n % PARTITIONS) for n, order in enumerate(orders)])

    refused = start(scene, connect_server.url, "--until", "caught-up", app="frames.py", TO_PARQUET="1")
    ended = start(scene, connect_server.url, "--until", "caught-up", app="frames.py").wait(within=300)

    assert ended.code == 0, ended.err
    assert scene.marks() == scene.ends
    lines = Path(scene.log.path + ".written").read_text(encoding="utf-8").splitlines()
    rounds: dict[str, list[list[int]]] = {one["round"]: one["rows"] for one in map(json.loads, lines)}
    assert len(rounds) == len(lines) > 1
    written = Counter((number, record_offset) for rows in rounds.values() for number, record_offset in rows)
    bad = {(n % PARTITIONS, n // PARTITIONS) for n, order in enumerate(orders) if order["amount"] < 0}
    assert set(written) == {(number, record_offset) for _, number, record_offset in scene.produced} - bad
    assert set(written.values()) == {1}
    assert {(copy.partition.number, copy.record_offset) for copy in read_copies(scene.kafka, scene.group)} == bad
    said = refused.wait(within=300)
    assert said.code == 1
    assert "parquet(/nowhere) needs a classic Spark session" in said.err


@pytest.mark.timeout(400)
def test_rounds_over_connect_are_cancelled_and_told_apart(scene: Scene, connect_server: ConnectServer) -> None:
    command = [sys.executable, str(FOLDER / "rounds.py"), connect_server.url, str(scene.folder)]
    ended = scene.start_command(command).wait(within=300)
    assert ended.code == 0, ended.err
    said = json.loads(ended.out.splitlines()[-1])

    assert said["about"] == [2, connect_server.url, None]
    first, second, ill, after = said["workers"]
    assert first == second == ill != after, "a worker that is not healthy must be replaced, and only that one"
    assert said["raised"][0] == "RoundBroken"
    assert "ValueError: as it was told to" in said["raised"][1]
    assert said["missing"][:2] == ["RoundBroken", "Spark's workers have no module tidegate_has_no_such_module"]
    assert "install tidegate_has_no_such_module" in said["missing"][2]
    assert said["progress"] == [0, 1]
    assert said["cancelled"][:2] == ["RoundDied", "it was cancelled"]
    assert said["lived on"] < 4, "its partition is leased again after four seconds"
    assert said["interrupted"] == [], "the server must not know the round when it is interrupted first"
    assert said["overtaken"][:2] == ["RoundDied", "it was cancelled"]
    assert said["overtaken lived"] < 6, "a round that its interrupt has overtaken is interrupted again"
    assert said["early"] == "RoundDied", "a round that was cancelled before it was sent must not begin"
    assert said["the next one"] == "RoundBroken", "it begins"
    assert "needs a classic Spark session" in said["parquet"][1]
    assert "needs a classic Spark session" in said["jdbc"][1]
    assert said["not reattachable"][0] == "SettingsError"
    assert said["followed"]
    assert said["nobody there"][0] == "SparkFailed"
    assert "the Spark Connect server sc://127.0.0.1:1 does not answer; start again" in said["nobody there"][1]
