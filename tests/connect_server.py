"""A real Spark Connect server for the tests: Spark's own, as a process of its own, as its users have it.

It never outlives the test run, kill -9 included. Programs find it at `url`, and get nothing else from this process.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from tidegate.class_archives import pyspark_home
from tidegate.dev import guard

SLOTS = 2
_START_SECONDS = 120.0
_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectServer"
# Below the range that outgoing connections take their ports from, and beside the broker's.
_PORTS = range(28_000, 30_000)
_CONF = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": str(SLOTS),
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.log.level": "WARN",
}


class ConnectServer:
    """Spark Connect on this machine, from `start` to `stop` or `kill`; started again, it has the same address."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tidegate-connect-"))
        self._port = _free_port()
        self._guard: subprocess.Popen[bytes] | None = None
        self.pid: int | None = None

    @property
    def url(self) -> str:
        """What programs call it by."""
        return f"sc://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        conf = {**_CONF, "spark.connect.grpc.binding.port": str(self._port)}
        command = [str(pyspark_home() / "bin" / "spark-submit"), "--class", _SERVICE, "--master", f"local[{SLOTS}]"]
        command += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(self._folder)}
        with (self._folder / "log").open("ab") as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, "--orphan-removes", str(self._folder), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._folder,  # modules beside the tests are not beside the server
                env={name: value for name, value in environment.items() if name != "PYTHONPATH"},
                start_new_session=True,
            )
        assert self._guard.stdout is not None
        self.pid = int(self._guard.stdout.readline())
        deadline = time.monotonic() + _START_SECONDS
        while not self._listens():
            assert self._guard.poll() is None, f"the Connect server ended while it started:\n{self.log_tail()}"
            assert time.monotonic() < deadline, f"the Connect server did not start:\n{self.log_tail()}"
            time.sleep(0.1)

    def kill(self) -> None:
        """End it at once: it keeps nothing, so it needs no orderly end."""
        running, self._guard = self._guard, None
        if running is None:
            return
        with suppress(ProcessLookupError):
            os.kill(self.pid or 0, signal.SIGKILL)
        running.wait()
        for pipe in (running.stdin, running.stdout):
            if pipe is not None:
                pipe.close()

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join((self._folder / "log").read_text("utf-8", errors="replace").splitlines()[-lines:])

    def _listens(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


def _free_port() -> int:
    for port in random.sample(_PORTS, k=200):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port was found for the Connect server")
