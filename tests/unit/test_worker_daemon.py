"""The process whose forks are Python workers: what it leaves out of its path, and when it is PySpark's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tidegate.engine.worker_daemon import without_twins
from tidegate.machine import environment_without

HOME = Path(pyspark.__file__).parent
INSTALLED = str(HOME.parent)
ARCHIVES = [str(HOME / "python" / "lib" / "pyspark.zip"), *map(str, HOME.glob("python/lib/py4j-*.zip"))]
A_THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"


def test_archives_of_the_pyspark_that_is_installed_are_left_out() -> None:
    assert len(ARCHIVES) == 2
    assert without_twins(["", *ARCHIVES, "/of/the/user", INSTALLED]) == ["", "/of/the/user", INSTALLED]


def test_archives_of_another_spark_stay(tmp_path: Path) -> None:
    theirs = str(tmp_path / "spark" / "python" / "lib" / "pyspark.zip")
    shallow = "/py4j-0.zip"
    for paths in ([theirs, ARCHIVES[1], INSTALLED], [shallow, INSTALLED], [*ARCHIVES, str(tmp_path)], [INSTALLED]):
        assert without_twins(paths) == paths


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="asks Linux what a process is")
@pytest.mark.parametrize("has_thread", [False, True])
def test_a_daemon_with_a_thread_is_pysparks_own(tmp_path: Path, has_thread: bool) -> None:
    (tmp_path / "sitecustomize.py").write_text(A_THREAD if has_thread else "", encoding="utf-8")
    environment = environment_without("SPARK_", "PYTHON", "PYSPARK_")
    environment |= {"PYTHONPATH": os.pathsep.join([*ARCHIVES, str(tmp_path)]), "PYTHON_WORKER_FACTORY_SECRET": "secret"}
    with subprocess.Popen(
        [sys.executable, "-m", "tidegate.engine.worker_daemon", "pyspark.worker"],
        env=environment, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as daemon:  # fmt: skip
        assert daemon.stdout is not None
        assert int.from_bytes(daemon.stdout.read(4), "big") > 0, "the port on which it waits for Spark"
        command = Path(f"/proc/{daemon.pid}/cmdline").read_bytes().split(b"\0")
        assert command[2] == (b"pyspark.daemon" if has_thread else b"tidegate.engine.worker_daemon")
        assert command[3] == b"pyspark.worker"
        _, said = daemon.communicate(timeout=60)
    assert said == b""
