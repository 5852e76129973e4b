"""What becomes of one record: may it run now, and where does it go when it failed.

Used by the work thread alone, whoever runs the records themselves.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.context import Message
from tidegate.copies import Copy, is_note, read_headers
from tidegate.engine.attempts import Attempt
from tidegate.engine.books import Books, Note, place
from tidegate.engine.copying import Copier, Failed, may_pass
from tidegate.engine.failure import failure_at, failure_of, say_where
from tidegate.engine.holding import Holding
from tidegate.engine.vault import Pending, Vault
from tidegate.engine.waiting import Queue, Waiting, queue_of
from tidegate.errors import CopyRefused, TidegateError, TimedOut, Unavailable, WorkerDied
from tidegate.headers import readable_headers
from tidegate.kafka.reader import Reader
from tidegate.ledger import Home
from tidegate.names import dead_topic, retry_topic
from tidegate.policy import Again, Later, Terminal, Verdict, decide
from tidegate.records import Done, Failure, Lease, Partition, Tries
from tidegate.steps import Plan
from tidegate.store import Store

COPY_AGAIN_SECONDS = STORE_AGAIN_SECONDS = CLOCK_AGAIN_SECONDS = 1.0
WRONG_CLOCK_SECONDS = 3600.0
"""A copy from further in the broker's future was written by a clock that was wrong: it would wait for years.

Less may be a clock that was set right since it was asked, which it is again within the hour.
"""
MOST_BYTES = 64_000_000
"""So many bytes may wait before nothing more is read."""
LONG_QUEUE = 500
"""So many records of one partition may wait in memory before it is read no further."""

_SETTLED, _RETRIED, _DEAD, _SKIPPED, _AGAIN, _HELD = range(6)
"""Places in `Counts`."""


@dataclass(frozen=True)
class Tools:
    """What the work of a round is done with."""

    plan: Plan
    group: str
    copier: Copier
    delays: Mapping[str, float]
    """The group's own topics that it reads: their delays, 0 for the redrive topic."""
    rate: float = 0.0
    """Records per second, where a lease carries permits."""
    store: Store | None = None
    """None where sinks have their effect when they are called."""


