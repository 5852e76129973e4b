"""The books of a round: what is settled, open, failed, per partition.

The work thread writes them, the watching thread reads them for its reports and may close them: both under
the lock. Records that went well are booked by the batch; any other is booked for itself.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace

from tidegate.context import Hand, Message
from tidegate.ledger import Ledger
from tidegate.records import (
    Counts,
    Done,
    Failure,
    Lease,
    LeasedPartition,
    Mishap,
    Open,
    Outcome,
    Partition,
    PartitionOutcome,
    Position,
    Tries,
)

MOST_MISHAPS = 20
"""Failed attempts that a report carries."""


@dataclass
class Note:
    """An open failure, as a round keeps it: with a moment instead of a wait."""

    tries: Tries
    next_try: float
    sink: int = -1
    proofs: int = 0
    failure: Failure | None = None
    then: str = ""


class Books:
    """One round's books. Methods that write take the lock; nothing is written once they are closed."""

    def __init__(self, lease: Lease, *, in_partition_order: bool, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._lease = lease
        self._in_partition_order = in_partition_order
        self.ledgers = {item.partition: Ledger(item.position) for item in lease.partitions}
        self._stored: dict[Partition, Position] | None = None
        """Where a store stands that keeps the marks; None where the driver does."""
        self._until = {item.partition: item.until for item in lease.partitions}
        self.failures: dict[Partition, Failure] = {}
        self._counts = [0] * len(Counts().as_tuple())
        began = now()
        self._notes = {
            (item.partition, one.record_offset): Note(
                one.tries, began + one.wait, one.sink, one.proofs, one.failure, one.then
            )
            for item in lease.partitions
            for one in item.open
        }
        self._parked: dict[Partition, float] = {}
        self._mishaps: deque[Mishap] = deque(maxlen=MOST_MISHAPS)
        self._batch: list[Message] = []
        self._booked = 0
        """How many of the batch are in the books already."""
        self._reported: object = None
        self._reports = 0
        self.is_closed = False

    # --- while records run

    def open_batch(self, batch: list[Message]) -> None:
        """These records are begun in this order from here on."""
        with self._lock:
            self._batch, self._booked = batch, 0

    def settle_batch(self, end: int) -> None:
        """Everything of the batch up to this place has reached its sinks, or is booked for itself."""
        with self._lock:
            if not self.is_closed:
                self._settle(self._batch[self._booked : end])
                self._booked = end

    def pass_one(self, end: int) -> None:
        """The records of the batch up to this place are booked one by one."""
        with self._lock:
            self._booked = end

    def settle(self, message: Message, kind: int = 0, *, quietly: bool = False) -> None:
        """Nothing more will be done for this record; `kind` is its place in `Counts`."""
        partition = place(message)
        with self._lock:
            if self.is_closed:
                return
            self._take(partition, message.offset())
            self.ledgers[partition].settle(message.offset())
            self._notes.pop((partition, message.offset()), None)
            self._parked.pop(partition, None)
            if not quietly:
                self._counts[kind] += 1

    def note_mishap(self, failure: Failure, fate: str) -> None:
        """An attempt failed: the last ones are shown to people."""
        with self._lock:
            self._note_mishap(failure, fate)

    def keep_open(self, message: Message, note: Note | None = None, done: Done = frozenset()) -> None:
        """This record was read and is not settled; with a note: it failed, and will be tried again."""
        partition = place(message)
        with self._lock:
            if self.is_closed:
                return
            self._take(partition, message.offset())
            if note is not None:
                self._notes[partition, message.offset()] = note
            self.ledgers[partition].note_done(message.offset(), done)

    # --- where effects are stored in bulk

    def restart(self, positions: Mapping[Partition, Position]) -> None:
        """Before anything was read: the partitions stand here, whatever the lease said."""
        with self._lock:
            self.ledgers |= {partition: Ledger(position) for partition, position in positions.items()}
            self._stored = dict(positions)

    def replay(self, partition: Partition) -> int:
        """Return the number of the rewind that moved a partition last."""
        return self.ledgers[partition].replay

    def take(self, messages: Iterable[Message]) -> None:
        """These were read, in this order, and are not settled."""
        with self._lock:
            if not self.is_closed:
                for partition, offsets in _by_partition(messages):
                    read_once = self.ledgers[partition].read_once
                    for record_offset in offsets:
                        read_once(record_offset)

    def prefix(self, partition: Partition, through: Container[int], most: int) -> tuple[list[int], Position]:
        """Return the first open offsets of a partition, if they are through, and where these would lead."""
        with self._lock:
            return self.ledgers[partition].prefix(through, most)

    def settle_each(self, messages: Iterable[Message], kinds: Mapping[int, int]) -> None:
        """These are settled; `kinds` counts them by their place in `Counts`."""
        with self._lock:
            if self.is_closed:
                return
            for partition, offsets in _by_partition(messages):
                settle = self.ledgers[partition].settle
                for record_offset in offsets:
                    settle(record_offset)
                self._parked.pop(partition, None)
                for record_offset in offsets if self._notes else ():
                    self._notes.pop((partition, record_offset), None)
            for kind, number in kinds.items():
                self._counts[kind] += number

    def settle_through(self, positions: Mapping[Partition, Position], kinds: Mapping[int, int]) -> None:
        """Everything before these marks is stored; `kinds` counts it by its place in `Counts`."""
        with self._lock:
            if self.is_closed:
                return
            if self._stored is not None:
                self._stored |= positions
            for partition, position in positions.items():
                self.ledgers[partition].settle_through(position.mark)
                self._parked.pop(partition, None)
            if self._notes:
                gone = [key for key in self._notes if key[0] in positions and key[1] < positions[key[0]].mark]
                for key in gone:
                    del self._notes[key]
            for kind, number in kinds.items():
                self._counts[kind] += number

    def count(self, kind: int) -> None:
        """Count an attempt of this kind (a place in `Counts`)."""
        self._counts[kind] += 1

    def park(self, partition: Partition, until: float) -> None:
        """There is nothing to do for this partition before then."""
        with self._lock:
            self._parked[partition] = until

    def unpark(self, partition: Partition) -> None:
        """There may be something to do for it again."""
        with self._lock:
            self._parked.pop(partition, None)

    def fail(self, message: Message, failure: Failure, done: Done) -> None:
        """The run ends at this record."""
        with self._lock:
            if not self.is_closed:
                self._note_mishap(failure, "stop")
                self._fail(message, failure, done)

    def note_at(self, partition: Partition, record_offset: int, note: Note) -> None:
        """Note something of a record that was not read."""
        with self._lock:
            self._notes[partition, record_offset] = note

    def fail_at(self, partition: Partition, failure: Failure) -> None:
        """The run ends at a record that was not read."""
        with self._lock:
            self._note_mishap(failure, "stop")
            self.failures[partition] = failure

    def reach(self, partition: Partition, end: int) -> None:
        """The reader stands at the end of the log: what lies before and was not read is a gap."""
        with self._lock:
            if not self.is_closed and partition in self.ledgers and partition not in self.failures:
                self.ledgers[partition].reach(end)

    def note_for(self, partition: Partition, record_offset: int) -> Note | None:
        """Return what is known of an open failure."""
        return self._notes.get((partition, record_offset))

    @property
    def needs_look(self) -> bool:
        """Whether something is known of records to come, so that each has to be looked up before it is run."""
        return bool(self._notes) or any(ledger.remembers for ledger in self.ledgers.values())

    def is_finished(self, lost: dict[Partition, int]) -> bool:
        """Whether nothing of the lease is left to do: every partition failed, lost, or as far as it should be."""
        for partition, ledger in self.ledgers.items():
            until = self._until[partition]
            if partition in self.failures or partition in lost:
                continue
            if until is None or ledger.mark < until:
                return False
        return True

    # --- for the watching thread

    def close_at(self, message: Message | None, hand: Hand, note: Note, done: Done) -> bool:
        """Close the books: this record's attempt takes too long. False if it has just ended."""
        with self._lock:
            if message is None or hand.message is not message or self.is_closed:
                return False
            self._book_up_to(message)
            partition = place(message)
            self._take(partition, message.offset())
            self._notes[partition, message.offset()] = note
            self.ledgers[partition].note_done(message.offset(), done)
            self.is_closed = True
            return True

    def report(self, message: Message | None, lost: dict[Partition, int], spent: int = 0) -> Outcome | None:
        """What is settled by now, with this record in hand; None if nothing has changed since the last report.

        `spent`: permits that were used. Who is not told of them gives no more, until a record that was begun has ended.
        """
        with self._lock:
            if not self.is_closed:
                self._book_up_to(message)
            outcome = self._outcome(lost)
        # Waits shrink by themselves: that is no news.
        news = [(one.position, one.failure, len(one.open), one.parked is None) for one in outcome.partitions]
        if (news, outcome.counts, spent) == self._reported:
            return None
        self._reported = (news, outcome.counts, spent)
        self._reports += 1
        return replace(outcome, number=self._reports)

    def outcome(self, lost: dict[Partition, int]) -> Outcome:
        """What this round brings back."""
        with self._lock:
            return self._outcome(lost)

    # --- inside

    def _note_mishap(self, failure: Failure, fate: str) -> None:
        number = 1 + (self._mishaps[-1].number if self._mishaps else 0)
        self._mishaps.append(Mishap(replace(failure, traceback=""), fate, number))

    def _outcome(self, lost: dict[Partition, int]) -> Outcome:
        now = self._now()
        return Outcome(
            lane=self._lease.lane,
            round=self._lease.round,
            partitions=tuple(self._partition_outcome(item, lost, now) for item in self._lease.partitions),
            counts=Counts(*self._counts),
            mishaps=tuple(self._mishaps),
        )

    def _partition_outcome(self, item: LeasedPartition, lost: dict[Partition, int], now: float) -> PartitionOutcome:
        partition = item.partition
        position = self._position(item)
        still_open = tuple(
            Open(at, note.tries, max(0.0, note.next_try - now), note.sink, note.proofs, note.failure, note.then)
            for (one, at), note in sorted(self._notes.items())
            if one == partition and at >= position.mark
        )
        parked = self._parked.get(partition)
        waits = None if parked is None else max(0.0, parked - now)
        if waits is None and still_open and self._in_partition_order:
            waits = still_open[0].wait
        return PartitionOutcome(
            partition,
            item.epoch,
            position,
            self.failures.get(partition),
            still_open,
            waits,
            lost.get(partition),
        )

    def _position(self, item: LeasedPartition) -> Position:
        """Where the driver is to believe a partition stands: where a store keeps the marks, as it has them.

        Otherwise: a gap at the end of the log is passed; the driver takes that for stored, and commits it; the worker
        dies before the store has it. Then the group stands beyond its table, as if somebody had moved it.
        """
        if self._stored is None:
            return self.ledgers[item.partition].position
        return self._stored.get(item.partition, item.position)

    def _take(self, partition: Partition, record_offset: int) -> None:
        self.ledgers[partition].read_once(record_offset)

    def _settle(self, messages: list[Message]) -> None:
        """These are settled, each partition's in order."""
        self._counts[0] += len(messages)
        last: dict[tuple[str, int], Message] = {}
        for message in messages:
            key = message.topic(), message.partition()
            last[key] = message
        for (topic, number), message in last.items():
            ledger = self.ledgers[Partition(topic, number)]
            if ledger.has_open:
                for one in messages:
                    if (one.topic(), one.partition()) == (topic, number):
                        ledger.read_once(one.offset())
                        ledger.settle(one.offset())
            else:
                ledger.settle_through(message.offset() + 1)

    def _fail(self, message: Message, failure: Failure, done: Done) -> None:
        partition = place(message)
        self.failures[partition] = failure
        self._notes.pop((partition, message.offset()), None)
        self._take(partition, message.offset())
        self.ledgers[partition].note_done(message.offset(), done)

    def _book_up_to(self, message: Message | None) -> None:
        """Settle what comes before this record in the batch in hand, if it is in there."""
        for at in range(self._booked, len(self._batch)):
            if self._batch[at] is message:
                self._settle(self._batch[self._booked : at])
                self._booked = at
                return


def _by_partition(messages: Iterable[Message]) -> list[tuple[Partition, list[int]]]:
    """Return the offsets of each partition, in their order."""
    found: dict[tuple[str, int], list[int]] = {}
    for message in messages:
        key = message.topic(), message.partition()
        if key in found:
            found[key].append(message.offset())
        else:
            found[key] = [message.offset()]
    return [(Partition(*key), offsets) for key, offsets in found.items()]


def place(message: Message) -> Partition:
    """Return where a message lies."""
    return Partition(message.topic(), message.partition())
