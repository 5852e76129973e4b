"""The work of one lease: read, run, wait for what has to wait, until a limit is reached."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from tidegate.context import Hand, Message, take_in_hand
from tidegate.engine.books import Books, place
from tidegate.engine.failure import reason
from tidegate.engine.fates import Tools
from tidegate.engine.inorder import InOrder
from tidegate.engine.parallel import Parallel
from tidegate.engine.pool import worker_pool
from tidegate.engine.work import Work
from tidegate.errors import TidegateError
from tidegate.kafka.reader import Reader, ReadFailed
from tidegate.records import Lease, Limits, Outcome, Partition

NO_LIMIT = 1_000_000_000
NO_SLICE_SECONDS = 3600.0
LIVE_SLICE_SECONDS = 0.05
"""Longest wait for a record in a live round, so that "finish now" is heard at once."""
BUSY_WAIT_SECONDS = 0.002
"""Longest wait for a record while others run beside: their ends must be noticed too."""
SHORT_WAIT_SECONDS = 1.0
"""A round in which nothing can be done for longer than this ends: its lane may have other work."""


class Round:
    """One round. `work_through` runs in the work thread; the watching thread may call the rest."""

    def __init__(self, lease: Lease, tools: Tools, reader: Reader) -> None:
        self.limits = lease.limits
        self._hand = Hand(tools.group)
        self._lease = lease
        self._reader = reader
        self._books = Books(lease, in_partition_order=tools.plan.order == "partition")
        self._work: Work
        if tools.plan.is_parallel:
            pool = worker_pool(tools.plan, tools.group, lease.limits.attempt_seconds)
            self._work = Parallel(lease, tools, reader, self._books, pool)
        else:
            self._work = InOrder(lease, tools, reader, self._books, self._hand)
        self._marks: dict[Partition, int] = {}
        """Where it began."""
        self._broken: str | None = None
        self._cure = ""
        self._unreadable: str | None = None
        self._is_live = False
        self.is_calling = False
        """Whether it may become a live one still: its call of the driver was not answered yet."""
        # What a store says must be heard soon, too.
        self._slice_seconds = NO_SLICE_SECONDS if tools.store is None else LIVE_SLICE_SECONDS
        self._woken = threading.Event()

    def stop_reading(self) -> None:
        """Begin no more records. Safe from any thread."""
        self._work.is_stopping = True
        self._woken.set()

    def work_through(self) -> None:
        """Read and settle until a limit is reached. Never raises."""
        take_in_hand(self._hand)
        try:
            if self._work.begin():
                self._marks = {partition: ledger.mark for partition, ledger in self._books.ledgers.items()}
                self._reader.begin(self._marks, self._lease.era)
                self._read_on()
                self._work.finish()
                self._work.drain()
                self._work.leave()
        except ReadFailed as error:
            self._unreadable = str(error)
        except TidegateError as error:
            self._broken, self._cure = error.happened, error.cure
        except BaseException as error:  # noqa: BLE001  # reported with the outcome: what was settled still counts
            self._broken = reason(error)
        finally:
            self._work.abandon()
            self._work.close()
            take_in_hand(None)

    def _read_on(self) -> None:
        began = last_record = time.monotonic()
        begun = 0
        limit = self.limits.records or NO_LIMIT
        while begun < limit and not self._work.is_stopping and not self._books.is_finished(self._reader.lost):
            now = time.monotonic()
            ends = began + self.limits.read_seconds
            if now >= ends:
                return
            ran = self._work.run_waiting()
            if not ran and self._work.may_read and not self._work.is_starved:
                silence = self.limits.quiet_seconds if begun else self.limits.idle_seconds
                wait = min(last_record + silence, ends) - now
                if wait <= 0:
                    return
                ran = self._read(limit - begun, wait)
            elif not ran:
                if not self._wait_for_work(ends):
                    return
                last_record = time.monotonic()  # it waits for its own records: that is no silence
            if ran:
                begun += ran
                last_record = time.monotonic()

    def _read(self, most: int, wait: float) -> int:
        """Read and begin records; return how many were begun."""
        next_start = self._work.next_start
        until_start = NO_SLICE_SECONDS if next_start is None else max(0.0, next_start - time.monotonic())
        most_wait = BUSY_WAIT_SECONDS if self._work.is_busy else self._slice_seconds
        batch = self._reader.read(most, min(wait, until_start, most_wait))
        if batch and self.limits.records == 1 and self._lies_behind_a_gap(batch[0]):
            self._reader.put_back(batch)
            self.stop_reading()
            return 0
        ran = self._work.run(batch) if batch else 0
        self._pass_gaps()
        return ran

    def _lies_behind_a_gap(self, message: Message) -> bool:
        """Whether this round of one record began at an offset that holds none; if so, its mark is moved to the record.

        The driver blames the record at the mark, should this worker be ended by it.
        """
        partition, record_offset = place(message), message.offset()
        self._books.reach(partition, record_offset)
        return self._marks[partition] < record_offset == self._books.ledgers[partition].mark

    def _wait_for_work(self, ends: float) -> bool:
        """Wait until something may be begun again; False if that takes so long that the round should end."""
        work, now = self._work, time.monotonic()
        if work.is_busy:
            work.wait(LIVE_SLICE_SECONDS)
            return True
        if work.waits_for_store:
            work.wait_for_store(LIVE_SLICE_SECONDS)
            return True
        if work.is_starved:
            self._woken.wait(LIVE_SLICE_SECONDS)
            return self.is_calling or self._is_live  # in this order: it is live before the call is over
        next_start = work.next_start
        if next_start is None or (next_start - now > SHORT_WAIT_SECONDS and not work.holding.is_on):
            return False
        self._woken.wait(max(0.0, min(next_start, ends) - now))
        return True

    def _pass_gaps(self) -> None:
        """Where the end of a log was reached, markers and gaps before it hold nothing."""
        for partition, end in self._reader.take_ends(self._work.unfinished).items():
            self._books.reach(partition, end)

    def go_live(self, limits: Limits) -> None:
        """Go on for longer: the driver hears what is settled while the round runs, and can end it."""
        # How many records it may begin is no matter of time: one that ends its worker is found by rounds of one record.
        self.limits = replace(limits, records=self.limits.records)
        self._is_live = True
        self._slice_seconds = LIVE_SLICE_SECONDS

    def learn(self, proofs: list[int], permits: int) -> None:
        """Take what the driver knows of records that got through in other lanes, and how many may begin."""
        self._work.holding.learn(proofs)
        if self._work.turnstile is not None:
            self._work.turnstile.grant(permits)

    def report(self) -> Outcome | None:
        """What is settled by now; None if nothing has changed since the last report."""
        outcome = self._books.report(self._hand.message, self._reader.lost, self._work.spent)
        return None if outcome is None else self._work.add_counts(outcome)

    def give_up_late(self) -> bool:
        """Give up attempts that take too long; True if the round must end at once."""
        return self._work.give_up_late()

    @property
    def is_healthy(self) -> bool:
        """False: a thread is stuck in a user's function, and the worker must go."""
        return self._work.is_healthy

    def outcome(self, seconds: float, *, has_resources: bool) -> Outcome:
        """What this round brings back."""
        return replace(
            self._work.add_counts(self._books.outcome(self._reader.lost)),
            seconds=seconds,
            broken=self._broken,
            cure=self._cure,
            unreadable=self._unreadable,
            holds_resources=has_resources,
        )
