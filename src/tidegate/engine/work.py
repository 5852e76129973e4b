"""Runs records one after the other, and does with a failed one what the policy says.

Where nothing has failed and nothing waits, a batch runs in one plain loop: the hot path. Otherwise each record
is looked at first: is it settled already, does one before it wait, is it due, what has it been through.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidegate.context import Hand, Message
from tidegate.copies import Copy, is_note, read_headers
from tidegate.engine.books import Books, Note, place
from tidegate.engine.copying import Copier, Failed, may_pass
from tidegate.engine.failure import failure_of, say_where
from tidegate.engine.holding import Holding
from tidegate.engine.purse import Turnstile
from tidegate.engine.waiting import Queue, Waiting, queue_of
from tidegate.errors import CopyRefused, TidegateError, TimedOut, WorkerDied
from tidegate.kafka.reader import Reader
from tidegate.names import dead_topic, retry_topic
from tidegate.policy import Again, Later, Terminal, Verdict, decide
from tidegate.records import Done, Failure, Lease, Outcome, Partition, Tries
from tidegate.steps import Plan, Runner

COPY_AGAIN_SECONDS = 1.0
CLOCK_AGAIN_SECONDS = 1.0
LONG_QUEUE = 500
"""So many records of one partition may wait in memory before it is read no further."""

_SETTLED, _RETRIED, _DEAD, _SKIPPED, _AGAIN, _HELD = range(6)
"""Places in `Counts`."""


@dataclass(frozen=True)
class Tools:
    """What the work of a round is done with."""

    plan: Plan
    runner: Runner
    hand: Hand
    copier: Copier
    delays: Mapping[str, float]
    """The group's own topics that it reads: their delays, 0 for the redrive topic."""
    rate: float = 0.0
    """Records per second, where a lease carries permits."""


