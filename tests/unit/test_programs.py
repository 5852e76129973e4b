"""Programs on trial: found with all that they started, killed, frozen, kept from writing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hygiene import processes_with
from tests.support import is_alive, wait_until
from tidegate.errors import Unavailable
from tidegate.testing import Program, Switch

CHILD = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "


def start(folder: Path, code: str) -> Program:
    return Program([sys.executable, "-c", code], folder, dict(os.environ))


def test_what_a_program_started_is_found_and_killed_after_its_death_too(tmp_path: Path) -> None:
    program = start(tmp_path, CHILD + "print('up', file=sys.stderr, flush=True); time.sleep(60)")
    wait_until(lambda: "up" in program.err, within=20, what="it is up")
    assert len(program.processes()) == 2
    program.kill()
    [orphan] = program.processes()
    assert program.code == -signal.SIGKILL
    program.kill_all()
    assert not is_alive(orphan)
    assert program.processes() == []


RUN_OF_TESTS = """
import os, sys, time
from pathlib import Path
from tidegate.testing import Program
DEAF = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
ALONE = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {DEAF!r}], start_new_session=True); "
program = Program([sys.executable, "-c", ALONE + "time.sleep(60)"], Path.cwd(), dict(os.environ))
while not (Path.cwd() / "out").read_text():
    time.sleep(0.05)
mark = [one for one in Path(f"/proc/{program.pid}/environ").read_text().split(chr(0)) if one.startswith("TEST_RUN_OF=")]
print(mark[0].partition("=")[2], flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "ended in good order"])
def test_no_process_of_a_program_outlives_the_run_of_tests_that_started_it(tmp_path: Path, is_killed: bool) -> None:
    code = RUN_OF_TESTS if is_killed else RUN_OF_TESTS.rpartition("time.sleep(60)")[0]
    run = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    with run, run.stdout:
        mark = run.stdout.readline().strip()
        if is_killed:
            started = processes_with("TEST_RUN_OF", mark)
            assert len({os.getsid(pid) for pid in started}) == 2, "one of them has left the session of its program"
            run.kill()
        assert run.wait(20) == (-signal.SIGKILL if is_killed else 0)
    wait_until(lambda: not processes_with("TEST_RUN_OF", mark), within=20, what="the end of all that it started")


def test_a_program_on_a_full_disk_still_speaks(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "sys.stdin.read()\n"
        "file = open('data', 'wb', buffering=0)\n"
        "while True:\n"
        "    try:\n"
        "        file.seek(0); file.write(b'x' * 10000) == 10000 and print('room', file=sys.stderr, flush=True)\n"
        "        file.write(b'x') or None\n"
        "    except OSError as error:\n"
        "        print(error.strerror, file=sys.stderr, flush=True)\n"
        "    time.sleep(0.05)\n"
    )
    program = start(tmp_path, code)
    wait_until(lambda: "room" in program.err, within=20, what="room")
    program.limit_files()
    wait_until(lambda: "File too large" in program.err, within=20, what="no room")
    program.unlimit_files()
    known = program.err.count("room")
    wait_until(lambda: program.err.count("room") > known, within=20, what="room again")
    program.kill_all()


def test_a_switch_takes_the_sink_away_and_brings_it_back(tmp_path: Path) -> None:
    switch = Switch(tmp_path / "records")
    switch.meet()
    switch.turn("fail sink", on=True)
    assert not switch.was_met("fail sink")
    assert Switch(tmp_path / "records").is_on("fail sink")
    assert switch.was_met("fail sink")
    switch.turn("fail sink", on=True)
    assert not switch.was_met("fail sink"), "turned on anew, nobody has met it yet"
    with pytest.raises(Unavailable):
        switch.meet()
    switch.turn("fail sink", on=False)
    switch.turn("fail sink", on=False)
    switch.meet()
