"""What contenders share: the job, the sinks that count, and how they are asked to end. Python's own library only."""

from __future__ import annotations

import http.client
import json
import mmap
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

NOTE = struct.Struct("<qdd")
"""A note of one record: its id, when it was seen, how old it was then (seconds)."""

Sink = Callable[[dict[str, Any]], None]


class Job:
    """What a contender is to do: the JSON in its first argument."""

    def __init__(self, text: str) -> None:
        given = json.loads(text)
        self.text = text
        self.work: str = given["work"]
        self.bootstrap: str = given["bootstrap"]
        self.topic: str = given["topic"]
        self.group: str = given["group"]
        self.folder: str = given["folder"]
        """Where it leaves its counts and notes, and may keep what it needs after a restart."""
        self.url: str = given.get("url", "")
        self.options: dict[str, Any] = given["options"]
        self.client: dict[str, Any] = given["options"].get("client", {})
        """More settings of the Kafka client."""

    def option(self, name: str, default: Any = None) -> Any:
        return self.options.get(name, default)


def read_job() -> Job:
    return Job(sys.argv[1])


def say_ready() -> None:
    """Tell the harness that everything is loaded and the consumer will be made now."""
    print("ready", flush=True)


# --- sinks


class Tally:
    """Counts records and adds up their ids, in a file that a reader sees at once and that survives a kill -9.

    Two cells per process, because adding is no atomic thing between processes. Not for several threads.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._cells: memoryview | None = None
        os.register_at_fork(after_in_child=self._forget)

    def see(self, record: dict[str, Any]) -> None:
        cells = self._cells
        if cells is None:
            cells = self._open()
        cells[0] += 1
        cells[1] += record["id"]

    def _open(self) -> memoryview:
        path = f"{self._folder}/{os.getpid()}-{id(self)}.tally"
        handle = os.open(path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(handle, 16)
        self._cells = memoryview(mmap.mmap(handle, 16)).cast("B").cast("q")
        os.close(handle)
        return self._cells

    def _forget(self) -> None:
        self._cells = None

    def __reduce__(self) -> tuple[Any, ...]:
        return tally_of, (self._folder,)


_TALLIES: dict[str, Tally] = {}


def tally_of(folder: str) -> Tally:
    """One per process and folder: it may be sent to a worker many times."""
    return _TALLIES.setdefault(folder, Tally(folder))


class Notes:
    """Notes every record with its time, one write each: in the file before the next record is begun."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file = -1

    def see(self, record: dict[str, Any]) -> None:
        if self._file < 0:
            # Appending so few bytes is one deed, also where several processes do it.
            self._file = os.open(f"{self._folder}/notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        now = time.time()
        os.write(self._file, NOTE.pack(record["id"], now, now - record["at"]))

    def __reduce__(self) -> tuple[Any, ...]:
        return notes_of, (self._folder,)


_NOTES: dict[str, Notes] = {}


def notes_of(folder: str) -> Notes:
    return _NOTES.setdefault(folder, Notes(folder))


class Posts:
    """Sends every record to the slow server, over one connection per thread."""

    def __init__(self, url: str) -> None:
        self._address = url.removeprefix("http://").partition("/")[0]
        self._own = threading.local()

    def see(self, record: dict[str, Any]) -> None:
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = http.client.HTTPConnection(self._address)
        connection.request("POST", "/x", json.dumps(record), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"the server answered {answer.status}")

    def __reduce__(self) -> tuple[Any, ...]:
        return posts_of, (f"http://{self._address}/x",)


_POSTS: dict[str, Posts] = {}


def posts_of(url: str) -> Posts:
    return _POSTS.setdefault(url, Posts(url))


def sink_of(job: Job) -> Sink:
    """Return what is called for each decoded record."""
    if job.work in ("A", "E"):
        return tally_of(job.folder).see
    if job.work == "B":
        return posts_of(job.url).see
    return notes_of(job.folder).see


# --- being asked to end


class Stop:
    """Set by SIGTERM: end in order, and commit what is done."""

    def __init__(self) -> None:
        self._event = threading.Event()
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, _signal: int, _frame: FrameType | None) -> None:
        self._event.set()

    @property
    def asked(self) -> bool:
        return self._event.is_set()

    def wait(self) -> None:
        while not self._event.wait(0.1):  # in slices: a signal is heard between them
            pass
