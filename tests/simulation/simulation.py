"""One schedule from its beginning to the verdict."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.cluster import GROUP, OPERATOR, RETRY, TOPIC, TOPIC_ID, Cluster, Log
from tests.simulation.coordinator import Coordinator
from tests.simulation.effects import Effects
from tests.simulation.fibers import WorkerFiber
from tests.simulation.frames import Writer
from tests.simulation.judge import Judge
from tests.simulation.plan import Fault, Plan
from tests.simulation.process import Process
from tests.simulation.producer import simulated_clients
from tests.simulation.world import World
from tidegate.engine.backing import Backer
from tidegate.engine.board import Board
from tidegate.engine.committer import Committer
from tidegate.engine.control import PauseAsked, StopAsked
from tidegate.engine.driver import Driver
from tidegate.engine.finish import Finish
from tidegate.engine.frame_board import FrameBoard
from tidegate.engine.marks import MarkFinder
from tidegate.engine.rewinder import RewindAsked, Rewinder
from tidegate.engine.starting import Starting
from tidegate.engine.vault import Vault
from tidegate.kafka.transactions import Transactions
from tidegate.ledger import Home, encode
from tidegate.records import Commit, Partition, Position

if TYPE_CHECKING:
    from tests.simulation.messages import Message
    from tests.simulation.rounds import Task

LONGEST_FAULT = 9.0
ROUGH_SECONDS = 15.0
EDGE_TROUBLE = 0.05
"""How often something happens to a worker between two steps of a transaction."""
PATIENCE_SECONDS = 300.0
"""When the faults are over, everything is settled and committed within this (virtual) time."""
SLOW_PLANS = 3
RECORDS_RUN = 100
"""So many runs of records are left then, at most: where a rate was chosen, each has its time."""


@dataclass(frozen=True)
class Made:
    """Of which classes a process is made: the product's own, or one that lies, to see whether that is noticed."""

    board: type[Board] = Board
    committer: type[Committer] = Committer
    marks: type[MarkFinder] = MarkFinder
    rewinder: type[Rewinder] = Rewinder
    driver: type[Driver] = Driver
    starting: type[Starting] = Starting
    frame_board: type[FrameBoard] = FrameBoard
    finish: type[Finish] = Finish
    backer: type[Backer] = Backer
    vault: type[Vault] = Vault
    transactions: type[Transactions] = Transactions


@dataclass
class Ran:
    """What came of a schedule."""

    breaches: list[str]
    trace: list[str]
    seconds: float
    """Virtual."""
    endings: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    """How often what happened, to prove that something did."""


