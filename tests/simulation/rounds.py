"""Simulated rounds: tasks that read, run records in some order, report now and then, die, hang, live on as zombies.

Their books are the real ones. What a record does is chance and the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulation.gate import Gate
from tests.simulation.messages import Attempt, Message
from tests.simulation.retries import Copier, due, may_come_again, stands_before
from tidegate.engine.books import Books, Note
from tidegate.engine.events import RoundReported
from tidegate.engine.lanes import Lanes, RoundEnded
from tidegate.engine.spark import RoundDied
from tidegate.records import Failure, Lease, LeasedPartition, Outcome, Partition, Tries

if TYPE_CHECKING:
    from tests.simulation.process import Process

ZOMBIE_SECONDS = 3.5
"""How long a cancelled Python task lives on, at most."""
STEPS = (0.001, 0.01, 0.05, 0.1, 0.4)
IN_FLIGHT = 3
LATE_STARTS, LATEST_START = 0.05, 30.0
LONGEST_HOLD = 10.0
HELD = 5
"""Its place in `Counts`."""


class SimLanes(Lanes):
    """Starts simulated tasks."""

    def __init__(self, process: Process, *, is_live: bool) -> None:
        self._process = process
        self._is_live = is_live
        self._tasks: dict[int, Task] = {}

    def start(self, lease: Lease) -> None:
        self._tasks[lease.lane] = Task(self._process, lease, is_live=self._is_live)

    def tick(self, proofs: Callable[[int], Sequence[int]]) -> None:
        pass

    @property
    def is_live(self) -> bool:
        return self._is_live

    def grant(self, permits: Mapping[int, int]) -> None:
        for task in self._tasks.values():
            if self._is_live and task.has_started and task.lease.round in permits:
                self._process.world.at(self._process.world.soon(), task.gate.grant, permits[task.lease.round])

    def finish(self, lease: Lease) -> None:
        task = self._tasks.get(lease.lane)
        if self._is_live and task is not None and task.lease.round == lease.round:
            task.tell_to_finish()

    def hears(self, lease: Lease) -> bool:
        task = self._tasks.get(lease.lane)
        return self._is_live and task is not None and task.lease.round == lease.round and task.has_started

    def cancel(self, lane: int) -> None:
        self._tasks[lane].cancel()

    def close(self) -> None:
        pass


class Task:
    """One task of one round."""

    def __init__(self, process: Process, lease: Lease, *, is_live: bool) -> None:
        sim = process.sim
        self.owner, self.sim, self.world = process, sim, process.world
        self._plan = sim.plan
        self.lease = lease
        self.session = process.session
        self.leased_at = self.world.now
        self.pid = sim.next_pid()
        self._is_live = is_live
        self._in_order = self._plan.order == "partition"
        self.books = Books(lease, in_partition_order=self._in_order, now=self.world.tell_time)
        self._next = {item.partition: item.position.mark for item in lease.partitions}
        self._epochs = {item.partition: item.epoch for item in lease.partitions}
        self._waiting: list[Message] = []
        self._flying: list[Attempt] = []
        self._lost: dict[Partition, int] = {}
        self._begun = 0
        self._is_stopping = False
        self.copier = Copier(self)
        self.gate = Gate(self._plan.rate, lease.permits)
        self._is_told = False
        self.has_started = False
        self._called_at = 0.0
        self._has_ended = False
        self.is_cancelled = self.is_orphan = False
        self._dies_at: float | None = None
        self.hangs_until = 0.0
        self._idle_since: float | None = None
        if self.world.trace is not None:
            self.world.say(process, f"round {lease.round} of lane {lease.lane}:", *map(_shown, lease.partitions))
        sim.tasks.append(self)
        sim.judge.leased(self)
        # A Spark that is cold, or a machine that is busy, starts a task when nobody expects it any more.
        is_late = self.world.random() < LATE_STARTS
        self.world.at(LATEST_START * self.world.random() if is_late else self.world.soon(), self._go)

    def __str__(self) -> str:
        return f"{self.owner} round {self.lease.round} (task {self.pid})"

    @property
    def is_out_of_sight(self) -> bool:
        """Whether nobody waits for it any more, so that it may be at work beside whoever came after."""
        return False

    @property
    def is_over(self) -> bool:
        """Whether it does nothing more."""
        return self._has_ended or (self._dies_at is not None and self.world.now >= self._dies_at)

    @property
    def partitions(self) -> set[Partition]:
        return set(self._next)

    def epoch(self, partition: Partition) -> int:
        return self._epochs[partition]

    # --- from outside

    def tell_to_finish(self) -> None:
        """Begin no more records. Where it has not called yet, it hears it when it does."""
        if self.has_started and not self._is_told:
            self.world.at(self.world.soon(), self._stop_reading)
        self._is_told = True

    def _stop_reading(self) -> None:
        self._is_stopping = True

    def cancel(self) -> None:
        """Spark says at once that it has ended; the task lives on for a while."""
        if self.is_over or self.is_cancelled:
            return
        self.is_cancelled = True
        self.sim.note_fault("cancelled", worker=self.pid)
        self._die_later()
        self._post(RoundEnded(self.lease, None, RuntimeError("cancelled")))

    def orphan(self) -> None:
        """Its driver was killed."""
        self.is_orphan = True
        self._die_later()

    def _die_later(self) -> None:
        self._dies_at = self.world.now + ZOMBIE_SECONDS * self.world.random()

    def die(self) -> None:
        """The worker is gone, with all that was not reported."""
        if self.is_over:
            return
        self._has_ended = True
        self.sim.note_fault("worker died", worker=self.pid)
        if self.is_cancelled:
            return
        if self.world.random() < 0.2:
            self._post(RoundEnded(self.lease, Outcome(self.lease.lane, self.lease.round, (), is_repeat=True), None))
        else:
            self._post(RoundEnded(self.lease, None, RoundDied("killed")))

    def _post(self, event: RoundEnded) -> None:
        self.world.at(self.world.soon(), self._deliver, event)

    def _deliver(self, event: RoundEnded) -> None:
        if not self.owner.is_dead:
            self.sim.judge.delivered(self, event)
            self.owner.inbox.put(event)

    # --- its life

    def _go(self) -> None:
        now = self.world.now
        if self.is_over:
            return
        if self._dies_at is not None and now >= self._dies_at:
            self._has_ended = True
            return
        if now < self.hangs_until:
            self.world.at(self.hangs_until - now, self._go)
            return
        if not self.has_started:
            self._call()
        self._act()
        if not self.is_over:
            self.world.at(self.world.pick(STEPS), self._go)

    def _call(self) -> None:
        self.has_started, self._called_at = True, self.world.now
        if self._is_told:
            self.world.at(self.world.soon(), self._stop_reading)

    def _act(self) -> None:
        chance = self.world.random()
        if self._flying and (chance < 0.5 or len(self._flying) >= (1 if self._in_order else IN_FLIGHT)):
            self._finish(self.world.chance.choice(self._flying))
        elif self._may_begin and self.gate.is_open(self.world.now) and self._begin():
            self.gate.pass_one(self.world.now)
            self._idle_since = None
        elif self._flying:
            self._finish(self.world.chance.choice(self._flying))
        elif self._has_no_more_to_do():
            self._end()
            return
        if self._is_live and chance < 0.4:
            self._report()

    @property
    def _may_begin(self) -> bool:
        most = self.lease.limits.records
        return not self._is_stopping and (most is None or self._begun < most)

    def _has_no_more_to_do(self) -> bool:
        now = self.world.now
        if self.copier.is_writing:
            return False
        if not self._may_begin or self.books.failures or (self.gate.is_starved and not self._is_live):
            return True
        has_time = self._is_live or now < self._called_at + self.lease.limits.read_seconds
        if not self.gate.is_open(now) and has_time and self.world.random() < 0.8:
            self.hangs_until = min(self.gate.opens_at(now), now + self.lease.limits.idle_seconds)
            return False
        if self.world.random() < 0.1:
            return True
        if self._idle_since is None:
            self._idle_since = now
            self.hangs_until = now + self.lease.limits.idle_seconds * self.world.random()
            return False
        return True

    def _begin(self) -> bool:
        ready = [one for one in self._waiting if self._is_due(one)]
        if ready:
            self._waiting.remove(ready[0])
            self.books.unpark(ready[0].place)
            self._run(ready[0])
            return True
        places = list(self._next)
        first = int(self.world.random() * len(places))
        for partition in places[first:] + places[:first]:
            message = self._read(partition)
            if message is not None:
                self._take(message)
                return True
        return False

    def _read(self, partition: Partition) -> Message | None:
        """Return the next record of a partition, if it may be begun."""
        log = self.sim.cluster.logs[partition]
        if partition in self.books.failures or partition in self._lost:
            return None
        if stands_before(self._waiting, partition, self._plan.delay, self.world.now):
            return None
        unfinished = [*self._waiting, *(one.message for one in self._flying)]
        is_busy = any(one.place == partition for one in unfinished)
        if self._in_order and is_busy:
            return None
        at = self._next[partition]
        if at < log.beginning:
            self._lost[partition] = log.beginning
            return None
        end = log.readable_end
        while at < end and at in log.missing:
            at += 1
        if at >= end:
            self._next[partition] = at
            if not is_busy:
                self.books.reach(partition, end)
            return None
        self._next[partition] = at + 1
        return Message(partition, at, log.copy(at))

    def _take(self, message: Message) -> None:
        if self.books.ledgers[message.place].is_settled(message.at):
            self.books.settle(message, quietly=True)
            return
        self.books.keep_open(message)
        note = self.books.note_for(message.place, message.at)
        if note is not None and note.failure is not None:
            self._give_up(message, note.failure)
        elif not self._is_due(message):
            self._waiting.append(message)
            if (until := due(message, self._plan.delay)) > self.world.now:
                self.books.park(message.place, until)
        else:
            self._run(message)

    def _is_due(self, message: Message) -> bool:
        note = self.books.note_for(message.place, message.at)
        is_due = due(message, self._plan.delay) <= self.world.now
        return is_due and (note is None or note.next_try <= self.world.now)

    def _run(self, message: Message) -> None:
        note = self.books.note_for(message.place, message.at)
        attempt = Attempt(message, 1 if note is None else note.tries.failed + 1)
        self._begun += 1
        self._flying.append(attempt)
        self.sim.judge.began(self, attempt)

    def _finish(self, attempt: Attempt) -> None:
        message = attempt.message
        if attempt.has_effect:
            self._flying.remove(attempt)
            self.books.settle(message)
            return
        misfortune = self.sim.misfortune(message)
        if misfortune == "kills":
            self.die()
        elif misfortune is not None:
            self._flying.remove(attempt)
            self._fail(attempt, is_away=misfortune == "away")
        else:
            attempt.has_effect = True
            self.sim.judge.settled(self, attempt)
            if self.world.random() < 0.8:
                self._finish(attempt)

    def _fail(self, attempt: Attempt, *, is_away: bool) -> None:
        if is_away:
            self._wait_for_sink(attempt.message)
            return
        message = attempt.message
        failure = Failure(message.place, message.at, "ValueError", "no", attempts=attempt.number)
        self.world.say(self.owner, message.place, message.at, "fails, attempt", attempt.number)
        if self._plan.policy != "stop" and attempt.number <= 2:
            wait = self.world.pick((0.05, 0.5, 3.0))
            self.books.keep_open(message, Note(Tries(attempt.number), self.world.now + wait))
            self._waiting.append(message)
        else:
            self._give_up(message, failure)

    def _wait_for_sink(self, message: Message) -> None:
        """Its sink is away: nothing is begun for a while, then one record looks for it, as a rule."""
        note = self.books.note_for(message.place, message.at)
        tries = Tries() if note is None else note.tries
        tries = replace(tries, unavailable=tries.unavailable + 1)
        until = self.world.now + min(LONGEST_HOLD, 0.5 * 2**tries.unavailable)
        self.gate.hold(until)
        self.books.count(HELD)
        self.books.keep_open(message, Note(tries, until))
        self._waiting.append(message)
        if self._is_live:  # who tells nothing of it, past that time, counts as standing still
            self._report()

    def _give_up(self, message: Message, failure: Failure) -> None:
        if may_come_again(message, self._plan.delay):
            self.copier.send(message, failure)
        elif self._plan.policy == "dead_letter":
            self.sim.judge.copied(self, message)
            self.books.settle(message, 2)
        else:
            self.books.fail(message, failure, frozenset())

    def _report(self) -> None:
        outcome = self.books.report(None, self._lost)
        if outcome is not None:
            outcome = replace(outcome, spent=self.gate.spent)
            # Harder than one connection, which keeps the order: any of them may be overtaken.
            self.world.at(self.world.soon(), self._deliver_report, outcome)

    def _deliver_report(self, outcome: Outcome) -> None:
        if not self.owner.is_dead and not self.is_cancelled:
            self.owner.inbox.put(RoundReported(outcome))

    def _end(self) -> None:
        self._has_ended = True
        if not self.is_cancelled:
            outcome = replace(self.books.outcome(self._lost), spent=self.gate.spent)
            if self.world.trace is not None:
                shown = [f"{one.partition} {one.position.mark} {one.position.ahead}" for one in outcome.partitions]
                self.world.say(self.owner, f"round {self.lease.round} ends:", *shown)
            self._post(RoundEnded(self.lease, outcome, None))


def _shown(item: LeasedPartition) -> str:
    one = item.position
    return f"{item.partition} at {one.mark} ahead {one.ahead} replay {one.replay} epoch {item.epoch}"
