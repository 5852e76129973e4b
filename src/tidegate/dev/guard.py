"""Run one command, and never let it outlive the process that wanted it.

`python guard.py [--orphan-removes FOLDER] COMMAND...` starts the command and prints its process id. It ends the
command when its own stdin reaches the end (the parent is gone, kill -9 included), or on SIGTERM, SIGINT or SIGHUP.
The command's output goes to the guard's stderr.

Standard library only, and started by its path rather than as a module of the package: it must be up at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

GRACE_SECONDS = 15.0
"""How long the command may take to end by itself after SIGTERM."""
_LOOK_SECONDS = 1.0
_PR_SET_PDEATHSIG = 1
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(arguments: list[str]) -> int:
    """Run the command until it ends or nobody wants it any more; return its exit code."""
    folder = None
    if arguments and arguments[0] == "--orphan-removes":
        folder, arguments = arguments[1], arguments[2:]
    asked: list[int] = []
    wake = _listen(asked)
    parent = os.getppid()
    child = subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=sys.stderr,
        preexec_fn=_die_with_guard,  # noqa: PLW1509  # the guard has one thread
    )
    os.write(sys.stdout.fileno(), f"{child.pid}\n".encode())
    orphaned = _watch(child, wake, asked, parent)
    code = _end(child)
    if orphaned and folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    return code


def _listen(asked: list[int]) -> int:
    """Let signals, SIGCHLD among them, wake a select; return what to select on."""
    wake, written = os.pipe()
    os.set_blocking(written, False)
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    for number in _ENDING_SIGNALS:
        signal.signal(number, lambda received, _frame: asked.append(received))
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return wake


def _die_with_guard() -> None:
    # Between fork and exec: a guard that is itself killed with SIGKILL cannot end its command, the kernel can.
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _watch(child: subprocess.Popen[bytes], wake: int, asked: list[int], parent: int) -> bool:
    """Wait until the command ended, or a signal asked for it, or the parent is gone; return whether it is gone."""
    stdin = sys.stdin.fileno()
    while child.poll() is None and not asked:
        ready, _, _ = select.select([stdin, wake], [], [], _LOOK_SECONDS)
        if stdin in ready and not os.read(stdin, 1024):
            return True
        if wake in ready:
            os.read(wake, 1024)
        # A process that the parent forked may hold the pipe open after the parent's death.
        if os.getppid() != parent:
            return True
    return False


def _end(child: subprocess.Popen[bytes]) -> int:
    if child.poll() is None:
        child.terminate()
        try:
            return child.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
    return child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
