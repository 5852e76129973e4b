"""The broker's clock, as far as it is known for certain.

What is due in a retry topic is due by the broker's clock, by which it was written. No clock of this machine or
of the workers is compared with it: a note is written to the redrive topic, its acknowledgement tells the
broker's time, and a steady clock counts from there. The broker's time is at least what this says, so nothing
is ever early, and late only by the way of one acknowledgement. Where the cluster's brokers differ among
themselves, a record can be early by that difference.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tidegate.copies import clock_note
from tidegate.errors import BrokerRefused, BrokerUnreachable, TidegateError
from tidegate.kafka.writer import Ack, Writer

logger = logging.getLogger("tidegate.clock")

AGAIN_SECONDS = 3600.0
"""Steady clocks drift apart by a tenth of a second in this time, or less."""
WORTH_A_WORD_SECONDS = 5.0


class BrokerClock:
    """Knows a lower bound of the broker's time that is off by milliseconds."""

    def __init__(self, open_writer: Callable[[], Writer], topic: str, timeout_seconds: float) -> None:
        self._open_writer = open_writer
        self._topic = topic
        self._timeout = timeout_seconds
        self._ahead_ms: float | None = None
        self._asker = ThreadPoolExecutor(1, thread_name_prefix="clock")
        self._next = 0.0
        self._has_warned = False

    def read(self) -> None:
        """Ask the broker; raises why it will not take a note in that topic."""
        acks: list[Ack] = []
        writer = self._open_writer()
        writer.send(self._topic, None, headers=clock_note(), partition=0, on_ack=acks.append)
        writer.flush(self._timeout)
        now = time.monotonic()
        if not acks:
            raise BrokerUnreachable(f"no answer came from Kafka (writing to {self._topic})", "look whether it runs")
        if (error := acks[0].error) is not None:
            raise error
        if acks[0].appended_at_ms is None:  # then nothing would ever be due
            raise BrokerRefused(
                f"Kafka does not say when it wrote to {self._topic}",
                "set message.timestamp.type=LogAppendTime for that topic",
            )
        self._ahead_ms = acks[0].appended_at_ms - now * 1000
        self._compare(acks[0].appended_at_ms / 1000)
        self._next = now + AGAIN_SECONDS

    def look(self) -> None:
        """Ask again, beside the loop, if it is time to."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + AGAIN_SECONDS
            self._asker.submit(self._read_again)

    @property
    def now_ms(self) -> float | None:
        """The broker's time, or a little before."""
        return None if self._ahead_ms is None else time.monotonic() * 1000 + self._ahead_ms

    def close(self) -> None:
        """Ask no more."""
        self._asker.shutdown(wait=False)

    def _read_again(self) -> None:
        try:
            self.read()
        except TidegateError as error:
            logger.debug("the broker's clock cannot be read: %s", error, extra={"action": "clock_unread"})

    def _compare(self, broker_seconds: float) -> None:
        difference = time.time() - broker_seconds
        if abs(difference) > WORTH_A_WORD_SECONDS and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "this machine's clock is %.0f s %s the broker's: retries are not affected (they go by the broker's), "
                "times in logs and reports are",
                abs(difference),
                "ahead of" if difference > 0 else "behind",
                extra={"action": "clocks_differ"},
            )
