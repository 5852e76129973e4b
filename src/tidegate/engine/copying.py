"""Copies of failed records, written by the worker that saw them fail.

A record is settled by the broker's acknowledgement of its copy and by nothing else. Copies are sent as they
come and waited for at the end of a batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.context import Message
from tidegate.copies import Copy, Origin, failed_again, record_headers, write_headers
from tidegate.errors import BrokerUnreachable, TidegateError
from tidegate.headers import readable_headers
from tidegate.names import delay_of, duration_name
from tidegate.records import ABSENT_MS, Done, Failure
from tidegate.store import Outgoing

if TYPE_CHECKING:
    from tidegate.kafka.writer import Ack, Writer

MOST_ON_THE_WAY = 500
ANSWER_SECONDS = 12.0
"""The writer gives up on a copy after ten; then it is sent again."""


@dataclass(frozen=True)
class Failed:
    """A record on its way to another topic, and why."""

    message: Message
    before: Copy | None
    """What its headers say, where it is a copy itself."""
    failure: Failure
    done: Done
    topic: str
    replay: int = 0
    """The number of the rewind that let it run again, where one did."""


class Copier:
    """Sends copies and tells what became of them, from inside `send` and `settle_all`."""

    def __init__(
        self, group: str, sinks: str, partitions: Mapping[str, int], open_writer: Callable[[], Writer]
    ) -> None:
        self._group = group
        self._sinks = sinks
        self._partitions = partitions
        self._open_writer = open_writer
        self._on_the_way = 0

    def send(self, failed: Failed, answered: Callable[[Failed, TidegateError | None], None]) -> None:
        """Write a copy; `answered` hears once that it is written, or why not."""
        try:
            writer = self._open_writer()
        except TidegateError as error:
            answered(failed, error)
            return
        self._on_the_way += 1

        def on_ack(ack: Ack) -> None:
            self._on_the_way -= 1
            answered(failed, ack.error)

        copy = self.copy_of(failed)
        writer.send(copy.topic, copy.value, copy.key, copy.headers, partition=copy.partition, on_ack=on_ack)
        if self._on_the_way >= MOST_ON_THE_WAY:
            self.settle_all()

    def poll(self) -> None:
        """Take the answers that have come, without waiting."""
        if self._on_the_way:
            self._open_writer().poll()

    def settle_all(self) -> None:
        """Wait until every copy has its answer."""
        if self._on_the_way:
            self._open_writer().flush(ANSWER_SECONDS)

    def copy_of(self, failed: Failed) -> Outgoing:
        """Return the copy as it is to be written."""
        own = readable_headers(failed.message)
        headers = write_headers(self._noted(failed), own if failed.before is None else record_headers(own))
        origin = failed.message.partition() if failed.before is None else failed.before.origin.partition
        partition = origin % self._partitions.get(failed.topic, 1)
        return Outgoing(failed.topic, failed.message.value(), failed.message.key(), tuple(headers), partition)

    def _noted(self, failed: Failed) -> Copy:
        message, failure = failed.message, failed.failure
        delay = delay_of(failed.topic, self._group)
        return failed_again(
            failed.before or first_copy(message, self._group, failed.replay),
            at_ms=int(time.time() * 1000),
            place=f"{failure.partition}:{failure.record_offset}",
            attempts=failure.attempts,
            error_type=failure.error_type,
            message=failure.message,
            traceback=failure.traceback,
            delay=duration_name(delay) if delay else None,
            done=failed.done,
            sinks=self._sinks,
        )


def first_copy(message: Message, group: str, replay: int) -> Copy:
    """Return what the first copy of a record starts from."""
    kind, milliseconds = message.timestamp()
    topic, number, record_offset = message.topic(), message.partition(), message.offset()
    return Copy(
        Origin(topic, number, record_offset, milliseconds if kind and milliseconds != ABSENT_MS else None),
        f"{group}:{topic}:{number}:{record_offset}",
        replay=replay,
    )


def may_pass(error: TidegateError) -> bool:
    """Whether the same copy may be taken later: no answer came. A refusal stays one."""
    return isinstance(error, BrokerUnreachable)
