"""Simulated rounds whose effects and marks are stored as one: the real vault and store, on simulated clients."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.cluster import GROUP, KAFKA, RETRY
from tests.simulation.fibers import WorkerFiber
from tests.simulation.messages import Attempt, Message
from tests.simulation.retries import RETRIED, copy_of, may_come_again
from tests.simulation.rounds import SimLanes, Task
from tidegate.engine.books import Note
from tidegate.engine.lanes import RoundEnded
from tidegate.engine.spark import RoundDied
from tidegate.engine.vault import Pending
from tidegate.errors import BrokerUnreachable, Unavailable
from tidegate.kafka.transactions import Transactions
from tidegate.ledger import Home
from tidegate.records import Failure, Lease, Tries
from tidegate.store import Outgoing, Overtaken

if TYPE_CHECKING:
    from tests.simulation.process import Process

OUT_OF_SIGHT = 0.5
"""How often a worker that Spark takes for dead lives on."""
LIVES_ON_SECONDS = (3.5, 10.0, 30.0)
"""For how long at most, and so does one that was cancelled, or whose driver was killed."""
NEW_WORKER = 0.2
DRAIN_SECONDS = 0.05
STORE_AGAIN_SECONDS = 1.0


class Worker:
    """A Python worker of Spark's: it keeps the stores of the lanes that it has served."""

    def __init__(self) -> None:
        self.is_free = False
        self._stores: dict[str, Transactions] = {}

    def store(self, name: str, made: type[Transactions]) -> Transactions:
        """Return the store of a lane."""
        if name not in self._stores:
            self._stores[name] = made(KAFKA, GROUP, name)
        return self._stores[name]


def hire(process: Process) -> Worker:
    """Return a worker for a task: one that is free, or a new one."""
    free = [one for one in process.workers if one.is_free]
    if not free or process.world.random() < NEW_WORKER:
        worker = Worker()
        process.workers.append(worker)
    else:
        worker = process.world.chance.choice(free)
    worker.is_free = False
    return worker


class OnceTask(Task):
    """One round: it begins in the store, runs records, and lets the store seal them beside."""

    def __init__(self, process: Process, lease: Lease, *, is_live: bool) -> None:
        self._stage = "leased"
        super().__init__(process, lease, is_live=is_live)
        backing = lease.backing
        assert backing is not None
        self._worker = hire(process)
        self._store = self._worker.store(backing.name, self.sim.made.transactions)
        homes = {
            item.partition: Home(GROUP, backing.topic_ids[item.partition], item.partition.number, "")
            for item in lease.partitions
        }
        self._vault = self.sim.made.vault(self._store, self.books, homes)
        self.fibers: list[WorkerFiber] = []

    @property
    def is_out_of_sight(self) -> bool:
        """Whether its driver waits for nothing more from it: its store sees to it that it does no harm."""
        return self.is_cancelled or self.is_orphan

    # --- its life

    def _go(self) -> None:
        if self._stage == "working":
            super()._go()
        elif self._stage == "leased" and not self.is_over:
            self._stage = "beginning"
            self._run_beside("begin", self._begin_in_store)

    def _run_beside(self, name: str, function: Callable[[], None]) -> None:
        WorkerFiber(self, name, function)

    def _begin_in_store(self) -> None:
        before = gc.get_threshold()
        try:
            self._vault.begin(self.lease)
        except (Unavailable, BrokerUnreachable):
            for item in self.lease.partitions:
                self.books.park(item.partition, self.world.now + STORE_AGAIN_SECONDS)
            self._close()
            return
        except Overtaken:
            self._close()
            return
        finally:
            gc.set_threshold(*before)
        self._next = {partition: ledger.mark for partition, ledger in self.books.ledgers.items()}
        self._stage = "working"
        self.world.at(0.0, self._go)

    @property
    def _may_begin(self) -> bool:
        return super()._may_begin and self._vault.overtaken is None

    def _finish(self, attempt: Attempt) -> None:
        misfortune = self.sim.misfortune(attempt.message)
        if misfortune == "kills":
            self.die()
            return
        self._flying.remove(attempt)
        if misfortune is not None:
            self._fail(attempt, is_away=misfortune == "away")
        else:
            output = Outgoing("out", self.sim.effects.make(self, attempt))
            self._vault.put([Pending([output], attempt.message)])

    def _give_up(self, message: Message, failure: Failure) -> None:
        attempt, pending = Attempt(message, failure.attempts), Pending((), message)
        if may_come_again(message, self._plan.delay):
            self.books.keep_open(message, Note(Tries(), 0.0, failure=failure, then=RETRY))
            copy = copy_of(self, message, failure.attempts)
            pending.kind, pending.copy = RETRIED, Outgoing(RETRY, self.sim.effects.make(self, attempt, copy=copy))
        elif self._plan.policy == "dead_letter":
            pending.kind, pending.copy = 2, Outgoing("g.dead", self.sim.effects.make(self, attempt, is_letter=True))
        else:
            super()._give_up(message, failure)
            return
        self._vault.put([pending])

    def _end(self) -> None:
        if self._stage == "working":
            self._stage = "draining"
            self._drain()

    def _drain(self) -> None:
        """Let the store take all that it can take now: the round ends."""
        if self.is_over:
            return
        if not self._vault.hurry():
            self.world.at(DRAIN_SECONDS, self._drain)
            return
        self._stage = "closing"
        self._run_beside("close", self._close)

    def _close(self) -> None:
        self._vault.close()
        if self._vault.broken is not None:
            raise self._vault.broken
        self._worker.is_free = not self._store.is_stuck
        super()._end()

    # --- its end

    def die(self) -> None:
        """The worker is gone; or Spark takes it for gone, and runs the round elsewhere while it lives on."""
        if self.is_over:
            return
        if not self.is_out_of_sight and self.world.random() < OUT_OF_SIGHT:
            self.world.say(self, "is out of sight")
            self.sim.note_fault("worker died", worker=self.pid)
            self.is_cancelled = True
            self._post(RoundEnded(self.lease, None, RoundDied("out of sight")))
            self._die_later()
            return
        super().die()
        self._stop_fibers()

    def _die_later(self) -> None:
        # However long it lives: that its driver waits for its death is not what keeps it from harm.
        seconds = self.world.pick(LIVES_ON_SECONDS) * self.world.random()
        if self.world.random() < 0.5:
            self.hangs_until = max(self.hangs_until, self.world.now + seconds * self.world.random())
        self._dies_at = self.world.now + seconds
        self.world.at(seconds, self._stop_fibers)

    def _stop_fibers(self) -> None:
        for fiber in self.fibers:
            fiber.kill()


class SimOnceLanes(SimLanes):
    """Starts such rounds."""

    def start(self, lease: Lease) -> None:
        self._tasks[lease.lane] = OnceTask(self._process, lease, is_live=self._is_live)
