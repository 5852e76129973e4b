"""A file that many processes append to: which record ran when and where, and which faults came between.

What was written stays written, whatever is killed a moment later.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeGuard

import orjson

from tidegate.context import current
from tidegate.records import Partition, Record

Kind = Literal["began", "settled"]
_LOOK_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Event:
    """One record in one process, at one moment."""

    kind: Kind
    partition: Partition
    record_offset: int
    stable_id: str
    key: bytes | None
    attempt: int
    at_ms: int
    """Wall clock, taken before the line was written."""
    pid: int
    """The Python worker."""
    process: str
    """A token of that worker: process ids come again, tokens do not."""
    driver: int
    """The process id of the program that built the pipeline: its driver."""
    run: str
    """A token of that program, one for each start."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that a test did to the run, noted just before it was done."""

    kind: str
    at_ms: int
    driver: int | None = None
    """The program that it ends, by process id."""
    worker: int | None = None
    """The Python worker that it ends, by process id. Neither: it may concern everything."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    lasts_ms: int = 0
    """How long what it struck may still work beside others, and be struck again: a frozen driver, for example."""
    partitions: tuple[Partition, ...] = ()
    """The partitions that it concerned; empty: it may have been all."""


@dataclass(frozen=True, slots=True)
class Rewind:
    """A rewind that somebody asked for, noted just before: records from `to` on may run again."""

    at_ms: int
    partition: Partition
    to: int


@dataclass(frozen=True, slots=True)
class Entries:
    """All that a record log holds, in the order in which it was written."""

    events: tuple[Event, ...]
    faults: tuple[Fault, ...]
    rewinds: tuple[Rewind, ...] = ()

    @property
    def settled(self) -> tuple[Event, ...]:
        """The events in which a record reached the end of its sink."""
        return tuple(event for event in self.events if event.kind == "settled")


class RecordLog:
    """Notes records from inside pipelines and faults from tests, in one file.

    Make one at the top of the program, next to the pipeline: `.map(log.began)`, `.sink(log.settled)`. It
    travels to the workers by its path; each opens the file for itself. The program that makes it is the
    run that its events name.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = str(path)
        self._driver = os.getpid()
        self._run = uuid.uuid4().hex[:8]

    @property
    def run(self) -> str:
        """The token of the program that made this log: one for each start."""
        return self._run

    def began(self, value: object) -> Any:  # whatever flows through the pipeline
        """Note that a record's work began, and pass its value on: for `map`."""
        self._note_record("began", current())
        return value

    def settled(self, value: object = None) -> None:
        """Note that a record reached its sink: for `sink`, or as the last thing that a sink does.

        Given a list of records, as `batch(..., records=True)` hands them on, it notes each of them.
        """
        for record in value if _is_of_records(value) else [current()]:
            self._note_record("settled", record)

    def fault(
        self,
        kind: str,
        *,
        driver: int | None = None,
        worker: int | None = None,
        lasts_seconds: float = 0.0,
        **facts: object,
    ) -> None:
        """Note a fault. Do it before causing it: what follows from the fault must not come before it."""
        self._write(
            {
                "kind": "fault",
                "fault": kind,
                "at_ms": _now_ms(),
                "driver": driver,
                "worker": worker,
                "facts": facts,
                "lasts_ms": round(lasts_seconds * 1000),
            }
        )

    def rewind(self, partition: Partition, to: int) -> None:
        """Note that a group is about to be moved back. Do it before asking for it."""
        self._write(
            {"kind": "rewind", "at_ms": _now_ms(), "topic": partition.topic, "partition": partition.number, "to": to}
        )

    def read(self) -> Entries:
        """Return everything noted so far."""
        events, faults, rewinds = [], [], []
        for line in filter(None, self._content().split(b"\n")):
            try:
                noted = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue  # a process was killed inside its write: that sink never returned
            if noted["kind"] == "fault":
                faults.append(_fault(noted))
            elif noted["kind"] == "rewind":
                place = Partition(noted["topic"], noted["partition"])
                rewinds.append(Rewind(noted["at_ms"], place, noted["to"]))
            else:
                events.append(_event(noted))
        return Entries(tuple(events), tuple(faults), tuple(rewinds))

    def count(self, kind: Kind = "settled", *, driver: int | None = None) -> int:
        """Return how many such events there are, of this program or of all: quick, for waiting."""
        start = b'{"kind":"%s",' % kind.encode()
        return self._content().count(start if driver is None else start + b'"driver":%d,' % driver)

    def wait_for_work(self, driver: int, within: float) -> bool:
        """Wait until this program begins a record (or settles one, if it does not note the other); so long at most.

        Where it has noted none so far, there is nothing to wait for.
        """
        known = self._content()
        starts = [b'{"kind":"%s","driver":%d,' % (kind, driver) for kind in (b"began", b"settled")]
        start = next((one for one in starts if one in known), None)
        deadline = time.monotonic() + within
        while start is not None and time.monotonic() < deadline:
            if start in self._content(len(known)):
                return True
            time.sleep(_LOOK_SECONDS)
        return False

    def _content(self, begin: int = 0) -> bytes:
        try:
            with Path(self.path).open("rb") as file:
                file.seek(begin)
                return file.read()
        except FileNotFoundError:
            return b""

    def _note_record(self, kind: Kind, record: Record) -> None:
        self._write(
            {
                "kind": kind,
                "driver": self._driver,
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "id": record.stable_id,
                "key": None if record.key is None else record.key.hex(),
                "attempt": record.attempt,
                "at_ms": _now_ms(),
                "run": self._run,
            }
            | _this_process()
        )

    def _write(self, noted: dict[str, object]) -> None:
        # The newline before: a process killed between two pages of its write leaves half a line behind, which
        # must not swallow the next one.
        line = b"\n" + orjson.dumps(noted) + b"\n"
        if os.write(_open(self.path), line) != len(line):
            raise OSError(f"{self.path} took only a part of a line: is the disk full?")


# Of this process alone: a fork must not write under its parent's name.
_tokens: dict[int, dict[str, object]] = {}
_files: dict[tuple[int, str], int] = {}


def _is_of_records(value: object) -> TypeGuard[list[Record]]:
    return isinstance(value, list) and all(isinstance(one, Record) for one in value)


def _this_process() -> dict[str, object]:
    pid = os.getpid()
    if pid not in _tokens:
        _tokens[pid] = {"pid": pid, "process": uuid.uuid4().hex[:8]}
    return _tokens[pid]


def _open(path: str) -> int:
    """Return this process's descriptor, opened once: every write goes to the file's end, whoever else writes."""
    place = (os.getpid(), path)
    if place not in _files:
        _files[place] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    return _files[place]


def _now_ms() -> int:
    return int(time.time() * 1000)


def _event(noted: dict[str, Any]) -> Event:
    return Event(
        kind=noted["kind"],
        partition=Partition(noted["topic"], noted["partition"]),
        record_offset=noted["offset"],
        stable_id=noted["id"],
        key=None if noted["key"] is None else bytes.fromhex(noted["key"]),
        attempt=noted["attempt"],
        at_ms=noted["at_ms"],
        pid=noted["pid"],
        process=noted["process"],
        driver=noted["driver"],
        run=noted["run"],
    )


def _fault(noted: dict[str, Any]) -> Fault:
    return Fault(noted["fault"], noted["at_ms"], noted["driver"], noted["worker"], noted["facts"], noted["lasts_ms"])
