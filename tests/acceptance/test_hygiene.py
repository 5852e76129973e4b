"""What is left behind: no process, no file, whatever way a command ends; after kill -9 the next start clears up."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.conftest import DOOMED, Scene, evenly
from tests.acceptance.program import APPS, Program, tidegate
from tests.hygiene import files_in, listening, processes_with, temporary_place
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


BREAKS = """
import threading
import tidegate as tg

threading.Thread(target=threading.Event().wait, daemon=True).start()
pipeline = tg.from_kafka("{topic}", group="{group}").sink(print)
raise RuntimeError("no licence here")
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("is_served", [False, True], ids=["alone", "served"])
def test_a_program_that_breaks_where_it_is_imported_leaves_nothing(scene: Scene, place: Place, is_served: bool) -> None:
    folder, environment = place
    scene.fill(1, evenly(1, 1))
    app = scene.folder / "breaks.py"
    app.write_text(BREAKS.format(topic=scene.topic, group=scene.group), encoding="utf-8")
    ended = scene.start(app, *(("--serve", "0") if is_served else ()), **environment).wait(within=90)

    assert ended.code == 1, ended.err
    assert "no licence here" in ended.err
    assert_nothing_is_left(scene, folder)


@pytest.mark.timeout(120)
def test_a_run_that_finds_its_port_taken_leaves_nothing_and_whoever_has_it_keeps_it(scene: Scene, place: Place) -> None:
    folder, environment = place
    scene.fill(1, evenly(1, 1))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = scene.start("slow.py", "--serve", str(port), **environment).wait(within=90)
        with socket.create_connection(("127.0.0.1", port), timeout=10), taken.accept()[0]:
            pass

    assert ended.code == 1, ended.err
    assert f"port {port} of 127.0.0.1 is taken" in ended.err
    assert "Traceback" not in ended.err, ended.err
    assert_nothing_is_left(scene, folder)


@pytest.mark.timeout(180)
def test_serving_that_is_killed_leaves_nothing_and_its_port_to_the_next(scene: Scene, place: Place) -> None:
    folder, environment = place
    history = scene.folder / "h.db"

    def serve(port: int) -> tuple[Program, int]:
        words = ("--port", str(port), "--bootstrap", scene.bootstrap, "--history", str(history))
        serving = scene.start_command(tidegate("serve", *words), **environment)
        said = serving.folder / "out"
        serving.wait_until(lambda: "http" in said.read_text(encoding="utf-8"), within=60, what="its address")
        return serving, int(said.read_text(encoding="utf-8").rstrip().rpartition(":")[2])

    serving, port = serve(0)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as asking:  # it is open when the kill comes
        asking.sendall(b"GET /api/v1/groups HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert asking.recv(8) == b"HTTP/1.1"
        assert listening([serving.pid]), "else it is no proof that nobody listens afterwards"
        serving.kill()
        serving.check_gone()
    assert_nothing_is_left(scene, folder)

    again, _ = serve(port)
    again.send(signal.SIGTERM)
    assert again.wait(within=60).code == 0
    assert_nothing_is_left(scene, folder)


def assert_nothing_is_left(scene: Scene, folder: Path) -> None:
    """No file, no member, and no process that was started, wherever it went: with it its sockets would be there."""
    assert files_in(folder) == []
    assert scene.admin.group_members(scene.group).members == ()
    wait_until(lambda: not processes_with("GROUP", scene.group), within=20, what="the end of all that was started")
