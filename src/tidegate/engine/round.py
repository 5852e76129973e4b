"""The work of one lease: records in order, marks as far as everything is settled."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable

from tidegate.context import Hand, Message
from tidegate.errors import TimedOut
from tidegate.kafka.reader import Reader, ReadFailed
from tidegate.ledger import Ledger
from tidegate.records import Failure, Lease, Limits, Outcome, Partition, PartitionOutcome
from tidegate.steps import Runner

TRACEBACK_CHARACTERS = 8000
MESSAGE_CHARACTERS = 2000
NO_LIMIT = 1_000_000_000
NO_SLICE_SECONDS = 3600.0
LIVE_SLICE_SECONDS = 0.05
"""Longest wait for a record in a live round, so that "finish now" is heard at once."""


class Round:
    """One round. `work_through` runs in the work thread; the watching thread may call the rest."""

    def __init__(
        self, lease: Lease, runner: Runner, reader: Reader, hand: Hand, take_in_hand: Callable[[Hand | None], None]
    ) -> None:
        self.limits = lease.limits
        self.hand = hand
        self.stop_reading = False
        """Set from outside: begin no more records."""
        self._lease = lease
        self._runner = runner
        self._reader = reader
        self._take_in_hand = take_in_hand
        self._ledgers = {item.partition: Ledger(item.position) for item in lease.partitions}
        self._until = {item.partition: item.until for item in lease.partitions}
        self._failures: dict[Partition, Failure] = {}
        self._settled = 0
        self._broken: str | None = None
        self._unreadable: str | None = None
        self._batch: list[Message] = []
        self._booked = 0
        """How many of the batch are in the books already, by a live report."""
        self._slice_seconds = NO_SLICE_SECONDS
        self._reported: object = None
        # Held while the books are written: the watching thread may close them at the same moment.
        self._books = threading.Lock()
        self._is_closed = False
        # Only where an earlier attempt left something behind does each record have to be looked up.
        self._looks_up = any(item.position.ahead or item.position.done for item in lease.partitions)

    def work_through(self) -> None:
        """Read and settle until a limit is reached. Never raises."""
        self._take_in_hand(self.hand)
        try:
            marks = {partition: ledger.mark for partition, ledger in self._ledgers.items()}
            self._reader.begin(marks, self._lease.era)
            self._read_on()
        except ReadFailed as error:
            self._unreadable = str(error)
        except Exception as error:  # noqa: BLE001  # reported with the outcome: what was settled still counts
            self._broken = reason(error)
        finally:
            self._take_in_hand(None)

    def _read_on(self) -> None:
        began = last_record = time.monotonic()
        begun = 0
        limit = self.limits.records or NO_LIMIT
        while begun < limit and not self.stop_reading and not self._is_finished():
            now = time.monotonic()
            silence = self.limits.quiet_seconds if begun else self.limits.idle_seconds
            wait = min(last_record + silence, began + self.limits.read_seconds) - now
            if wait <= 0:
                return
            batch = self._reader.read(limit - begun, min(wait, self._slice_seconds))
            if batch:
                begun += self._work_on(batch)
                last_record = time.monotonic()
            self._pass_gaps()

    def _work_on(self, batch: list[Message]) -> int:
        """Run a batch in order and write the books; return how many records were begun."""
        with self._books:
            self._batch, self._booked = batch, 0
        handled, error = self._run_looking_up(batch) if self._looks_up else self._run(batch)
        self.hand.message = None
        with self._books:
            if self._is_closed:
                return handled
            self._batch = []
            self._settle(batch[self._booked : handled])
            rest = batch[handled:]
            if error is not None:
                self._fail(rest[0], error, self._runner.done)
                rest = [message for message in rest if place(message) not in self._failures]
        self._reader.put_back(rest)
        return handled + (error is not None)

    def _run(self, batch: list[Message]) -> tuple[int, BaseException | None]:
        """Run the steps: the hot path. Return how many records are settled, and why the next is not."""
        run, hand = self._runner.run, self.hand
        handled = 0
        try:
            for message in batch:
                if self.stop_reading:
                    break
                hand.message = message
                run(message.value())
                handled += 1
        except BaseException as error:  # noqa: BLE001  # whatever a user's function raises fails its record, no more
            return handled, error
        return handled, None

    def _run_looking_up(self, batch: list[Message]) -> tuple[int, BaseException | None]:
        """Run the steps where some records were settled, or half done, by an earlier attempt."""
        handled = 0
        try:
            for message in batch:
                if self.stop_reading:
                    break
                ledger, record_offset = self._ledgers[place(message)], message.offset()
                if not ledger.is_settled(record_offset):
                    self.hand.message = message
                    self._runner.resume(ledger.done(record_offset))
                    self._runner.run(message.value())
                handled += 1
        except BaseException as error:  # noqa: BLE001  # as above
            return handled, error
        return handled, None

    def _settle(self, messages: list[Message]) -> None:
        """Everything up to the last of these is settled, per partition."""
        self._settled += len(messages)
        last = {(message.topic(), message.partition()): message for message in messages}
        for (topic, number), message in last.items():
            partition = Partition(topic, number)
            self._ledgers[partition].settle_through(message.offset() + 1)
            self._reader.stand_at(partition, message.offset() + 1)

    def _fail(self, message: Message, error: BaseException, done: frozenset[tuple[int, int]]) -> None:
        partition = place(message)
        self._failures[partition] = Failure(
            partition,
            message.offset(),
            type(error).__name__,
            _readable(lambda: str(error))[:MESSAGE_CHARACTERS],
            _readable(lambda: "".join(traceback.format_exception(error)))[-TRACEBACK_CHARACTERS:],
        )
        self._ledgers[partition].reach(message.offset())
        self._ledgers[partition].note_done(message.offset(), done)
        self._reader.stop(partition)

    def _pass_gaps(self) -> None:
        """Where the end of a log was reached, markers and gaps before it hold nothing."""
        for partition, end in self._reader.take_ends().items():
            with self._books:
                if partition in self._ledgers and partition not in self._failures:
                    self._ledgers[partition].reach(end)
                    self._reader.stand_at(partition, end)

    def _is_finished(self) -> bool:
        """Whether nothing of this lease is left to do: every partition failed, lost, or as far as it should be."""
        for partition, ledger in self._ledgers.items():
            until = self._until[partition]
            if partition in self._failures or partition in self._reader.lost:
                continue
            if until is None or ledger.mark < until:
                return False
        return True

    def go_live(self, limits: Limits) -> None:
        """Go on for longer: the driver hears what is settled while the round runs, and can end it."""
        self.limits = limits
        self._slice_seconds = LIVE_SLICE_SECONDS

    def report(self) -> Outcome | None:
        """What is settled by now; None if nothing has changed since the last report."""
        with self._books:
            self._book_up_to(self.hand.message)
            outcome = self.outcome(0.0, has_resources=False)
        if outcome.partitions == self._reported:
            return None
        self._reported = outcome.partitions
        return outcome

    def _book_up_to(self, message: Message | None) -> bool:
        """Settle what comes before this record in the batch in hand; False if it is not in there."""
        for at in range(self._booked, len(self._batch)):
            if self._batch[at] is message:
                self._settle(self._batch[self._booked : at])
                self._booked = at
                return True
        return False

    def give_up(self, message: Message | None) -> bool:
        """Close the books because this record's attempt takes too long; False if it has just ended."""
        with self._books:
            if message is None or self.hand.message is not message or not self._book_up_to(message):
                return False
            self._is_closed = True
            self.stop_reading = True
            seconds = self.limits.attempt_seconds
            self._fail(message, TimedOut(f"one attempt took longer than timeout={seconds:g}s"), self._runner.done)
            return True

    def outcome(self, seconds: float, *, has_resources: bool) -> Outcome:
        """What this round brings back."""
        partitions = tuple(
            PartitionOutcome(
                item.partition,
                item.epoch,
                self._ledgers[item.partition].position,
                self._failures.get(item.partition),
                self._reader.lost.get(item.partition),
            )
            for item in self._lease.partitions
        )
        return Outcome(
            lane=self._lease.lane,
            round=self._lease.round,
            partitions=partitions,
            settled=self._settled,
            seconds=seconds,
            broken=self._broken,
            unreadable=self._unreadable,
            holds_resources=has_resources,
        )


def place(message: Message) -> Partition:
    """Return where a message lies."""
    return Partition(message.topic(), message.partition())


def reason(error: BaseException) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {_readable(lambda: str(error))}"


def _readable(make: Callable[[], str]) -> str:
    """Users' exceptions may fail while they are turned into text, or give text that is not UTF-8."""
    try:
        return make().encode("utf-8", "replace").decode()
    except Exception as error:  # noqa: BLE001  # their __str__ may raise anything
        return f"(no text: {type(error).__name__} in its __str__)"
