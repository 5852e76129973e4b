"""A user's exception as plain text, which need not survive a trip between processes."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable
from pathlib import Path

from tidegate.context import Message
from tidegate.records import Failure, Partition

TRACEBACK_CHARACTERS = 8000
MESSAGE_CHARACTERS = 2000

logger = logging.getLogger("tidegate.record")

_PACKAGE = str(Path(__file__).parents[1])
_NOT_THEIRS = (_PACKAGE, "<frozen")
# Python's own modules and what is installed, wherever the workers have them.
_INSTALLED = re.compile(r"[/\\](?:lib[/\\]python3\.\d+|site-packages|dist-packages)[/\\]")
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
MOST_PLACES = 3


def failure_of(message: Message, error: BaseException, attempts: int) -> Failure:
    """Return a record's failure, with the trace of the user's own functions."""
    return failure_at(Partition(message.topic(), message.partition()), message.offset(), error, attempts)


def failure_at(partition: Partition, record_offset: int, error: BaseException, attempts: int) -> Failure:
    """Return the failure of a record that was not even read, or of one that was."""
    return Failure(
        partition,
        record_offset,
        type(error).__name__,
        readable(lambda: str(error))[:MESSAGE_CHARACTERS],
        readable(lambda: _trace(error))[-TRACEBACK_CHARACTERS:],
        attempts,
    )


def reason(error: BaseException) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {readable(lambda: str(error))}"


def say_where(failure: Failure, what: str) -> None:
    """Leave a line for each record that goes another way than into its sink."""
    logger.warning(
        "%s offset %d failed and %s: %s: %s",
        failure.partition,
        failure.record_offset,
        what,
        failure.error_type,
        failure.message[:200] + places(failure.traceback),
        extra={"action": "record_left", "trace": failure.traceback, **about(failure)},
    )


def about(failure: Failure) -> dict[str, object]:
    """Return a failure's place as fields of a log line."""
    return {
        "topic": failure.partition.topic,
        "partition": failure.partition.number,
        "offset": failure.record_offset,
    }


def places(trace: str) -> str:
    """Return the user's own lines of a trace, " (app.py line 8 in price)"; what is installed, and ours, is left out."""
    last = trace.rpartition("Traceback (most recent call last):")[2]
    theirs = [
        f"{Path(file).name} line {line} in {name}"
        for file, line, name in _FRAME.findall(last)
        if not file.startswith(_NOT_THEIRS) and not _INSTALLED.search(file)
    ]
    return f" ({', '.join(theirs[-MOST_PLACES:])})" if theirs else ""


def readable(make: Callable[[], str]) -> str:
    """Users' exceptions may fail while they are turned into text, or give text that is not UTF-8."""
    try:
        return make().encode("utf-8", "replace").decode()
    except BaseException as error:  # noqa: BLE001  # their __str__ may raise anything
        return f"(no text: {type(error).__name__} in its __str__)"


def _trace(error: BaseException) -> str:
    """Leave out the calls that led to the user's function: they are ours, and always the same."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None and step.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        step = step.tb_next
    return "".join(traceback.format_exception(type(error), error, step))
