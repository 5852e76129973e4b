"""The work of a round as its loop sees it: what there is to do now, later, and what is left at the end."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from dataclasses import replace

from tidegate.context import Message
from tidegate.engine.books import Books, place
from tidegate.engine.fates import LONG_QUEUE, Fates, Tools
from tidegate.engine.purse import Turnstile
from tidegate.errors import BrokerUnreachable, Unavailable
from tidegate.kafka.reader import Reader
from tidegate.records import Lease, Outcome, Partition
from tidegate.store import Overtaken

logger = logging.getLogger("tidegate.store")


DRAIN_SECONDS = 0.05


class Work(ABC):
    """The records of one round. Used by the work thread only, but for what says otherwise."""

    def __init__(self, lease: Lease, tools: Tools, reader: Reader, books: Books, taken: list[int]) -> None:
        self._lease = lease
        self._tools = tools
        self._reader = reader
        self._books = books
        self.fates = Fates(lease, tools, reader, books, taken)
        self.holding = self.fates.holding
        self._vault = self.fates.vault
        self.turnstile = None if lease.permits is None else Turnstile(tools.rate, lease.permits)
        self._attempt_seconds = lease.limits.attempt_seconds
        self._backlog: list[Message] = []
        """Read, not begun."""
        self._is_backlogs_turn = False
        self.is_stopping = False
        """Set from outside: begin no more records."""
        self.is_healthy = True
        """False: a thread is stuck in a user's function or in a client, and the worker must go."""

    # --- for the loop

    def begin(self) -> bool:
        """Find out where the partitions stand, where a store knows that best; False if it cannot be asked."""
        if self._vault is None:
            return True
        try:
            self._vault.begin(self._lease)
        except (Unavailable, BrokerUnreachable) as error:
            logger.warning("the store cannot be reached: %s", error, extra={"action": "store_away"})
            self.fates.store_is_away(self._lease, error)
            return False
        except Overtaken as error:
            logger.info("a round ends early: %s", error, extra={"action": "overtaken"})
            return False
        return True

    @abstractmethod
    def run(self, batch: list[Message]) -> int:
        """Begin records in this order, until told to stop; return how many were begun."""

    @abstractmethod
    def finish(self) -> None:
        """Wait for what was begun: each attempt has its own limit."""

    @abstractmethod
    def abandon(self) -> None:
        """The round ends by an error: let what runs beside the loop come to its end."""

    @property
    @abstractmethod
    def is_busy(self) -> bool:
        """Whether records are being run beside the loop."""

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Wait for the end of a record that is being run beside the loop, or so long."""

    @abstractmethod
    def give_up_late(self) -> bool:
        """Give up attempts that take too long; True if the round must end at once. For the watching thread."""

    @property
    def next_start(self) -> float | None:
        """When something that waits may be tried; None: nothing waits."""
        if self._backlog:
            return max(self.holding.until, 0.0 if self.turnstile is None else self.turnstile.next_start)
        due = self.fates.waiting.next_due
        return None if due is None else max(due, self.holding.until)

    @property
    def is_starved(self) -> bool:
        """Whether no record may begin because the rate was chosen so."""
        return self.turnstile is not None and self.turnstile.is_empty

    @property
    def may_read(self) -> bool:
        """Whether more records are wanted now."""
        if self._backlog or self.holding.until > time.monotonic() or self.waits_for_store:
            return False
        return bool(set(self._books.ledgers) - self.fates.blocked) and not self.fates.is_full

    @property
    def waits_for_store(self) -> bool:
        """Whether nothing may be begun before the store has taken something."""
        if self._vault is None:
            return False
        # While it is not known that the store is there, one record looks for it.
        return self._vault.is_full or (self.holding.is_probing and self._vault.is_busy)

    def wait_for_store(self, seconds: float) -> None:
        """Wait until the store has taken something, or so long."""
        if self._vault is not None:
            self._vault.wait(seconds)

    def run_waiting(self) -> int:
        """Run what has waited long enough; return how many records were begun."""
        self._take_answers()
        if self.holding.until > time.monotonic():
            return 0
        self.holding.try_again()
        # They take turns. What has waited is older and holds the mark, and a backlog may last for seconds; what is new
        # must not stand behind records that fail again and again.
        self._is_backlogs_turn = not self._is_backlogs_turn
        if self._backlog and self._is_backlogs_turn:
            return self._run_backlog()
        due = self.fates.due()
        if due:
            return self.run(due)
        return self._run_backlog() if self._backlog else 0

    def unfinished(self) -> set[Partition]:
        """Return the partitions of which records were read and are not through."""
        return self.fates.waiting.partitions | {place(message) for message in self._backlog}

    def drain(self) -> None:
        """Let the store take all that it can take now: the round ends."""
        while self._vault is not None and not self._vault.hurry():
            self._vault.wait(DRAIN_SECONDS)
            self._take_answers()
        self._take_answers()

    def close(self) -> None:
        """Let the store rest: the next round uses it too."""
        if self._vault is not None:
            self._vault.close()
            self.is_healthy = self.is_healthy and not self._vault.store.is_stuck

    def leave(self) -> None:
        """The round ends: what was not begun is for the next one."""
        self._tools.copier.settle_all()
        self._park_full()
        for partition, ledger in self._books.ledgers.items():
            self._reader.stand_at(partition, ledger.mark)
        stopped = self.fates.waiting.partitions | {p for p, one in self._books.ledgers.items() if one.has_open}
        self._put_back(self._backlog)
        for partition in stopped | set(self._books.failures):
            self._reader.stop(partition)

    def add_counts(self, outcome: Outcome) -> Outcome:
        """Return an outcome with what the sinks took and how many permits were used. For the watching thread too."""
        return replace(outcome, proofs=tuple(self.holding.proofs), spent=self.spent)

    @property
    def spent(self) -> int:
        """How many permits were used. For the watching thread too."""
        return 0 if self.turnstile is None else self.turnstile.spent

    # --- inside

    def _park_full(self) -> None:
        """Where nothing is read before what waits was tried, the next round could only read all of it once more.

        Of those that crowd the memory together, each that holds its share, so that some rest whatever crowds it.
        """
        waiting, left = self.fates.waiting, {place(message) for message in self._backlog}
        much = min(LONG_QUEUE, waiting.count / max(1, len(waiting.partitions)))
        is_held_up = self._vault is not None and self._vault.is_full and self._vault.is_held_up
        for partition, ledger in self._books.ledgers.items() if waiting else ():
            is_crowded = self.fates.is_crowded and waiting.length(partition) >= much
            first = waiting.first_due(partition) if ledger.is_full or is_crowded or is_held_up else None
            if first is not None and partition not in left:
                self._books.park(partition, first)

    def _take_answers(self) -> None:
        if self.fates.take_answers():
            self._tools.copier.settle_all()
        if self._vault is not None and self._vault.overtaken is not None:
            self.is_stopping = True

    def _may_begin(self) -> bool:
        """Take the permit to begin one more record, if there is one."""
        if self.is_stopping or self.holding.is_on:
            return False
        # Where the store itself waits for records that are open, one of these must not wait for the store.
        if self.waits_for_store and not (self._vault is not None and self._vault.is_held_up):
            return False
        return self.turnstile is None or self.turnstile.pass_one(time.monotonic())

    def _begin_nothing(self) -> None:
        """The record that was to begin waits, or is settled already: another may have its permit."""
        if self.turnstile is not None:
            self.turnstile.go_back()

    def _run_backlog(self) -> int:
        backlog, self._backlog = self._backlog, []
        return self.run(backlog)

    def _put_back(self, messages: list[Message]) -> None:
        self._reader.put_back([one for one in messages if place(one) not in self._books.failures])
