"""The group's retry topic, simulated: copies of records that failed, which lie there until they are due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.cluster import RETRY
from tests.simulation.messages import Message, SimCopy
from tidegate.engine.books import Note
from tidegate.records import Failure, Partition, Tries

if TYPE_CHECKING:
    from tests.simulation.rounds import Task

MOST_PASSES = 2
"""So often a record is sent there; then its failure is for good."""
RETRIED = 1
"""Its place in `Counts`."""


class Copier:
    """Writes the copies of one task. A record stays open until the broker has its copy."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._on_way = 0

    @property
    def is_writing(self) -> bool:
        """Whether a copy was sent and not answered for."""
        return self._on_way > 0

    def send(self, message: Message, failure: Failure) -> None:
        """Write a copy, which takes a while; should the task die meanwhile, it is written or it is not."""
        self._task.books.keep_open(message, Note(Tries(), 0.0, failure=failure, then=RETRY))
        self._on_way += 1
        copy = copy_of(self._task, message, failure.attempts)
        self._task.world.at(self._task.world.soon(), self._arrive, message, copy)

    def _arrive(self, message: Message, copy: SimCopy) -> None:
        task, world = self._task, self._task.world
        if task.is_over and world.random() < 0.5:
            return
        if task.owner.is_cut:
            world.at(0.1 + world.random(), self._arrive, message, copy)
            return
        task.sim.judge.copied(task, message, lies_at=task.sim.cluster.append(copy), attempts=copy.attempts)
        world.at(world.soon(), self._answered, message)

    def _answered(self, message: Message) -> None:
        self._on_way -= 1
        if not self._task.is_over:
            self._task.books.settle(message, RETRIED)


def may_come_again(message: Message, delay: float | None) -> bool:
    """Whether a record that failed is sent to the retry topic, if there is one, and not given up."""
    return delay is not None and (message.copy is None or message.copy.number < MOST_PASSES)


def copy_of(task: Task, message: Message, attempts: int) -> SimCopy:
    """Return the next copy of a record that failed."""
    task.sim.judge.gives_its_place_up(task, message)
    before = message.copy
    if before is None:
        life = task.books.replay(message.place)
        return SimCopy(message.place, message.at, life, attempts, 1, message.place, message.at)
    attempts += before.attempts
    return SimCopy(before.origin, before.at, before.replay, attempts, before.number + 1, message.place, message.at)


def due(message: Message, delay: float | None) -> float:
    """When a record may be run: at once, but for a copy."""
    return 0.0 if message.copy is None or delay is None else message.copy.written_at + delay


def stands_before(waiting: list[Message], partition: Partition, delay: float | None, now: float) -> bool:
    """Whether a copy of this partition waits until it is due: none behind it is due sooner."""
    return any(one.place == partition and due(one, delay) > now for one in waiting)
