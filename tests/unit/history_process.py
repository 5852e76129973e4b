"""A process that writes into a history until it is told to end: `python -m tests.unit.history_process PATH NAME COUNT`.

It waits for a file beside the history, so that several begin at once, and prints the id of each failure when its
batch is written. With a third word `limit` it may not let files grow past so many bytes until stdin has a line.
"""

from __future__ import annotations

import logging
import resource
import sys
import time
from pathlib import Path

from tests.histories import batch, failure, run_row
from tidegate.history.rows import Batch, MarkRow
from tidegate.history.store import History
from tidegate.history.writer import HistoryWriter
from tidegate.records import Partition


def write_all(path: str, name: str, count: int) -> None:
    history = History(path)
    while not Path(path).with_suffix(".go").exists():
        time.sleep(0.01)
    for number in range(count):
        made = batch(run=run_row(name), failures=(failure(f"{name}-{number}"),))
        mark = MarkRow(number, made.run.seen_at)
        history.write(Batch(made.run, {Partition(name, 0): mark}, made.failures))
        sys.stdout.write(f"{name}-{number}\n")
        sys.stdout.flush()
    history.close()


def write_on_a_full_disk(path: str, name: str, limit: int) -> None:
    """Stand in for a disk without room: files of this process may not grow past a limit."""
    logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s", level=logging.INFO)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    writer = HistoryWriter(History(path), 0.05, keep_seconds=1e9)
    writer.begin(run_row(name))
    for number in range(100):
        writer.note_failure(failure(f"{name}-{number}"))
    sys.stdin.readline()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    sys.stdin.readline()
    writer.close()


if __name__ == "__main__":
    if sys.argv[4:] == ["limit"]:
        write_on_a_full_disk(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        write_all(sys.argv[1], sys.argv[2], int(sys.argv[3]))
