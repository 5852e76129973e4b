"""The process whose forks are Spark's Python workers: PySpark's own, which has loaded what every worker needs.

PySpark's daemon loads next to nothing, and that from an archive without compiled modules: it and every worker compile
PySpark anew, and every worker loads Tidegate anew. See docs/decisions/workers-are-born-ready.md.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterable
from importlib.machinery import PathFinder
from pathlib import Path

_TASKS = Path("/proc/self/task")
_NEEDED = ("pyspark.worker", "tidegate.engine.task")
"""What no worker does without. Not pyarrow or pandas: they start threads, which no fork has."""


def serve() -> None:
    """Be the daemon, until Spark closes our input."""
    sys.path[:] = without_twins(sys.path)
    for name in _NEEDED:
        importlib.import_module(name)
    if count_threads() > 1:
        # Something that is loaded with Python itself, or one of our modules, has a thread: a fork might wait for ever
        # for a lock that it held. Nobody has heard of this process yet.
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])  # noqa: S606  # as Spark does
    from pyspark import daemon  # noqa: PLC0415  # from where the line above leaves it

    daemon.worker = without_last_words(daemon.worker)
    daemon.manager()


def without_last_words(work: Callable[..., int]) -> Callable[..., int]:
    """Let a worker that Spark hung up on end in silence: nobody is left to hear it, and nothing is wrong.

    Spark does so with a round that was cancelled and with a worker that is idle when its session stops. PySpark's own
    daemon then shows its trace to the user.
    """

    def worker(*words: object) -> int:
        try:
            return work(*words)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(1)

    return worker


def without_twins(paths: Iterable[str]) -> list[str]:
    """Leave out the archives of PySpark that hold the same files as the PySpark that is installed beside them."""
    before = list(paths)
    kept = [one for one in before if not _is_archive(one)]
    homes = {Path(one).resolve().parent.parent.parent for one in set(before) - set(kept)}
    spark, java = (PathFinder.find_spec(name, kept) for name in ("pyspark", "py4j"))
    if spark is None or spark.origin is None or java is None:
        return before
    return kept if homes <= {Path(spark.origin).resolve().parent} else before


def _is_archive(place: str) -> bool:
    path = Path(place)
    return path.name == "pyspark.zip" or (path.name.startswith("py4j-") and path.suffix == ".zip")


def count_threads() -> int:
    """Return how many threads this process has, those of libraries too where the system tells."""
    return len(list(_TASKS.iterdir())) if _TASKS.is_dir() else threading.active_count()


if __name__ == "__main__":
    serve()
