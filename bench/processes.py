"""A contender as a process with all that it starts: its processor time, its memory, its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


class Program:
    """A command in a session of its own, by which everything it starts is found, orphans too."""

    def __init__(self, command: Sequence[str], *, log: Path, environment: Mapping[str, str], folder: Path) -> None:
        self._log = log
        self._log_from = log.stat().st_size if log.exists() else 0
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=dict(environment),
                cwd=folder,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def said(self, words: Sequence[str]) -> bool:
        """Whether one of these words is in what it has printed since it was started."""
        with self._log.open("rb") as log:
            log.seek(self._log_from)
            text = log.read().decode("utf-8", errors="replace")
        return any(word in text for word in words)

    def last_words(self, lines: int = 12) -> str:
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def cpu_seconds(self) -> float:
        """Processor time of the whole session: of those that live, and of those that they have buried."""
        return sum(sum(stat[11:15]) for stat in _session(self.pid).values()) / _TICKS

    def own_cpu_seconds(self) -> float:
        """Processor time of the first process alone."""
        stat = _session(self.pid).get(self.pid)
        return sum(stat[11:13]) / _TICKS if stat else 0.0

    def memory_mb(self) -> float:
        """Memory of the whole session; a page that several share counts once."""
        return sum(_pss_kb(pid) for pid in _session(self.pid)) / 1024

    def kill(self) -> None:
        """kill -9 to everything at once."""
        for pid in _session(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(30)

    def end(self, within_seconds: float) -> None:
        """Ask it to end in order; kill what is left then."""
        if self.is_running:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(within_seconds)
        self.kill()


def _session(leader: int) -> dict[int, list[int]]:
    """Return the numbers of /proc/PID/stat after the state, by process, for all processes of a session."""
    found: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                text = Path(entry.path, "stat").read_text(encoding="utf-8", errors="replace")
                # The name in brackets may hold anything; the state after it is a letter, and what follows numbers.
                numbers = [0, *map(int, text[text.rindex(")") + 4 :].split())]
                if numbers[3] == leader:
                    found[int(entry.name)] = numbers
    return found


def _pss_kb(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0
