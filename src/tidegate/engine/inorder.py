"""Runs records one after the other, in the work thread itself.

Where nothing has failed and nothing waits, a batch runs in one plain loop: the hot path. Otherwise each record
is looked at first: is it settled already, does one before it wait, is it due, what has it been through.
"""

from __future__ import annotations

import time
from typing import Any

from tidegate.context import Hand, Message
from tidegate.engine.attempts import Attempt, timed_out
from tidegate.engine.books import Books, place
from tidegate.engine.fates import Tools
from tidegate.engine.vault import Pending, Vault
from tidegate.engine.work import Work
from tidegate.errors import NeverAwaited
from tidegate.kafka.reader import Reader
from tidegate.records import Lease
from tidegate.steps import Runner

LOT_SECONDS = 0.1
"""How long records are run before they are handed to a store together."""


class InOrder(Work):
    """One record at a time."""

    def __init__(self, lease: Lease, tools: Tools, reader: Reader, books: Books, hand: Hand) -> None:
        self._runner = Runner(tools.plan, hand)
        super().__init__(lease, tools, reader, books, self._runner.taken)
        self._hand = hand
        self._stopwatch = _Stopwatch()

    @property
    def is_busy(self) -> bool:
        """Never: a record that was begun has ended when `run` returns."""
        return False

    def finish(self) -> None:
        """Nothing runs beside the loop."""

    def abandon(self) -> None:
        """Nothing runs beside the loop."""

    def wait(self, seconds: float) -> None:
        """Nothing runs beside the loop."""

    def run(self, batch: list[Message]) -> int:
        """Run records in this order, until told to stop; return how many were begun."""
        books, fates = self._books, self.fates
        # What a store is to take is not settled when it was run: then nobody may settle by the batch.
        books.open_batch(batch if self._vault is None else [])
        has_own = bool(fates.own) and any(message.topic() in fates.own for message in batch)
        is_paced = self.turnstile is not None
        at = 0
        while at < len(batch) and self._may_begin():
            is_known = not (has_own or is_paced or fates.waiting or books.failures)
            if not is_known or self.holding.is_probing or books.needs_look:
                books.pass_one(at + 1)
                attempt = fates.look_at(batch[at])
                at += 1
                if attempt is not None:
                    self._attempt(attempt)
                else:
                    self._begin_nothing()
                continue
            if self._vault is None:
                count, error = self._run_on(batch, at)
                at += count
                self._hand.message = None
                books.settle_batch(at)
            else:
                count, error = self._run_for_store(batch, at, self._vault)
                at += count
                self._hand.message = None
            if isinstance(error, NeverAwaited):
                raise error  # no record is to blame: the pipeline itself cannot work
            if error is not None and not books.is_closed:
                books.pass_one(at + 1)
                self._fail(Attempt(batch[at]), error, noting=self._runner.tracks_progress)
                at += 1
        if not books.is_closed:
            self._keep(batch[at:])
            self._tools.copier.settle_all()
        return at

    def _run_on(self, batch: list[Message], start: int) -> tuple[int, BaseException | None]:
        """Run the steps: the hot path. Return how many records are settled, and why the next is not."""
        run, hand = self._runner.run, self._hand
        self._runner.resume(frozenset())
        handled = 0
        try:
            for message in batch[start:] if start else batch:
                if self.is_stopping:
                    break
                hand.message = message
                run(message.value())
                handled += 1
        except BaseException as error:  # noqa: BLE001  # whatever a user's function raises fails its record, no more
            return handled, error
        return handled, None

    def _run_for_store(self, batch: list[Message], start: int, vault: Vault) -> tuple[int, BaseException | None]:
        """The same where a store takes what the sinks make of a record: lots of records go there together."""
        run, hand, now = self._runner.run, self._hand, time.monotonic
        has_others = self._runner.has_others
        self._runner.resume(frozenset())
        handled, lot = 0, []
        goes_at = now() + LOT_SECONDS
        failure: BaseException | None = None
        try:
            for message in batch[start:] if start else batch:
                if self.is_stopping:
                    break
                hand.message = message
                outputs: list[Any] = []
                hand.outputs = outputs
                run(message.value())
                pending = Pending(outputs, message)
                if has_others:  # they have it, whatever the store says
                    pending.done = self._runner.done
                lot.append(pending)
                handled += 1
                if now() >= goes_at:
                    self._hand_over(lot, vault)
                    lot = []
                    goes_at = now() + LOT_SECONDS
        except BaseException as error:  # noqa: BLE001  # as above
            failure = error
        self._hand_over(lot, vault)
        return handled, failure

    def _hand_over(self, lot: list[Pending], vault: Vault) -> None:
        if lot:
            self._books.take([pending.message for pending in lot])
            vault.put(lot)

    def _keep(self, rest: list[Message]) -> None:
        """What had waited is older than what is in the backlog: to put it back now would turn the two around."""
        self._backlog = rest + self._backlog

    def _attempt(self, attempt: Attempt) -> None:
        self._hand.copy, self._hand.attempt = attempt.copy, attempt.number
        self._runner.resume(attempt.done)
        self._hand.message, self._hand.outputs = attempt.message, []
        taken = self._runner.taken_by_me
        try:
            self._runner.run_noting(attempt.message.value())
        except NeverAwaited:
            raise  # no record is to blame: the pipeline itself cannot work
        except BaseException as error:  # noqa: BLE001  # whatever a user's function raises fails its record, no more
            self._hand.message = None
            self._fail(attempt, error, noting=True)
        else:
            self._hand.message = None
            took_effect = self._runner.taken_by_me > taken
            self.fates.succeeded(attempt, self._runner.done, took_effect=took_effect, outputs=self._hand.outputs)
        self._hand.copy, self._hand.attempt = None, 1

    def _fail(self, attempt: Attempt, error: BaseException, *, noting: bool) -> None:
        done = self._runner.done if noting else frozenset()
        sink = self._runner.at_sink if noting else -1
        self._runner.resume(frozenset())
        self._hand.suffix = ""
        self.fates.failed(attempt, error, done, sink)

    # --- for the watching thread

    def give_up_late(self) -> bool:
        """Close the books if the record in hand takes too long: its thread cannot be stopped."""
        message = self._stopwatch.look(self._hand, self._attempt_seconds)
        if message is None:
            return False
        note = timed_out(
            Attempt(message, note=self._books.note_for(place(message), message.offset())), self._attempt_seconds
        )
        if not self._books.close_at(message, self._hand, note, self._runner.done):
            return False
        self.is_healthy = False
        self.is_stopping = True
        return True


class _Stopwatch:
    """Tells how long one attempt at one record has been going on: the hot path notes no time."""

    def __init__(self) -> None:
        self._message: Message | None = None
        self._number = 0
        self._since = 0.0

    def look(self, hand: Hand, limit_seconds: float) -> Message | None:
        """Return the record in hand, if it has been there for longer than this."""
        message, number, now = hand.message, hand.attempt, time.monotonic()
        if message is not self._message or number != self._number:
            self._message, self._number, self._since = message, number, now
            return None
        return message if now - self._since >= limit_seconds else None