class Work:
    """The records of one round. Used by the work thread only, but for `stop` and `give_up`."""

    def __init__(self, lease: Lease, tools: Tools, reader: Reader, books: Books) -> None:
        self._tools = tools
        self._runner = tools.runner
        self._hand = tools.hand
        self._reader = reader
        self._books = books
        self._waiting: Waiting[Message] = Waiting()
        self._backlog: list[Message] = []
        """Read, not begun, because the lane holds."""
        self._own = {item.partition.topic for item in lease.partitions} & set(tools.delays)
        self._looks_up = books.has_news_of(lease)
        self._broker_ahead_ms = None if lease.broker_ms is None else lease.broker_ms - time.monotonic() * 1000
        failed_probes = max((one.tries.unavailable for item in lease.partitions for one in item.open), default=0)
        self.holding = Holding(tools.runner.taken, lease.proofs, failed_probes)
        self.turnstile = None if lease.permits is None else Turnstile(tools.rate, lease.permits)
        self._is_backlogs_turn = False
        self.is_stopping = False
        """Set from outside: begin no more records."""

    # --- what there is to do

    @property
    def next_start(self) -> float | None:
        """When something that waits may be tried; None: nothing waits."""
        if self._backlog:
            return max(self.holding.until, 0.0 if self.turnstile is None else self.turnstile.next_start)
        due = self._waiting.next_due
        return None if due is None else max(due, self.holding.until)

    @property
    def is_starved(self) -> bool:
        """Whether no record may begin because the rate was chosen so."""
        return self.turnstile is not None and self.turnstile.is_empty

    def add_counts(self, outcome: Outcome) -> Outcome:
        """Return an outcome with what the sinks took and how many permits were used."""
        spent = 0 if self.turnstile is None else self.turnstile.spent
        return replace(outcome, proofs=tuple(self.holding.proofs), spent=spent)

    @property
    def may_read(self) -> bool:
        """Whether more records are wanted now."""
        if self._backlog or self.holding.until > time.monotonic():
            return False
        blocked = {one for one in self._books.ledgers if self._waiting.blocked_until(one) is not None}
        return bool(set(self._books.ledgers) - blocked - set(self._books.failures)) and not self._is_full

    @property
    def _is_full(self) -> bool:
        return self._waiting.count > 10 * LONG_QUEUE or any(one.is_full for one in self._books.ledgers.values())

    def run_waiting(self) -> int:
        """Run what has waited long enough; return how many records were begun."""
        now = time.monotonic()
        if self.holding.until > now:
            return 0
        self.holding.try_again()
        # While a sink is away, records that wait and records that are new take turns in looking for it.
        self._is_backlogs_turn = not self._is_backlogs_turn
        backlog_first = not self.holding.is_probing or self._is_backlogs_turn
        if self._backlog and backlog_first:
            return self._run_backlog()
        due = self._waiting.take_due(now)
        if due:
            for partition in {place(message) for message in due}:
                self._books.unpark(partition)
                self._reader.release(partition)
            self._looks_up = True
            return self.run(due)
        return self._run_backlog() if self._backlog else 0

    def unfinished(self) -> set[Partition]:
        """Return the partitions of which records were read and are not through."""
        return self._waiting.partitions | {place(message) for message in self._backlog}

    def _run_backlog(self) -> int:
        backlog, self._backlog = self._backlog, []
        return self.run(backlog)

    def leave(self) -> None:
        """The round ends: what was not begun is for the next one."""
        self._tools.copier.settle_all()
        for partition, ledger in self._books.ledgers.items():
            self._reader.stand_at(partition, ledger.mark)
        stopped = self._waiting.partitions | {p for p, one in self._books.ledgers.items() if one.has_open}
        self._reader.put_back([one for one in self._backlog if place(one) not in self._books.failures])
        for partition in stopped | set(self._books.failures):
            self._reader.stop(partition)

    # --- a batch

    def run(self, batch: list[Message]) -> int:
        """Run records in this order, until told to stop; return how many were begun."""
        books = self._books
        books.open_batch(batch)
        has_own = bool(self._own) and any(message.topic() in self._own for message in batch)
        at = 0
        while at < len(batch) and not self.is_stopping and not self.holding.is_on:
            if self.turnstile is not None and not self.turnstile.pass_one(time.monotonic()):
                break
            if self._looks_up or has_own or self._waiting or self.holding.is_probing or self.turnstile is not None:
                books.pass_one(at + 1)
                self._look_at(batch[at])
                at += 1
                continue
            count, error = self._run_on(batch, at)
            at += count
            self._hand.message = None
            books.settle_batch(at)
            if error is not None and not books.is_closed:
                books.pass_one(at + 1)
                done = self._runner.done if self._runner.tracks_progress else frozenset()
                self._failed(batch[at], error, None, done)
                at += 1
        if not books.is_closed:
            self._keep(batch[at:])
            self._tools.copier.settle_all()
        return at

    def _run_on(self, batch: list[Message], start: int) -> tuple[int, BaseException | None]:
        """Run the steps: the hot path. Return how many records are settled, and why the next is not."""
        run, hand = self._runner.run, self._hand
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

    def _keep(self, rest: list[Message]) -> None:
        if (self.holding.is_on or self.turnstile is not None) and not self.is_stopping:
            self._backlog = rest + self._backlog
        else:
            self._reader.put_back([one for one in rest if place(one) not in self._books.failures])

    # --- one record

    def _look_at(self, message: Message) -> None:
        """Run one record, unless it is settled, has to wait, or has had its attempt already."""
        partition, record_offset = place(message), message.offset()
        if partition in self._books.failures:
            return
        if self._books.ledgers[partition].is_settled(record_offset):
            self._books.settle(message, quietly=True)
            return
        queue = self._queue(partition, message)
        blocking = self._waiting.blocks(partition, queue)
        if blocking is not None:
            self._wait_behind(blocking, message)
            return
        note = self._books.note_for(partition, record_offset)
        if note is not None and note.next_try > time.monotonic():
            self._wait(queue, message, note.next_try)
            return
        copy = None
        if partition.topic in self._own:
            headers = message.headers() or ()
            if is_note(headers):
                self._books.settle(message, quietly=True)
                return
            due = self._due(message)
            if due > time.monotonic():
                self._wait((partition, None), message, due)
                self._books.park(partition, due)
                return
            copy = read_headers(headers)
        if note is not None and note.failure is not None:
            self._go_on_with(message, note, note.failure, copy)
        else:
            self._attempt(message, note, copy)

    def _attempt(self, message: Message, note: Note | None, copy: Copy | None) -> None:
        tries = note.tries if note is not None else Tries()
        done = self._books.ledgers[place(message)].done(message.offset())
        if copy is not None and copy.sinks == self._tools.plan.fingerprint:
            done |= copy.done
        self._hand.copy = copy
        self._hand.attempt = 1 + tries.failed + (copy.attempt if copy is not None else 0)
        self._runner.resume(done)
        self._hand.message = message
        taken = sum(self._runner.taken)
        try:
            self._runner.run_noting(message.value())
        except BaseException as error:  # noqa: BLE001  # whatever a user's function raises fails its record, no more
            self._hand.message = None
            self._failed(message, error, note, self._runner.done)
        else:
            self._hand.message = None
            self._books.settle(message)
            if sum(self._runner.taken) > taken:  # a record that a filter dropped proves nothing
                self.holding.end()
        self._hand.copy, self._hand.attempt = None, 1

    # --- a record that failed

    def _failed(self, message: Message, error: BaseException, note: Note | None, done: Done) -> None:
        """Do what the policy says."""
        sink = self._runner.at_sink if self._runner.tracks_progress else -1
        self._runner.resume(frozenset())
        self._hand.suffix = ""
        if self._books.is_closed:
            return
        before = note.tries if note is not None else Tries()
        failure = failure_of(message, error, before.failed + 1)
        verdict = self._decide(message, error, note, sink)
        self._follow(message, verdict, failure, done, sink)

    def _decide(self, message: Message, error: BaseException, note: Note | None, sink: int) -> Verdict:
        tries = note.tries if note is not None else Tries()
        # The lane as a whole looks for the sink: its waits grow whichever record it looks with.
        tries = Tries(tries.failed, max(tries.unavailable, self.holding.failed_probes), tries.alone)
        seen = note.proofs if note is not None and note.tries.unavailable else None
        return decide(
            self._tools.plan.policy.row_for(type(error)),
            error,
            tries,
            waited=self._tools.delays.get(message.topic(), 0.0),
            others_go_on=seen is not None and self.holding.known(sink) > seen,
            jitter=random.random(),  # noqa: S311  # to spread retries, not to hide them
        )

    def _follow(self, message: Message, verdict: Verdict, failure: Failure, done: Done, sink: int) -> None:
        match verdict:
            case Again(wait, tries, is_hold):
                until = time.monotonic() + wait
                self._books.count(_HELD if is_hold else _AGAIN)
                note = Note(tries, until, sink, self.holding.known(sink))
                self._books.keep_open(message, note, done)
                self._wait(self._queue(place(message), message), message, until)
                if is_hold:
                    self.holding.hold(until)
            case Later(delay):
                self._send(message, failure, done, retry_topic(self._hand.group, delay))
            case Terminal("dead_letter"):
                self._send(message, failure, done, dead_topic(self._hand.group))
            case Terminal("skip"):
                self._books.settle(message, _SKIPPED)
                say_where(failure, "is skipped")
            case Terminal():
                self._stop_at(message, failure, done)

    def _go_on_with(self, message: Message, note: Note, failure: Failure, copy: Copy | None) -> None:
        """Decide about an attempt that failed outside of this worker, or write the copy that was decided on."""
        done = self._books.ledgers[place(message)].done(message.offset())
        self._hand.copy = copy
        if note.then:
            self._send(message, failure, done, note.then)
        else:
            kind = {"WorkerDied": WorkerDied, "TimedOut": TimedOut}.get(failure.error_type, Exception)
            verdict = self._decide(message, kind(failure.message), note, -1)
            self._follow(message, verdict, failure, done, -1)
        self._hand.copy = None

    def _stop_at(self, message: Message, failure: Failure, done: Done) -> None:
        self._books.fail(message, failure, done)
        self._waiting.drop([failure.partition])
        self._reader.stop(failure.partition)

    # --- copies

    def _send(self, message: Message, failure: Failure, done: Done, topic: str) -> None:
        """Write a copy. The record stays open until the broker has it."""
        self._books.keep_open(message, Note(Tries(), 0.0, failure=failure, then=topic), done)
        copy = self._hand.copy
        if copy is None and message.topic() in self._own:
            copy = read_headers(message.headers() or ())
        self._tools.copier.send(Failed(message, copy, failure, done, topic), self._answered)

    def _answered(self, failed: Failed, error: TidegateError | None) -> None:
        message = failed.message
        if error is None:
            self._books.settle(message, _DEAD if failed.topic == dead_topic(self._hand.group) else _RETRIED)
            say_where(failed.failure, f"is written to {failed.topic}")
            return
        if may_pass(error):
            until = time.monotonic() + COPY_AGAIN_SECONDS
            self._books.keep_open(message, Note(Tries(), until, failure=failed.failure, then=failed.topic))
            self._wait(self._queue(place(message), message), message, until)
            return
        reason = (
            f"its copy cannot be written to {failed.topic}: {error.happened} "
            f"(it failed with {failed.failure.error_type}: {failed.failure.message[:200]})"
        )
        self._stop_at(message, failure_of(message, CopyRefused(reason), failed.failure.attempts), failed.done)

    # --- waiting

    def _wait(self, queue: Queue, message: Message, until: float) -> None:
        self._books.keep_open(message)
        self._waiting.put(queue, message, until)

    def _wait_behind(self, queue: Queue, message: Message) -> None:
        partition, kind = queue
        if kind is not None:  # others of its partition go on: the ledger must know that this one does not
            self._books.keep_open(message)
        self._waiting.append(queue, message)
        if kind is None and self._waiting.length(partition) == LONG_QUEUE:
            self._reader.hold(partition)

    def _queue(self, partition: Partition, message: Message) -> Queue:
        return queue_of(self._tools.plan.order, partition, message.key(), message.offset())

    def _due(self, message: Message) -> float:
        """Return when a copy is due, by this process's steady clock: the broker's time of writing, and its delay."""
        delay = self._tools.delays[message.topic()]
        if not delay:
            return 0.0
        if self._broker_ahead_ms is None:  # the broker's time is not known yet: rather late than early
            return time.monotonic() + CLOCK_AGAIN_SECONDS
        _, written_ms = message.timestamp()
        return (written_ms - self._broker_ahead_ms) / 1000 + delay

    # --- for the watching thread

    def give_up(self, message: Message | None, attempt_seconds: float) -> bool:
        """Close the books because this record's attempt takes too long; False if it has just ended."""
        if message is None:
            return False
        error = TimedOut(f"one attempt took longer than timeout={attempt_seconds:g}s")
        note = self._books.note_for(place(message), message.offset())
        tries = note.tries if note is not None else Tries()
        given_up = Note(tries, 0.0, failure=failure_of(message, error, tries.failed + 1))
        if not self._books.close_at(message, self._hand, given_up, self._runner.done):
            return False
        self.is_stopping = True
        return True
