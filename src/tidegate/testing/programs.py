"""A command as a process of its own, with everything that it starts. Linux only: it looks into `/proc`."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import resource
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from tidegate.machine import environment_without
from tidegate.testing import reaper

MARK = "TEST_RUN_OF"
"""The variable by which everything is found that a run of tests has started."""
_PAGE_BYTES = 4096
_ENDED = ("Z", "X")
_STOPPED = "T"
_NAME_CHARACTERS = 120
_HEAR_SECONDS = 5.0


class Program:
    """One started command. Its processes share a session, by which they are found after its death too.

    None of them outlives the process that started it, kill -9 of that included: see `reaper`.
    """

    def __init__(self, command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        """Start it in this folder, with exactly these variables and a mark; `out`, `err` there are what it says."""
        self.folder = folder
        (folder / "err").touch()
        with (folder / "out").open("wb") as out:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                # A pipe, not the file: it must go on speaking when it can write no file.
                stderr=subprocess.PIPE,
                env={**environment, MARK: _reaped_mark(os.getpid())},
                start_new_session=True,
            )
        assert self._process.stderr is not None  # noqa: S101  # asked for as a pipe
        self._listener = threading.Thread(target=self._listen, args=(self._process.stderr,), daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """The driver."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    @property
    def err(self) -> str:
        """What it has written to stderr so far."""
        return (self.folder / "err").read_text(encoding="utf-8", errors="replace")

    def processes(self) -> list[int]:
        """Everything of this program that lives, the driver included."""
        return [pid for pid in _all_processes() if _stat(pid)[0] not in _ENDED and _session(pid) == self.pid]

    def workers(self) -> list[int]:
        """Its Python workers: forks of Spark's daemon."""
        daemons = {pid for pid in self.processes() if b"pyspark" in _command(pid) and b"daemon" in _command(pid)}
        return sorted(pid for pid in daemons if _parent(pid) in daemons)

    def javas(self) -> list[int]:
        """The Java that runs Spark."""
        return [pid for pid in self.processes() if _command(pid).split(b"\0")[0].endswith(b"java")]

    @property
    def is_frozen(self) -> bool:
        """Whether the driver stands still, as SIGSTOP leaves it."""
        return _stat(self.pid)[0] == _STOPPED

    def name_of(self, pid: int) -> str:
        """Name one of its processes by its first words; nothing where it is gone."""
        words = b" ".join(_command(pid).split(b"\0")[:4]).decode(errors="replace").strip()
        return f"{pid}: {words[:_NAME_CHARACTERS]}" if words else ""

    def send(self, number: signal.Signals) -> None:
        """Signal the driver alone. One that has ended gets none: its number may be another's by now."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the driver alone; what it started lives on for some seconds."""
        self.send(signal.SIGKILL)
        self._process.wait()

    def kill_all(self) -> None:
        """Kill everything at once, as a power cut would. Safe to call on what has ended."""
        while processes := self.processes():
            for pid in processes:
                kill(pid)
        self._process.wait()
        self.hear_out()

    def ended_within(self, seconds: float) -> int | None:
        """Wait for its end; return its exit code, or None where it did not come in time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.code

    def hear_out(self) -> None:
        """Wait until all is in `err` that its processes said, when they have ended."""
        self._listener.join(_HEAR_SECONDS)

    def limit_files(self) -> None:
        """Let no file that the driver writes grow beyond a page: to it the disk is full."""
        self._limit((_PAGE_BYTES, resource.RLIM_INFINITY))

    def unlimit_files(self) -> None:
        """There is room on the disk again."""
        self._limit((resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def _limit(self, limits: tuple[int, int]) -> None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(self.pid, resource.RLIMIT_FSIZE, limits)

    def _listen(self, said: IO[bytes]) -> None:
        with said, (self.folder / "err").open("wb", buffering=0) as kept:
            while part := os.read(said.fileno(), 65536):
                kept.write(part)


def tidegate(*words: str) -> list[str]:
    """Return the command line of the command itself, in this Python."""
    return [sys.executable, "-m", "tidegate.cli", *words]


@functools.cache
def _reaped_mark(pid: int) -> str:
    """Return the mark of this process, behind which a reaper stands. One for each process: a fork has its own."""
    mark = f"{pid}-{uuid.uuid4().hex}"
    janitor = subprocess.Popen(
        [sys.executable, "-I", "-S", reaper.__file__, f"{MARK}={mark}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        # A run of tests may itself be a program on trial: the reaper of that one must not kill this one.
        env=environment_without(MARK),
        start_new_session=True,
    )

    def end() -> None:
        if os.getpid() == pid:
            janitor.communicate()

    atexit.register(end)
    return mark


def kill(pid: int) -> None:
    """Kill a process, if it still lives."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _all_processes() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _stat(pid: int) -> list[str]:
    """State, parent, group, session; nothing where the process is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ["X", "0", "0", "0"]
    return stat.rpartition(")")[2].split()[:4]


def _session(pid: int) -> int:
    return int(_stat(pid)[3])


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
