"""The work of one lease: read, run, wait for what has to wait, until a limit is reached."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from tidegate.context import Hand, Message
from tidegate.engine.books import Books
from tidegate.engine.failure import reason
from tidegate.engine.work import Tools, Work
from tidegate.kafka.reader import Reader, ReadFailed
from tidegate.records import Lease, Limits, Outcome

NO_LIMIT = 1_000_000_000
NO_SLICE_SECONDS = 3600.0
LIVE_SLICE_SECONDS = 0.05
"""Longest wait for a record in a live round, so that "finish now" is heard at once."""
SHORT_WAIT_SECONDS = 1.0
"""A round in which nothing can be done for longer than this ends: its lane may have other work."""


class Round:
    """One round. `work_through` runs in the work thread; the watching thread may call the rest."""

    def __init__(self, lease: Lease, tools: Tools, reader: Reader, take_in_hand: Callable[[Hand | None], None]) -> None:
        self.limits = lease.limits
        self.hand = tools.hand
        self._lease = lease
        self._reader = reader
        self._take_in_hand = take_in_hand
        order = tools.plan.order
        self._books = Books(lease, in_partition_order=order == "partition")
        self._work = Work(lease, tools, reader, self._books)
        self._broken: str | None = None
        self._unreadable: str | None = None
        self._slice_seconds = NO_SLICE_SECONDS
        self._woken = threading.Event()

    def stop_reading(self) -> None:
        """Begin no more records. Safe from any thread."""
        self._work.is_stopping = True
        self._woken.set()

    def work_through(self) -> None:
        """Read and settle until a limit is reached. Never raises."""
        self._take_in_hand(self.hand)
        try:
            marks = {partition: ledger.mark for partition, ledger in self._books.ledgers.items()}
            self._reader.begin(marks, self._lease.era)
            self._read_on()
            self._work.leave()
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
        while begun < limit and not self._work.is_stopping and not self._books.is_finished(self._reader.lost):
            now = time.monotonic()
            if now >= began + self.limits.read_seconds:
                return
            if ran := self._work.run_waiting():
                begun += ran
                last_record = time.monotonic()
                continue
            if self._work.is_starved:
                if self._slice_seconds == NO_SLICE_SECONDS:
                    return  # a plain round hears of no more permits
                last_record = now
                self._woken.wait(LIVE_SLICE_SECONDS)
                continue
            silence = self.limits.quiet_seconds if begun else self.limits.idle_seconds
            wait = min(last_record + silence, began + self.limits.read_seconds) - now
            next_start = self._work.next_start
            if self._work.may_read:
                if wait <= 0:
                    return
                until_start = NO_SLICE_SECONDS if next_start is None else max(0.0, next_start - now)
                batch = self._reader.read(limit - begun, min(wait, until_start, self._slice_seconds))
                if batch:
                    begun += self._work.run(batch)
                    last_record = time.monotonic()
                self._pass_gaps()
            elif next_start is None or (next_start - now > SHORT_WAIT_SECONDS and not self._work.holding.is_on):
                return
            else:
                last_record = now  # it waits for its own records: that is no silence
                self._woken.wait(max(0.0, min(next_start, began + self.limits.read_seconds) - now))

    def _pass_gaps(self) -> None:
        """Where the end of a log was reached, markers and gaps before it hold nothing."""
        for partition, end in self._reader.take_ends(self._work.unfinished).items():
            self._books.reach(partition, end)

    def go_live(self, limits: Limits) -> None:
        """Go on for longer: the driver hears what is settled while the round runs, and can end it."""
        self.limits = limits
        self._slice_seconds = LIVE_SLICE_SECONDS

    def learn(self, proofs: list[int], permits: int) -> None:
        """Take what the driver knows of records that got through in other lanes, and how many may begin."""
        self._work.holding.learn(proofs)
        if self._work.turnstile is not None:
            self._work.turnstile.grant(permits)

    def report(self) -> Outcome | None:
        """What is settled by now; None if nothing has changed since the last report."""
        outcome = self._books.report(self.hand.message, self._reader.lost)
        return None if outcome is None else self._work.add_counts(outcome)

    def give_up(self, message: Message | None) -> bool:
        """Close the books because this record's attempt takes too long; False if it has just ended."""
        return self._work.give_up(message, self.limits.attempt_seconds)

    def outcome(self, seconds: float, *, has_resources: bool) -> Outcome:
        """What this round brings back."""
        return replace(
            self._work.add_counts(self._books.outcome(self._reader.lost)),
            seconds=seconds,
            broken=self._broken,
            unreadable=self._unreadable,
            holds_resources=has_resources,
        )
