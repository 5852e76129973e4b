"""A user's exception as plain text, which need not survive a trip between processes."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from pathlib import Path

from tidegate.context import Message
from tidegate.records import Failure, Partition

TRACEBACK_CHARACTERS = 8000
MESSAGE_CHARACTERS = 2000

logger = logging.getLogger("tidegate.record")

_PACKAGE = str(Path(__file__).parents[1])


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
        failure.message[:200],
        extra={"action": "record_left"},
    )


def readable(make: Callable[[], str]) -> str:
    """Users' exceptions may fail while they are turned into text, or give text that is not UTF-8."""
    try:
        return make().encode("utf-8", "replace").decode()
    except Exception as error:  # noqa: BLE001  # their __str__ may raise anything
        return f"(no text: {type(error).__name__} in its __str__)"


def _trace(error: BaseException) -> str:
    """Leave out the calls that led to the user's function: they are ours, and always the same."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None and step.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        step = step.tb_next
    return "".join(traceback.format_exception(type(error), error, step))
