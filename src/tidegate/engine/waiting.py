"""Pure: records that were read and may not run yet, in queues that keep their order.

A queue is what must not be overtaken: a whole partition, a key of it, or one record alone.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from itertools import count
from typing import Generic, TypeVar

from tidegate.records import Partition
from tidegate.steps import Order

M = TypeVar("M")

_RUNNING = float("inf")

Queue = tuple[Partition, Hashable]
"""A partition, and what of it waits together: None means all of it."""


def queue_of(order: Order, partition: Partition, key: bytes | None, record_offset: int) -> Queue:
    """Return what a record must not overtake, and must not be overtaken by."""
    if order == "partition":
        return partition, None
    if order == "key" and key is not None:
        return partition, key
    return partition, record_offset


class Waiting(Generic[M]):
    """Queues of records, each with the moment at which its first may be tried."""

    def __init__(self, size: Callable[[M], int] = lambda _: 0) -> None:
        self._size = size
        self.bytes = 0
        """What waits, by the size that was given for each record."""
        self._queues: dict[Queue, deque[M]] = {}
        self._until: dict[Queue, float] = {}
        self._agenda: list[tuple[float, int, Queue]] = []
        """A heap: when a queue is due. An entry counts only while `_until` says the same."""
        self._numbers = count()
        self._per_partition: dict[Partition, int] = {}
        self.count = 0

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __contains__(self, queue: Queue) -> bool:
        return queue in self._queues

    def first(self, queue: Queue) -> M | None:
        """The record of a queue that is to be tried first; None if there is none."""
        records = self._queues.get(queue)
        return records[0] if records else None

    def blocks(self, partition: Partition, queue: Queue) -> Queue | None:
        """Return the queue behind which a record has to wait, if there is one."""
        whole = (partition, None)
        if whole in self._queues:
            return whole
        return queue if queue in self._queues else None

    def put(self, queue: Queue, record: M, until: float) -> None:
        """Let a record wait until then, before all others of its queue."""
        self._count(queue, 1, self._size(record))
        self._queues.setdefault(queue, deque()).appendleft(record)
        self._wait_until(queue, until)

    def put_before(self, queue: Queue, record: M, until: float, is_later: Callable[[M], bool]) -> bool:
        """Let a record wait before those of its queue that are later; True if it is the first, for which all wait."""
        self._count(queue, 1, self._size(record))
        records = self._queues.setdefault(queue, deque())
        at = next((place for place, one in enumerate(records) if is_later(one)), len(records))
        records.insert(at, record)
        if at == 0:
            self._wait_until(queue, until)
        return at == 0

    def push(self, queue: Queue, record: M) -> None:
        """Let a record wait before all others of its queue, for whatever these wait for.

        A queue that is there no more was dropped with its partition.
        """
        if queue in self._queues:
            self._count(queue, 1, self._size(record))
            self._queues[queue].appendleft(record)

    def append(self, queue: Queue, record: M) -> None:
        """Let a record wait behind the others of its queue."""
        self._count(queue, 1, self._size(record))
        self._queues[queue].append(record)

    def start(self, queue: Queue) -> None:
        """The first of this queue is being run: the others wait for its end."""
        self._queues.setdefault(queue, deque())
        self._until[queue] = _RUNNING

    def take_next(self, queue: Queue) -> M | None:
        """The one that was being run has ended, and does not wait: return the next of its queue, which stays closed."""
        records = self._queues[queue]
        if not records:
            return None
        taken = records.popleft()
        self._count(queue, -1, -self._size(taken))
        return taken

    def open(self, queue: Queue) -> None:
        """Nothing of this queue is being run: whatever is left of it may be tried at once."""
        if self._queues[queue]:
            self._wait_until(queue, 0.0)
        else:
            self._drop(queue)

    def take_due(self, now: float) -> list[M]:
        """Return the queue that has been due for longest; it waits no more."""
        earliest = self.next_due
        if earliest is None or earliest > now:
            return []
        _, _, queue = heapq.heappop(self._agenda)
        return self._drop(queue)

    def drop(self, partitions: Iterable[Partition]) -> None:
        """Forget what waits of these partitions."""
        gone = set(partitions)
        for queue in [queue for queue in self._queues if queue[0] in gone]:
            self._drop(queue)

    @property
    def next_due(self) -> float | None:
        """The earliest moment at which something may be tried."""
        agenda, until = self._agenda, self._until
        while agenda and until.get(agenda[0][2]) != agenda[0][0]:
            heapq.heappop(agenda)  # dropped, begun, or told to wait for longer since
        return agenda[0][0] if agenda else None

    @property
    def partitions(self) -> set[Partition]:
        """The partitions of which something waits."""
        return set(self._per_partition)

    def blocked_until(self, partition: Partition) -> float | None:
        """When a partition that waits as a whole may be tried; None if it does not wait as a whole."""
        return self._until.get((partition, None))

    def first_due(self, partition: Partition) -> float | None:
        """The earliest moment at which something of a partition may be tried."""
        found = (until for queue, until in self._until.items() if queue[0] == partition and until != _RUNNING)
        return min(found, default=None)

    def is_running(self, queue: Queue) -> bool:
        """Whether the first of this queue is being run."""
        return self._until.get(queue) == _RUNNING

    def length(self, partition: Partition) -> int:
        """How many records of a partition wait."""
        return self._per_partition.get(partition, 0)

    def _wait_until(self, queue: Queue, until: float) -> None:
        self._until[queue] = until
        heapq.heappush(self._agenda, (until, next(self._numbers), queue))

    def _drop(self, queue: Queue) -> list[M]:
        del self._until[queue]
        records = list(self._queues.pop(queue))
        self._count(queue, -len(records), -sum(map(self._size, records)))
        return records

    def _count(self, queue: Queue, more: int, more_bytes: int) -> None:
        self.count += more
        self.bytes += more_bytes
        left = self._per_partition.get(queue[0], 0) + more
        if left:
            self._per_partition[queue[0]] = left
        else:
            self._per_partition.pop(queue[0], None)
