"""What is left behind: no process, no file, whatever way a command ends; after kill -9 the next start clears up."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.conftest import DOOMED, Scene, evenly
from tests.acceptance.program import APPS, tidegate
from tests.hygiene import files_in, temporary_place
from tests.support import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

Place = tuple[Path, dict[str, str]]


@pytest.fixture
def place() -> Iterator[Place]:
    with temporary_place() as made:
        yield made


@pytest.mark.timeout(300)
def test_what_a_killed_run_left_is_cleared_up_by_the_next_which_leaves_nothing(scene: Scene, place: Place) -> None:
    folder, environment = place
    scene.fill(2, evenly(3000, 2))
    killed = scene.start("slow.py", *DOOMED, SECONDS_EACH="0.002", **environment)
    scene.wait_for_records(200, killed)
    killed.kill_all()
    left = files_in(folder)
    assert left, "a kill left nothing, so nothing was proved"
    assert {Path(one).parts[0].rpartition("-")[0] for one in left} == {"tidegate-run"}, "only our own folder is cleared"

    ended = scene.start("slow.py", "--until", "caught-up", **environment).wait(within=120)

    assert ended.code == 0, ended.err
    # The JVM that the run started ends a moment after it, and takes its last files along.
    wait_until(lambda: files_in(folder) == [], within=20, what=f"an empty folder: {files_in(folder)}")


FAILED_STARTS = {
    "no broker": (["--bootstrap", "127.0.0.1:1", "--set", "broker_timeout=2s"], {}),
    "a bad setting": (["--set", "commit_every=never"], {}),
    "no topic": (["--set", "broker_timeout=5s"], {"TOPIC": "there-is-no-such-topic"}),
    "no Java": ([], {"JAVA_HOME": "/nowhere"}),
    "no such master": (["--master", "nonsense"], {}),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", FAILED_STARTS)
def test_a_start_that_fails_leaves_no_process_and_no_file(scene: Scene, place: Place, case: str) -> None:
    folder, environment = place
    words, more = FAILED_STARTS[case]
    if "TOPIC" not in more:
        scene.fill(1, evenly(1, 1))
    command = tidegate("run", str(APPS / "slow.py"), "--bootstrap", scene.bootstrap, *words)
    ended = scene.start_command(command, **{**environment, **more}).wait(within=90)

    assert ended.code in (1, 2), ended.err
    assert "Traceback" not in ended.err, ended.err
    assert files_in(folder) == []


@pytest.mark.timeout(120)
def test_serving_leaves_no_process_and_no_file(scene: Scene, place: Place) -> None:
    folder, environment = place
    command = tidegate("serve", "--port", "0", "--bootstrap", scene.bootstrap, "--history", str(scene.folder / "h.db"))
    serving = scene.start_command(command, **environment)
    said = scene.folder / "run-1" / "out"
    serving.wait_until(lambda: "http" in said.read_text(encoding="utf-8"), within=60, what="its address")
    serving.send(signal.SIGTERM)

    assert serving.wait(within=60).code == 0
    assert files_in(folder) == []
