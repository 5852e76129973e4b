"""`tidegate run` as a process of its own, with everything that it starts."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import wait_until
from tidegate.class_archives import OF_LAUNCHER, OF_SPARK
from tidegate.machine import environment_without
from tidegate.testing import programs
from tidegate.testing.programs import tidegate as tidegate  # noqa: PLC0414  # for the tests of this ring

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

APPS = Path(__file__).parent / "apps"
KEPT = ("TIDEGATE_CACHE", "SPARK_HOME", OF_SPARK, OF_LAUNCHER)
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


class Program(programs.Program):
    """One started command, with its own words beside each failure."""

    def __init__(self, command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        # Settings of whoever runs the tests must not change what they prove.
        clean = environment_without("TIDEGATE_", "PYSPARK_", "SPARK_", keeping=KEPT)
        super().__init__(command, folder, {**clean, **environment})
        self._since = time.monotonic()

    @property
    def is_running(self) -> bool:
        return self.code is None

    def wait_until(self, check: Callable[[], bool], *, within: float, what: str) -> None:
        """Wait for a fact that needs this program to run; its own words go with a failure."""
        try:
            wait_until(lambda: check() or not self.is_running, within=within, what=what)
            assert check(), f"the run ended with {self.code} before there was: {what}"
        except AssertionError as error:
            raise AssertionError(f"{error}; it said:\n{self.err}") from None

    def wait(self, *, within: float) -> Ended:
        """Wait for its end by itself, and until nothing of it is left."""
        self.wait_until(lambda: not self.is_running, within=within, what="its end")
        seconds = time.monotonic() - self._since
        self.check_gone()
        self.hear_out()
        assert self.code is not None
        return Ended(self.code, (self.folder / "out").read_text(encoding="utf-8"), self.err, seconds)

    def check_gone(self) -> None:
        """Wait until no process of the session is left."""
        try:
            wait_until(lambda: not self.processes(), within=GONE_SECONDS, what="the end of all that the run started")
        except AssertionError as error:
            raise AssertionError(f"{error}; left are {[_command(pid) for pid in self.processes()]}") from None

    def send(self, number: signal.Signals) -> None:
        """Signal the driver alone."""
        self._since = time.monotonic()
        super().send(number)

    def press_ctrl_c(self) -> None:
        """Signal as a terminal does: the whole process group."""
        self._since = time.monotonic()
        os.killpg(self.pid, signal.SIGINT)


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return f"{pid}: gone"
    return f"{pid}: {b' '.join(words)[:200].decode(errors='replace')}"