class Simulation:
    """A group of processes, the broker, an operator, and faults."""

    def __init__(self, plan: Plan, made: Made = Made(), *, is_tracing: bool = False) -> None:  # noqa: B008  # frozen
        self.plan, self.made = plan, made
        self.world = World(plan.seed, is_tracing=is_tracing)
        logs = {
            Partition(TOPIC, number): Log(count, {at for tp, at in plan.gaps if tp == number})
            for number, count in enumerate(plan.records)
        }
        logs |= {Partition(RETRY, number): Log(0, set()) for number in range(plan.retry_partitions)}
        self.cluster = Cluster(self.world, logs)
        self.tasks: list[Task] = []
        self.judge = Judge(self.world, plan, self.cluster, self.tasks)
        self.writer = Writer(self.judge.breach)
        self.effects = Effects(self.judge, self.cluster)
        self.coordinator = Coordinator(self.world, self.cluster, self.effects)
        if plan.store != "none":
            self.cluster.watch = self.effects.stood
            self.judge.promised = self.coordinator.promised
        self.worker_fibers: list[WorkerFiber] = []
        self.endings: Counter[str] = Counter()
        self._misfortunes: Counter[tuple[int, int]] = Counter()
        self._sessions = self._pids = self._starts = self._replays = 0
        self._processes: dict[int, Process] = {}
        self._everyone: list[Process] = []
        self._faults_left = len(plan.faults)
        self._calm_at = max((end for _, end in plan.outages), default=0.0)
        self._patience = PATIENCE_SECONDS + (0.0 if plan.rate is None else RECORDS_RUN / plan.rate)
        if plan.is_frames and any(fault.kind == "slow" for fault in plan.faults):
            self._patience *= SLOW_PLANS  # each of its rounds asks first, and every answer takes up to a minute
        self._is_closing = False
        self._in_maintenance: Fault | None = None
        self._rewinds: list[tuple[Process, RewindAsked]] = []

    def run(self) -> Ran:
        with simulated_clients(self) if self.plan.store != "none" else contextlib.nullcontext():
            try:
                self._begin()
                self._go_on()
            finally:
                for process in self._everyone:
                    process.bury()
                for fiber in self.worker_fibers:
                    fiber.bury()
        breaches = self.judge.verdict()
        world = self.world
        counts = Counter(fault.kind for fault in self.judge.faults)
        counts.update(commits=len(self.cluster.commits), rounds=len(self.tasks), expelled=len(self.cluster.group.ended))
        counts.update(rewinds=self._replays, settled=len(self.judge.events), starts=self._starts)
        counts["caught up"] = self.judge.returns
        counts["found the sink away"] = self.judge.met_outage
        counts["written to the retry topic"] = sum(
            log.end for tp, log in self.cluster.logs.items() if tp.topic == RETRY
        )
        counts.update(self.coordinator.counts)
        return Ran(breaches, world.trace or [], world.now, self.endings, counts)

    def _begin(self) -> None:
        world = self.world
        for slot in range(self.plan.processes):
            world.at(world.random() * 2 * slot, self._start, slot)
        for fault in self.plan.faults:
            world.at(fault.at, self._strike, fault)

    def _go_on(self) -> None:
        step, world = self.world.step, self.world
        count = 0
        while step():
            count += 1
            if count & 7:
                continue
            if world.crashes or self.judge.breaches:
                return
            if self._is_closing:
                if not self._processes:
                    return
            elif self._is_done:
                self._close()
            if world.now > self._calm_at + self._patience and not self._faults_left:
                self._complain()
                return

    @property
    def _is_done(self) -> bool:
        if self._faults_left or self._in_maintenance is not None or self.world.now < self._calm_at:
            return False
        if any(not process.is_dead and not asked.answer.done() for process, asked in self._rewinds):
            return False
        return self.cluster.is_done

    def _close(self) -> None:
        self._is_closing = True
        if self.plan.until_caught_up:
            self.world.say("all is committed; everybody ends")
            return
        self.world.say("all is committed; everybody is asked to stop")
        for process in self._processes.values():
            process.inbox.put(StopAsked())

    def _complain(self) -> None:
        stands = {str(tp): one.mark for tp, one in self.cluster.offsets.items()}
        what = "some do not stop" if self._is_closing else f"the group stands at {stands}"
        self.judge.breach(f"not done {self._patience:.0f} s after the last fault: {what}")

    # --- processes

    def _start(self, slot: int) -> None:
        if self._is_closing or self._in_maintenance is not None or slot in self._processes:
            return
        self._starts += 1
        process = self._processes[slot] = Process(self, slot, self._starts)
        self._everyone.append(process)
        self.world.say(process, "starts")

    def process_ended(self, process: Process) -> None:
        if self._processes.get(process.slot) is process:
            del self._processes[process.slot]
            self.world.at(0.2 + 3 * self.world.random(), self._start, process.slot)

    def tasks_of(self, process: Process) -> list[Task]:
        return [task for task in self.tasks if task.owner is process and not task.is_over]

    def next_session(self) -> int:
        self._sessions += 1
        return self._sessions

    def next_pid(self) -> int:
        self._pids += 1
        return self._pids

    def misfortune(self, message: Message) -> str | None:
        """What happens to whoever runs this record now."""
        if any(begin <= self.world.now < end for begin, end in self.plan.outages):
            self.judge.met_outage += 1
            return "away"
        partition, at = message.origin
        place = partition.number, at
        kind, times = self.plan.bad.get(place, ("", 0))
        self._misfortunes[place] += 1
        return kind if self._misfortunes[place] <= times else None

    # --- faults

    @property
    def is_rough(self) -> bool:
        """Whether things go wrong by chance, too."""
        return self.world.now < ROUGH_SECONDS

    def meet_edge(self, task: Task) -> None:
        """A task is between two steps of a transaction: it may die there, or stand still."""
        if not self.is_rough or self.world.random() >= EDGE_TROUBLE:
            return
        if self.world.random() < 0.5:
            self.world.say(task, "dies between two steps")
            task.die()
        else:
            longest = self.world.pick((1.0, LONGEST_FAULT, 3 * LONGEST_FAULT))
            task.hangs_until = self.world.now + longest * self.world.random()
            self.world.say(task, "stands still between two steps until", task.hangs_until)

    def note_fault(self, kind: str, driver: int | None = None, worker: int | None = None) -> None:
        self.judge.fault(kind, driver, worker)

    def _strike(self, fault: Fault) -> None:
        self._faults_left -= 1
        self.world.say("***", fault)
        self._calm_at = max(self._calm_at, self.world.now + LONGEST_FAULT * fault.size)
        getattr(self, f"_{fault.kind}")(fault)

    def _process(self, fault: Fault) -> Process | None:
        return self._processes.get(fault.where % self.plan.processes)

    def _partition(self, fault: Fault) -> Partition:
        return Partition(TOPIC, fault.where % len(self.plan.records))

    def _task(self, fault: Fault) -> Task | None:
        alive = [task for task in self.tasks if not task.is_over]
        return alive[fault.where % len(alive)] if alive else None

    def _kill(self, fault: Fault) -> None:
        if (process := self._process(fault)) is not None:
            process.kill()

    def _stop(self, fault: Fault) -> None:
        if (process := self._process(fault)) is not None:
            process.inbox.put(StopAsked())

    def _freeze(self, fault: Fault) -> None:
        if (process := self._process(fault)) is not None:
            process.freeze(LONGEST_FAULT * fault.size)

    def _cut(self, fault: Fault) -> None:
        if (process := self._process(fault)) is not None:
            process.cut_off(LONGEST_FAULT * fault.size)

    def _die(self, fault: Fault) -> None:
        if (task := self._task(fault)) is not None:
            task.die()

    def _hang(self, fault: Fault) -> None:
        if (task := self._task(fault)) is not None:
            task.hangs_until = self.world.now + 3 * LONGEST_FAULT * fault.size

    def _loading(self, fault: Fault) -> None:
        self.cluster.loading_until = self.world.now + LONGEST_FAULT * fault.size**2

    def _disown(self, _fault: Fault) -> None:
        self.cluster.group.disown()

    def _deaf(self, fault: Fault) -> None:
        if (process := self._process(fault)) is not None:
            process.deaf_until = self.world.now + LONGEST_FAULT * fault.size**2

    def _slow(self, fault: Fault) -> None:
        if (process := self._process(fault)) is not None:
            process.slowness = 1 + 30 * fault.size

    def _retention(self, fault: Fault) -> None:
        partition = self._partition(fault)
        self.cluster.remove(partition, round(self.cluster.logs[partition].end * fault.size))

    def _resize(self, fault: Fault) -> None:
        """Spark has room for so many rounds from now on; an executor that is gone takes a task along."""
        if (process := self._process(fault)) is not None and process.board is not None:
            process.board.resize(1 + int(3 * fault.size))
            for task in self.tasks_of(process)[-1:]:
                task.die()

    def _pause(self, fault: Fault) -> None:
        if (process := self._process(fault)) is not None:
            process.inbox.put(PauseAsked(is_paused=True))
            self.world.at(LONGEST_FAULT * fault.size, process.inbox.put, PauseAsked(is_paused=False))

    def _produce(self, fault: Fault) -> None:
        log = self.cluster.logs[self._partition(fault)]
        log.end += 1 + int(4 * fault.size)

    def _rewind(self, fault: Fault) -> None:
        partition = self._partition(fault)
        aim = int((self.cluster.logs[partition].end + 1) * fault.size)
        for process in self._processes.values():
            if process.board is not None and partition in process.board.owned:
                self._replays += 1
                asked = RewindAsked(self._replays, {partition: aim})
                asked.answer.add_done_callback(partial(self._answered, asked))
                self._rewinds.append((process, asked))
                process.inbox.put(asked)
                return

    def _answered(self, asked: RewindAsked, answer: Future[Mapping[Partition, int]]) -> None:
        if answer.exception() is None:
            self.judge.rewound(asked)

    def _maintenance(self, fault: Fault) -> None:
        """Everybody stops, the group is rewound while nobody is there, everybody starts again."""
        if self._in_maintenance is not None:
            return
        self._in_maintenance = fault
        for process in self._processes.values():
            process.inbox.put(StopAsked())
        self.world.at(1.0, self._rewind_empty_group)

    def _rewind_empty_group(self) -> None:
        if self._processes or self.cluster.group.seats:
            self.world.at(1.0, self._rewind_empty_group)
            return
        fault = self._in_maintenance
        assert fault is not None
        self._in_maintenance = None
        self._calm_at = max(self._calm_at, self.world.now)
        partition = self._partition(fault)
        aim = int((self.cluster.logs[partition].end + 1) * fault.size)
        self._replays += 1
        position = Position(max(aim, self.cluster.logs[partition].beginning), replay=self._replays)
        metadata = encode(position, Home(GROUP, TOPIC_ID, partition.number, ""))
        self.cluster.store({partition: Commit(position.mark, metadata)}, OPERATOR)
        for slot in range(self.plan.processes):
            self.world.at(self.world.random(), self._start, slot)