class Fates:
    """The records of one round, apart from running them."""

    def __init__(self, lease: Lease, tools: Tools, reader: Reader, books: Books, taken: list[int]) -> None:
        self._tools = tools
        self._reader = reader
        self._books = books
        self._taken = taken
        self.vault = None if tools.store is None else Vault(tools.store, books, _homes(lease, tools))
        self.waiting: Waiting[Message] = Waiting(lambda message: len(message.value() or b""))
        self.own = {item.partition.topic for item in lease.partitions} & set(tools.delays)
        self._broker_ahead_ms = None if lease.broker_ms is None else lease.broker_ms - time.monotonic() * 1000
        failed_probes = max((one.tries.unavailable for item in lease.partitions for one in item.open), default=0)
        self.holding = Holding(taken, lease.proofs, failed_probes)

    # --- may it run

    def look_at(self, message: Message, *, is_next: bool = False) -> Attempt | None:
        """Return the attempt to be made; None if it is settled, has to wait, or has had its attempt already.

        `is_next`: it is the next of a queue that is closed for all others.
        """
        partition, record_offset = place(message), message.offset()
        if self._is_over(message, partition):
            return None
        note = self._books.note_for(partition, record_offset)
        if self._has_to_wait(message, partition, note, is_next=is_next):
            return None
        copy = self._copy(message, partition) if partition.topic in self.own else None
        done = self._books.ledgers[partition].done(record_offset)
        if copy is not None and copy.done and copy.sinks == self._tools.plan.fingerprint:
            done |= copy.done
        attempt = Attempt(message, copy, done, note)
        if note is None or note.failure is None:
            return attempt
        self._go_on_with(attempt, note, note.failure)
        return None

    def _copy(self, message: Message, partition: Partition) -> Copy | None:
        """Return what a copy's headers say; where its own topic was rewound, its passes are new ones."""
        copy, replay = read_headers(readable_headers(message)), self._books.replay(partition)
        return copy if copy is None or replay <= copy.replay else replace(copy, replay=replay)

    def _is_over(self, message: Message, partition: Partition) -> bool:
        """Whether nothing is to be done for a record: its partition has failed, it is settled, or it is none."""
        if partition in self._books.failures:
            return True
        is_none = partition.topic in self.own and is_note(readable_headers(message))
        if is_none or self._books.ledgers[partition].is_settled(message.offset()):
            self._books.settle(message, quietly=True)
            return True
        return False

    def _has_to_wait(self, message: Message, partition: Partition, note: Note | None, *, is_next: bool) -> bool:
        """Whether one before it waits or runs, it was told to wait, or it is not due; then it waits from now on."""
        queue = self._queue(message, partition)
        blocking = None if is_next else self._blocking(message, partition, queue)
        if blocking is not None:
            self._wait_behind(blocking, message)
            return True
        if note is not None and note.next_try > time.monotonic():
            self._wait(queue, message, note.next_try)
            return True
        due = self._due(message) if partition.topic in self.own else 0.0
        if due and due > time.monotonic():
            self._wait_until_due(partition, message, due)
            return True
        return False

    def _blocking(self, message: Message, partition: Partition, queue: Queue) -> Queue | None:
        """Return the queue behind which a record has to wait, if there is one.

        One that lies before all that wait until they are due was due already, and failed. Otherwise: it would be tried
        again when these are due, an hour later, behind those of its key among them.
        """
        whole = (partition, None)
        first = None if queue == whole else self.waiting.first(whole)
        if first is not None and message.offset() < first.offset():
            return queue if queue in self.waiting else None
        return self.waiting.blocks(partition, queue)

    def due(self) -> list[Message]:
        """Return the records of the queue that has waited longest beyond its time; they wait no more."""
        due = self.waiting.take_due(time.monotonic())
        for partition in {place(message) for message in due}:
            self._books.unpark(partition)
            self._reader.release(partition)
        return due

    def queue(self, message: Message) -> Queue:
        """Return what a record must not overtake."""
        return self._queue(message, place(message))

    def _queue(self, message: Message, partition: Partition) -> Queue:
        return queue_of(self._tools.plan.order, partition, message.key(), message.offset())

    @property
    def is_full(self) -> bool:
        """Whether so much waits that nothing more should be read."""
        return self.is_crowded or any(one.is_full for one in self._books.ledgers.values())

    @property
    def is_crowded(self) -> bool:
        """Whether more waits than should be held in memory."""
        return self.waiting.count > 10 * LONG_QUEUE or self.waiting.bytes > MOST_BYTES

    @property
    def blocked(self) -> set[Partition]:
        """The partitions that wait as a whole, or have failed."""
        whole = {one for one in self._books.ledgers if self.waiting.blocked_until(one) is not None}
        return whole | set(self._books.failures)

    # --- it went well, or it failed

    def succeeded(self, attempt: Attempt, done: Done, *, took_effect: bool, outputs: list[Any]) -> None:
        """A record is through its sinks; `took_effect`: a sink really took it, no filter dropped it."""
        if self.vault is None:
            self._books.settle(attempt.message, _SETTLED)
        else:
            self._settle(attempt, _SETTLED, outputs, attempt.done | done)
        if took_effect:
            self.holding.end()

    def _settle(self, attempt: Attempt, kind: int, outputs: list[Any], done: Done = frozenset()) -> None:
        """Settle a record now, or when the store has what its sinks made of it; others have it by then: `done`."""
        if self.vault is None:
            self._books.settle(attempt.message, kind)
            return
        self._books.keep_open(attempt.message)
        self.vault.put([_pending(attempt, outputs, kind, done)])

    def take_answers(self) -> bool:
        """Take what the store has said since: what it took, and what it did not; True if there was such a record."""
        if self.vault is None:
            return False
        if self.vault.broken is not None:
            raise self.vault.broken
        number = self._tools.plan.collecting[0]
        if self.vault.taken > self._taken[number]:
            self._taken[number] = self.vault.taken
            self.holding.end()
        refused = self.vault.take_refused()
        for pending, error in refused:
            self._refused(pending, error, number)
        return bool(refused)

    def store_is_away(self, lease: Lease, error: Exception) -> None:
        """Nobody can tell where the partitions stand: the record at the first mark finds that out for all."""
        first, wait = lease.partitions[0], STORE_AGAIN_SECONDS
        mark = first.position.mark
        if isinstance(error, Unavailable):
            note = self._books.note_for(first.partition, mark) or Note(Tries(), 0.0)
            jitter = random.random()  # noqa: S311  # as below
            row = self._tools.plan.policy.row_for(type(error))
            match decide(row, error, note.tries, waited=0.0, others_go_on=False, jitter=jitter):
                case Again(wait, tries, is_hold):
                    self._books.count(_HELD if is_hold else _AGAIN)
                    self._books.note_at(first.partition, mark, Note(tries, time.monotonic() + wait))
                case Terminal("stop"):
                    failure = failure_at(first.partition, mark, error, note.tries.failed + 1)
                    self._books.fail_at(first.partition, failure)
                    return
        # Kafka itself is waited for; so is a store that takes no copy either.
        for item in lease.partitions:
            self._books.park(item.partition, time.monotonic() + wait)

    def _refused(self, pending: Pending, error: BaseException, sink: int) -> None:
        if pending.failed is not None:
            self._stop_at_copy(pending.failed, error)
            return
        self.failed(pending.attempt or Attempt(pending.message), error, pending.done, sink)

    def failed(self, attempt: Attempt, error: BaseException, done: Done, sink: int = -1) -> None:
        """Do with a failed record what the policy says."""
        if self._books.is_closed:
            return
        failure = failure_of(attempt.message, error, attempt.tries.failed + 1)
        self._follow(attempt, self._decide(attempt, error, sink), failure, done, sink)

    def _go_on_with(self, attempt: Attempt, note: Note, failure: Failure) -> None:
        """Decide about an attempt that failed outside of this worker, or write the copy that was decided on."""
        if note.then:
            self._send(attempt, failure, attempt.done, note.then)
            return
        kind = {"WorkerDied": WorkerDied, "TimedOut": TimedOut}.get(failure.error_type, Exception)
        self._follow(attempt, self._decide(attempt, kind(failure.message), -1), failure, attempt.done, -1)

    def _decide(self, attempt: Attempt, error: BaseException, sink: int) -> Verdict:
        tries, note = attempt.tries, attempt.note
        # The lane as a whole looks for the sink: its waits grow whichever record it looks with.
        probes = self.holding.failed_probes - self.holding.is_on
        tries = Tries(tries.failed, max(tries.unavailable, probes), tries.alone)
        seen = note.proofs if note is not None and note.tries.unavailable else None
        return decide(
            self._tools.plan.policy.row_for(type(error)),
            error,
            tries,
            waited=self._tools.delays.get(attempt.message.topic(), 0.0),
            others_go_on=seen is not None and self.holding.known(sink) > seen,
            jitter=random.random(),  # noqa: S311  # to spread retries, not to hide them
        )

    def _follow(self, attempt: Attempt, verdict: Verdict, failure: Failure, done: Done, sink: int) -> None:
        message = attempt.message
        if not isinstance(verdict, Terminal) or verdict.kind != "stop":
            self._books.note_mishap(failure, verdict.fate)
        match verdict:
            case Again(wait, tries, is_hold):
                until = time.monotonic() + wait
                self._books.count(_HELD if is_hold else _AGAIN)
                self._books.keep_open(message, Note(tries, until, sink, self.holding.known(sink)), done)
                self._wait(self.queue(message), message, until)
                if is_hold:
                    self.holding.hold(until)
            case Later(delay):
                self._send(attempt, failure, done, retry_topic(self._tools.group, delay))
            case Terminal("dead_letter"):
                self._send(attempt, failure, done, dead_topic(self._tools.group))
            case Terminal("skip"):
                self._settle(attempt, _SKIPPED, [])
                say_where(failure, "is skipped")
            case Terminal():
                self._stop_at(message, failure, done)

    def _stop_at(self, message: Message, failure: Failure, done: Done) -> None:
        self._books.fail(message, failure, done)
        self.waiting.drop([failure.partition])
        self._reader.stop(failure.partition)

    # --- copies

    def _send(self, attempt: Attempt, failure: Failure, done: Done, topic: str) -> None:
        """Write a copy. The record stays open until the broker has it, or the store."""
        self._books.keep_open(attempt.message, Note(Tries(), 0.0, failure=failure, then=topic), done)
        failed = Failed(attempt.message, attempt.copy, failure, done, topic, self._books.replay(failure.partition))
        if self.vault is None or not self.vault.store.takes_copies:
            self._tools.copier.send(failed, self._answered)
            return
        pending = _pending(attempt, [], self._kind(failed))
        pending.copy, pending.failed = self._tools.copier.copy_of(failed), failed
        self.vault.put([pending])

    def _kind(self, failed: Failed) -> int:
        return _DEAD if failed.topic == dead_topic(self._tools.group) else _RETRIED

    def _answered(self, failed: Failed, error: TidegateError | None) -> None:
        message = failed.message
        if error is None:
            self._books.settle(message, self._kind(failed))
            say_where(failed.failure, f"is written to {failed.topic}")
            return
        if may_pass(error):
            until = time.monotonic() + COPY_AGAIN_SECONDS
            self._books.keep_open(message, Note(Tries(), until, failure=failed.failure, then=failed.topic))
            # In a queue of its own: it has given its place up, and another of its old queue may be running.
            self._wait((place(message), ("copy", message.offset())), message, until)
            return
        self._stop_at_copy(failed, error)

    def _stop_at_copy(self, failed: Failed, error: BaseException) -> None:
        why = error.happened if isinstance(error, TidegateError) else str(error)
        reason = (
            f"its copy cannot be written to {failed.topic}: {why} "
            f"(it failed with {failed.failure.error_type}: {failed.failure.message[:200]})"
        )
        failure = failure_of(failed.message, CopyRefused(reason), failed.failure.attempts)
        self._stop_at(failed.message, failure, failed.done)

    # --- waiting

    def _wait(self, queue: Queue, message: Message, until: float) -> None:
        self._books.keep_open(message)
        self.waiting.put(queue, message, until)

    def _wait_until_due(self, partition: Partition, message: Message, due: float) -> None:
        """Let a copy wait until it is due, and with it what lies behind it: none of its topic is due sooner.

        What stood behind one of its key comes here last, one by one: each to its own place.
        """
        self._books.keep_open(message)
        later = message.offset() + 1
        if self.waiting.put_before((partition, None), message, due, lambda one: one.offset() >= later):
            self._books.park(partition, due)

    def _wait_behind(self, queue: Queue, message: Message) -> None:
        partition, kind = queue
        if kind is not None:  # others of its partition go on: the ledger must know that this one does not
            self._books.keep_open(message)
        self.waiting.append(queue, message)
        if kind is None and self.waiting.length(partition) == LONG_QUEUE and not self.waiting.is_running(queue):
            self._reader.hold(partition)

    def _due(self, message: Message) -> float:
        """Return when a copy is due, by this process's steady clock: the broker's time of writing, and its delay."""
        delay = self._tools.delays[message.topic()]
        if not delay:
            return 0.0
        if self._broker_ahead_ms is None:  # the broker's time is not known yet: rather late than early
            return time.monotonic() + CLOCK_AGAIN_SECONDS
        _, written_ms = message.timestamp()
        written = (written_ms - self._broker_ahead_ms) / 1000
        return written + delay if written < time.monotonic() + WRONG_CLOCK_SECONDS else 0.0


def _pending(attempt: Attempt, outputs: list[Any], kind: int, done: Done = frozenset()) -> Pending:
    pending = Pending(outputs, attempt.message)
    pending.kind, pending.attempt, pending.pass_id, pending.done = kind, attempt, attempt.pass_id, done
    return pending


def _homes(lease: Lease, tools: Tools) -> dict[Partition, Home]:
    """Whose marks a store is to keep."""
    ids = {} if lease.backing is None else lease.backing.topic_ids
    sinks = tools.plan.fingerprint
    return {
        item.partition: Home(tools.group, ids.get(item.partition, ""), item.partition.number, sinks)
        for item in lease.partitions
    }
