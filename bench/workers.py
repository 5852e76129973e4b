"""What Python workers cost until they work: those of PySpark's daemon, and those of ours.

Usage: python -m bench.workers [--repeats K]

Every run is a Spark of its own with two workers, in turn with the one and the other daemon. Its first job loads what a
round needs; then both workers are killed, and the next job needs new ones.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

DAEMONS = ("pyspark.daemon", "tidegate.engine.worker_daemon")
WORKERS = 2
FIGURES = {
    "first": "s until the first job is done",
    "again": "s until a job is done after a kill of the workers",
    "cpu": "s of processor time of daemon and workers, first job",
    "own": "MB of a worker's own memory, not shared with its daemon",
}


def be_a_worker(_elements: Iterator[int]) -> Iterator[tuple[int, int]]:
    """Do what a round does before it reads."""
    importlib.import_module("tidegate.engine.task")
    yield os.getpid(), os.getppid()


def measure(daemon: str) -> dict[str, float]:
    from pyspark.sql import SparkSession  # noqa: PLC0415  # in a process of its own

    builder = SparkSession.builder.master(f"local[{WORKERS}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.python.unix.domain.socket.enabled", "true").config("spark.log.level", "OFF")
    session = builder.config("spark.python.daemon.module", daemon).getOrCreate()
    context = session.sparkContext
    job = context.parallelize(range(WORKERS), WORKERS).mapPartitions(be_a_worker)
    began = time.monotonic()
    pids = job.collect()
    first = time.monotonic() - began
    family = {pid for pair in pids for pid in pair}
    cpu = sum(map(processor_seconds, family))
    megabytes = statistics.mean(own_megabytes(worker) for worker, _ in pids)
    for worker, _ in pids:
        os.kill(worker, signal.SIGKILL)
    began = time.monotonic()
    while not is_done(job.collect):
        pass
    again = time.monotonic() - began
    session.stop()
    return {"first": first, "again": again, "cpu": cpu, "own": megabytes}


def is_done(job: Callable[[], object]) -> bool:
    """Do the job; the first one after a kill may find a dead worker."""
    try:
        job()
    except Exception:  # noqa: BLE001  # Spark's word for a worker that is dead: it is begun again
        return False
    return True


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own_megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    sizes = {line.split(":")[0]: line.split()[1] for line in lines[1:]}
    return (int(sizes["Private_Clean"]) + int(sizes["Private_Dirty"])) / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", choices=DAEMONS)
    asked = parser.parse_args()
    if asked.one is not None:
        print(json.dumps(measure(asked.one)))
        return 0
    runs: dict[str, list[dict[str, float]]] = {daemon: [] for daemon in DAEMONS}
    for _ in range(asked.repeats):
        for daemon in DAEMONS:
            command = [sys.executable, "-m", "bench.workers", "--one", daemon]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
            runs[daemon].append(json.loads(done.stdout))
    print("| | " + " | ".join(f"`{daemon}`" for daemon in DAEMONS) + " |\n|---|---|---|")
    for figure, words in FIGURES.items():
        medians = [statistics.median(run[figure] for run in runs[daemon]) for daemon in DAEMONS]
        print(f"| {words} | " + " | ".join(f"{one:.2f}" for one in medians) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
