"""Log lines: text for people, or JSON for programs, one object per line, with what is known of record and run."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from tidegate.context import current_place

Format = Literal["text", "json"]

# What every log record has by itself; anything else is a field that somebody added with `extra`.
_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", None, None))) | {
    "message",
    "asctime",
    "taskName",
    "place",
}
_TRACE = "trace"
"""The field under which a trace comes that was made in another process."""


class JsonLines(logging.Formatter):
    """One JSON object per line: time (UTC), level, logger, message, then fields."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[Mapping[str, object]] = []
        """What is known of each run that goes on in this process; lines of several cannot be told apart."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        own: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        run = self.runs[0] if len(self.runs) == 1 else {}
        place = dict(zip(("topic", "partition", "offset"), current_place() or (), strict=False))
        added = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        trace = added.pop(_TRACE, "") or (self.formatException(record.exc_info) if record.exc_info else "")
        # What a line says of itself is nearer to it than what was true around it; nobody's field hides the first four.
        fields = {**own, **run, **place, **added, **own}
        return json.dumps({**fields, "exception": trace} if trace else fields, default=str)


class _PlaceOfRecord(logging.Filter):
    """Adds topic, partition and offset of the record in hand to a line of text."""

    def filter(self, record: logging.LogRecord) -> bool:
        place = current_place()
        record.place = f" {place[0]}[{place[1]}]@{place[2]}" if place else ""
        return True


class _NotOfPy4j(logging.Filter):
    """Leaves out what the line to Java says of itself where Java is gone, by the root logger: the run says so."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR or "py4j" not in Path(record.pathname).parts


def log_to_stderr(form: Format) -> None:
    """Let the lines of this process go to stderr, unless the program has chosen where they go."""
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
        handler.setFormatter(JsonLines() if form == "json" else text)
        handler.addFilter(_NotOfPy4j())
        root.addHandler(handler)
        root.setLevel(logging.INFO)
    logging.getLogger("py4j").setLevel(logging.ERROR)


@dataclass(frozen=True)
class WorkerLog:
    """How the lines of workers look: chosen by the driver, sent with each task."""

    level: int
    form: Format = "text"
    about: Mapping[str, object] = field(default_factory=dict)
    """What is known of the run."""

    def begin(self) -> None:
        """Give a worker's root logger its handler; a Spark worker has none. What users log goes the same way."""
        root = logging.getLogger()
        ours = [handler for handler in root.handlers if any(isinstance(one, _PlaceOfRecord) for one in handler.filters)]
        if root.handlers and not ours:
            return
        if not ours:
            ours = [logging.StreamHandler(sys.stderr)]
            ours[0].addFilter(_PlaceOfRecord())
            root.addHandler(ours[0])
            root.setLevel(self.level)
        if self.form == "text":
            ours[0].setFormatter(logging.Formatter("%(levelname)s %(name)s%(place)s: %(message)s"))
            return
        lines = JsonLines()
        lines.runs.append(self.about)
        ours[0].setFormatter(lines)


@contextmanager
def during_run(form: Format, about: Mapping[str, object]) -> Iterator[None]:
    """Name the run in every line of JSON while it goes on."""
    if form == "json":
        log_to_stderr(form)
    lines = _json_lines()
    for one in lines:
        one.runs.append(about)
    try:
        yield
    finally:
        for one in lines:
            one.runs.remove(about)


def tell(sentence: str, *, level: int = logging.INFO, fields: Mapping[str, object] | None = None) -> bool:
    """Write a sentence for people as a line of JSON, where that was chosen; return whether it was."""
    lines = _json_lines()
    if lines:
        record = logging.LogRecord("tidegate", level, "", 0, sentence, None, None)
        vars(record).update(fields or {})
        sys.stderr.write(lines[0].format(record) + "\n")
        sys.stderr.flush()
    return bool(lines)


def _json_lines() -> list[JsonLines]:
    found = [handler.formatter for handler in logging.getLogger().handlers]
    return [one for one in found if isinstance(one, JsonLines)]
