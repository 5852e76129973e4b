"""The process whose forks are Python workers: what it leaves out of its path, and when it is PySpark's own."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.support import wait_until
from tidegate.engine.worker_daemon import without_twins
from tidegate.machine import environment_without

HOME = Path(pyspark.__file__).parent
INSTALLED = str(HOME.parent)
ARCHIVES = [str(HOME / "python" / "lib" / "pyspark.zip"), *map(str, HOME.glob("python/lib/py4j-*.zip"))]
SECRET = b"secret"
A_THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"


def test_archives_of_the_pyspark_that_is_installed_are_left_out() -> None:
    assert len(ARCHIVES) == 2
    assert without_twins(["", *ARCHIVES, "/of/the/user", INSTALLED]) == ["", "/of/the/user", INSTALLED]


def test_archives_of_another_spark_stay(tmp_path: Path) -> None:
    theirs = str(tmp_path / "spark" / "python" / "lib" / "pyspark.zip")
    shallow = "/py4j-0.zip"
    for paths in ([theirs, ARCHIVES[1], INSTALLED], [shallow, INSTALLED], [*ARCHIVES, str(tmp_path)], [INSTALLED]):
        assert without_twins(paths) == paths


@contextmanager
def running(module: str, more_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a daemon as Spark does; give it with the port on which it waits."""
    environment = environment_without("SPARK_", "PYTHON", "PYSPARK_") | {
        "PYTHONPATH": os.pathsep.join([*ARCHIVES, str(more_path)]),
        "PYTHON_WORKER_FACTORY_SECRET": SECRET.decode(),
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
    }
    with subprocess.Popen(
        [sys.executable, "-m", module, "pyspark.worker"],
        env=environment, cwd=more_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as daemon:  # fmt: skip
        assert daemon.stdout is not None
        yield daemon, int.from_bytes(daemon.stdout.read(4), "big")


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="asks Linux what a process is")
@pytest.mark.parametrize("has_thread", [False, True])
def test_a_daemon_with_a_thread_is_pysparks_own(tmp_path: Path, has_thread: bool) -> None:
    (tmp_path / "sitecustomize.py").write_text(A_THREAD if has_thread else "", encoding="utf-8")
    with running("tidegate.engine.worker_daemon", tmp_path) as (daemon, port):
        assert port > 0
        command = Path(f"/proc/{daemon.pid}/cmdline").read_bytes().split(b"\0")
        assert command[2] == (b"pyspark.daemon" if has_thread else b"tidegate.engine.worker_daemon")
        assert command[3] == b"pyspark.worker"
        _, said = daemon.communicate(timeout=60)
    assert said == b""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="asks Linux whether a process is there")
@pytest.mark.parametrize(("module", "says"), [("pyspark.daemon", True), ("tidegate.engine.worker_daemon", False)])
def test_a_worker_that_spark_hangs_up_on_ends_in_silence(tmp_path: Path, module: str, says: bool) -> None:
    with running(module, tmp_path) as (daemon, port):
        with socket.create_connection(("127.0.0.1", port)) as spark:
            pid = int.from_bytes(spark.recv(4, socket.MSG_WAITALL), "big")
            spark.sendall(len(SECRET).to_bytes(4, "big") + SECRET)
            assert spark.recv(6, socket.MSG_WAITALL)[4:] == b"ok"
            spark.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), within=60, what="the worker has ended")
        _, said = daemon.communicate(timeout=60)
    assert (b"Traceback" in said) is says, said.decode()
    assert says or said == b""
