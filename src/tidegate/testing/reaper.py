"""Kills everything that bears a mark in its environment, when the process that wanted it is gone.

`python reaper.py NAME=VALUE` waits until its own stdin reaches the end (the parent has ended, kill -9 included);
then it kills all processes that were started with this variable, in whatever session they are, and ends.

Standard library only, and started by its path rather than as a module of the package: it must be up at once, and small.
Linux only: it looks into `/proc`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path

_LOOK_SECONDS = 1.0
_AGAIN_SECONDS = 0.1
_LONGEST_SECONDS = 30.0
"""What the system itself holds up longer than that cannot be killed by anybody."""
_QUIET_LOOKS = 3
"""So often nothing must be found: what a process forked in its last moment is seen a moment later."""


def main(mark: str) -> int:
    """Wait for the parent's end, and end what it left."""
    _wait_for_the_end_of(os.getppid())
    deadline = time.monotonic() + _LONGEST_SECONDS
    quiet = 0
    while quiet < _QUIET_LOOKS and time.monotonic() < deadline:
        found = processes_with(mark)
        quiet = 0 if found else quiet + 1
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_AGAIN_SECONDS)
    return 0


def _wait_for_the_end_of(parent: int) -> None:
    stdin = sys.stdin.fileno()
    # A process that the parent forked may hold the pipe open after the parent's death.
    while os.getppid() == parent:
        ready, _, _ = select.select([stdin], [], [], _LOOK_SECONDS)
        if ready and not os.read(stdin, 1024):
            return


def processes_with(mark: str) -> list[int]:
    """Return the living processes that were started with this in their environment, but for the one that asks."""
    wanted = mark.encode()
    found = []
    for entry in Path("/proc").iterdir():
        # One that has ended, and one of somebody else, shows nothing.
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
