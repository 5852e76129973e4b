"""`tidegate run` as a process of its own, with everything that it starts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests import class_archives
from tests.support import is_alive, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

APPS = Path(__file__).parent / "apps"
KEPT = ("TIDEGATE_CACHE", "SPARK_HOME", class_archives.GATEWAY, class_archives.LAUNCHER)
"""What the run of tests chose itself, to be quick."""
GONE_SECONDS = 30.0
"""How long what a program started may outlive it: Spark's workers take some seconds to notice."""


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    out: str
    err: str
    seconds: float
    """From the last signal, or from the start where there was none."""


class Program:
    """One started command. Its processes share a session, by which they are found after its death too."""

    def __init__(self, command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**_clean_environment(), **environment},
                start_new_session=True,
            )
        self._since = time.monotonic()

    @property
    def pid(self) -> int:
        """The driver."""
        return self._process.pid

    @property
    def err(self) -> str:
        """What it has written to stderr so far."""
        return self._err.read_text(encoding="utf-8", errors="replace")

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_until(self, check: Callable[[], bool], *, within: float, what: str) -> None:
        """Wait for a fact that needs this program to run; its own words go with a failure."""
        try:
            wait_until(lambda: check() or not self.is_running, within=within, what=what)
            assert check(), f"the run ended with {self._process.returncode} before there was: {what}"
        except AssertionError as error:
            raise AssertionError(f"{error}; it said:\n{self.err}") from None

    def wait(self, *, within: float) -> Ended:
        """Wait for its end by itself, and until nothing of it is left."""
        self.wait_until(lambda: not self.is_running, within=within, what="its end")
        seconds = time.monotonic() - self._since
        self.check_gone()
        return Ended(self._process.returncode, self._out.read_text(encoding="utf-8"), self.err, seconds)

    def check_gone(self) -> None:
        """Wait until no process of the session is left."""
        try:
            wait_until(lambda: not self.processes(), within=GONE_SECONDS, what="the end of all that the run started")
        except AssertionError as error:
            raise AssertionError(f"{error}; left are {[_command(pid) for pid in self.processes()]}") from None

    def processes(self) -> list[int]:
        """Everything of this program that lives, the driver included."""
        return [pid for pid in _all_processes() if _session(pid) == self.pid and is_alive(pid)]

    def send(self, number: signal.Signals) -> None:
        """Signal the driver alone."""
        self._since = time.monotonic()
        os.kill(self.pid, number)

    def press_ctrl_c(self) -> None:
        """Signal as a terminal does: the whole process group."""
        self._since = time.monotonic()
        os.killpg(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """Kill the driver alone; what it started lives on for some seconds."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()

    def kill_all(self) -> None:
        """Kill everything at once, as a power cut would. Safe to call on what has ended."""
        while processes := self.processes():
            for pid in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._process.wait()


def tidegate(*words: str) -> list[str]:
    """Return the command line of the command itself."""
    return [sys.executable, "-m", "tidegate.cli", *words]


def _clean_environment() -> dict[str, str]:
    """Settings of whoever runs the tests must not change what they prove."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TIDEGATE_", "PYSPARK_", "SPARK_")) or name in KEPT
    }


def _all_processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _session(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(stat.rpartition(")")[2].split()[3])


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return f"{pid}: gone"
    return f"{pid}: {b' '.join(words)[:200].decode(errors='replace')}"
