"""A real Spark cluster for the tests: a standalone master and two workers on loopback, started with `spark-class`.

Like the broker, it never outlives the test run, kill -9 included. Executors are found by their parent, the worker.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import tidegate
from tests.support import is_alive, wait_until
from tidegate.class_archives import OF_LAUNCHER, OF_SPARK, pyspark_home
from tidegate.dev import guard
from tidegate.java import find_java

START_SECONDS = 90.0
WORKERS = 2
CORES = 2
"""Of each worker. They are threads' worth of tasks, not of this machine: tests mostly wait."""
MEMORY = "1100m"
_MASTER_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
_PAGE_STARTED = re.compile(r"MasterWebUI.* http://\S+?:(\d+)")


@dataclass
class Daemon:
    """The master or a worker: a JVM behind a guard."""

    process: subprocess.Popen[bytes]
    pid: int
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """Kill it as a power cut would; its executors notice."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.end()

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class SparkCluster:
    """A master and its workers, from `start` to `stop`."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tidegate-cluster-"))
        self._masters: list[Daemon] = []
        self._started = 0
        self.workers: list[Daemon] = []

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the master, and its workers at the same time."""
        self._masters.append(self._daemon("master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"))
        wait_until(lambda: _PAGE_STARTED.search(self._said) is not None, within=START_SECONDS, what="a master")
        self.make_whole()

    def stop(self) -> None:
        """End everything that was started."""
        for daemon in [*self.workers, *self._masters]:
            daemon.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def url(self) -> str:
        """What programs call the master."""
        found = _MASTER_STARTED.search(self._said)
        assert found is not None
        return found.group(1)

    @property
    def _said(self) -> str:
        return self._masters[0].said

    def state(self) -> dict[str, Any]:
        """What the master's page says, as JSON."""
        page = _PAGE_STARTED.search(self._said)
        assert page is not None
        with urllib.request.urlopen(f"http://127.0.0.1:{page.group(1)}/json/", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def add_worker(self, *, wait: bool = True) -> Daemon:
        """Start one more worker."""
        words = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        words += ["--cores", str(CORES), "--memory", MEMORY, "--work-dir", str(self._folder / "work"), self.url]
        worker = self._daemon("worker.Worker", *words)
        self.workers.append(worker)
        if wait:
            self.wait_for_workers(len(self.workers))
        return worker

    def kill_worker(self, worker: Daemon) -> None:
        """A machine is gone for good: the worker, and everything that it had started, at once."""
        for pid in [worker.pid, *descendants(worker.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        worker.end()
        self.workers.remove(worker)

    def make_whole(self) -> None:
        """Bring back what a test has taken away, and wait until earlier programs have left."""
        while len(self.workers) < WORKERS:
            self.add_worker(wait=False)
        self.wait_for_workers(WORKERS)

    def processes(self) -> list[int]:
        """Everything of the cluster that lives."""
        return [one for daemon in [*self.workers, *self._masters] for one in (daemon.pid, *descendants(daemon.pid))]

    def wait_for_workers(self, count: int) -> None:
        """Wait until so many workers are there, with nothing left on them of earlier programs."""
        wait_until(lambda: self._free() == count, within=START_SECONDS, what=f"{count} free workers: {self.state()}")

    def _free(self) -> int:
        return sum(one["state"] == "ALIVE" and one["coresused"] == 0 for one in self.state()["workers"])

    def executors(self) -> list[int]:
        """The process ids of all executors, of whatever program."""
        found = [child for worker in self.workers for child in children(worker.pid)]
        return [pid for pid in found if "CoarseGrainedExecutorBackend" in command(pid)]

    def python_workers(self, executor: int) -> list[int]:
        """The Python workers of an executor: forked by their daemon, which is none."""
        daemons = [pid for pid in children(executor) if "pyspark" in command(pid)]
        return [worker for daemon in daemons for worker in children(daemon)]

    def log_tail(self, lines: int) -> str:
        """The last lines of every log of the cluster, those of executors too."""
        logs = [*self._folder.glob("*.log"), *self._folder.glob("work/*/*/std*")]
        return "\n".join(
            "\n".join(
                [f"--- {path.relative_to(self._folder)}", *path.read_text(errors="replace").splitlines()[-lines:]]
            )
            for path in sorted(logs)
        )

    def _daemon(self, name: str, *words: str) -> Daemon:
        self._started += 1
        log = self._folder / f"{self._started}-{name}.log"
        spark_class = pyspark_home() / "bin" / "spark-class"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, guard.__file__, str(spark_class), f"org.apache.spark.deploy.{name}", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env=self._environment(),
                cwd=self._folder,
            )
        assert process.stdout is not None
        return Daemon(process, int(process.stdout.readline()), log)

    def _environment(self) -> dict[str, str]:
        """What a machine of a cluster has: Spark, Java, a Python with Tidegate, and nothing of the driver's."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        return kept | {
            "JAVA_HOME": str(Path(find_java()).resolve().parents[1]),
            "SPARK_HOME": str(pyspark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            # For executors too, which inherit it.
            "JAVA_TOOL_OPTIONS": os.environ.get(OF_SPARK, ""),
            OF_LAUNCHER: os.environ.get(OF_LAUNCHER, ""),
            # The installed package, as these tests know it.
            "PYTHONPATH": str(Path(tidegate.__file__).resolve().parents[1]),
        }


def children(pid: int) -> list[int]:
    """The processes that this one started and that live."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                fields = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                if int(fields[1]) == pid and is_alive(int(entry.name)):
                    found.append(int(entry.name))
    return found


def descendants(pid: int) -> list[int]:
    """All that it started, and what those started."""
    return [one for child in children(pid) for one in (child, *descendants(child))]


def command(pid: int) -> str:
    """Return the command line of a process; nothing where it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""
