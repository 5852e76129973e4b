"""The guard, with a plain `sleep` in the place of Kafka."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import is_alive, wait_until
from tidegate.dev import guard

pytestmark = pytest.mark.timeout(60)

GUARD = [sys.executable, "-I", "-S", guard.__file__]
SLEEP = ["sleep", "600"]

# A parent that starts the guard, may fork a process that keeps every pipe open, tells the ids, and waits.
PARENT = """
import os, subprocess, sys
guard = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
command = int(guard.stdout.readline())
forked = 0
if sys.argv[1] == "forks":
    forked = os.fork()
    if forked == 0:
        os.set_inheritable(guard.stdin.fileno(), True)
        os.execvp("sleep", ["sleep", "600"])
print(command, guard.pid, forked, flush=True)
sys.stdin.read()
"""


class Parent:
    """A process that runs a guarded `sleep`."""

    def __init__(self, forks: str, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT, forks, *GUARD, *options, *SLEEP],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.command, self.guard, self.forked = map(int, self.process.stdout.readline().split())

    def close(self) -> None:
        if self.forked:
            os.kill(self.forked, signal.SIGKILL)
        self.process.kill()
        self.process.communicate()


def test_kill_9_of_the_parent_ends_the_command() -> None:
    parent = Parent("plain")
    assert is_alive(parent.command)
    parent.close()
    wait_until(lambda: not is_alive(parent.command), within=10, what="the command is gone")
    wait_until(lambda: not is_alive(parent.guard), within=10, what="the guard is gone")


def test_a_forked_process_that_holds_the_pipe_does_not_keep_the_command() -> None:
    parent = Parent("forks")
    try:
        parent.process.kill()
        parent.process.wait()
        wait_until(lambda: not is_alive(parent.command), within=10, what="the command is gone")
        assert is_alive(parent.forked)
    finally:
        parent.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tie a child to its parent's life")
def test_kill_9_of_the_guard_ends_the_command() -> None:
    parent = Parent("plain")
    try:
        os.kill(parent.guard, signal.SIGKILL)
        wait_until(lambda: not is_alive(parent.command), within=10, what="the command is gone")
    finally:
        parent.close()


def test_an_orphans_folder_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    Parent("plain", "--orphan-removes", str(folder)).close()
    wait_until(lambda: not folder.exists(), within=10, what="the folder is gone")


def run_guard(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*GUARD, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_the_guard_ends_with_its_commands_exit_code_and_output() -> None:
    running = run_guard("sh", "-c", "echo said; exit 7")
    assert running.stdout is not None
    pid = int(running.stdout.readline())
    assert running.wait(10) == 7
    assert not is_alive(pid)
    _, said = running.communicate()
    assert said == b"said\n"


def test_a_signal_to_the_guard_ends_the_command_and_keeps_the_folder(tmp_path: Path) -> None:
    running = run_guard("--orphan-removes", str(tmp_path), *SLEEP)
    assert running.stdout is not None
    pid = int(running.stdout.readline())
    running.terminate()
    assert running.wait(10) != 0
    running.communicate()
    assert not is_alive(pid)
    assert tmp_path.exists()
