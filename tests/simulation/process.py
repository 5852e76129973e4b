"""One simulated process: the real driver with all its real helpers, on simulated clients and rounds."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.client import SimAdmin, SimConsumer, SimMember
from tests.simulation.cluster import GROUP, KAFKA, RETRY, SESSION_SECONDS, TOPIC
from tests.simulation.frames import SimFrameLanes
from tests.simulation.once import SimOnceLanes, Worker
from tests.simulation.rounds import SimLanes
from tests.simulation.world import Fiber
from tidegate.beside import Beside
from tidegate.engine.backing import Backer
from tidegate.engine.board import Board
from tidegate.engine.bulletin import Bulletin
from tidegate.engine.control import State, StopAsked
from tidegate.engine.events import Event, Helpers
from tidegate.engine.finish import Goal
from tidegate.engine.lookout import Lookout
from tidegate.engine.parts import LIVE_LOT_SECONDS, PLAIN_LOT_SECONDS
from tidegate.engine.planner import Planner
from tidegate.engine.planning import RoundLimits
from tidegate.engine.purse import Purse
from tidegate.engine.starting import Starting
from tidegate.engine.tally import Tally
from tidegate.engine.topics import Topics
from tidegate.engine.truth import Truth
from tidegate.errors import Stalled, TidegateError
from tidegate.kafka.member import Callbacks, Joining, Member
from tidegate.ledger import decode_any
from tidegate.pipeline import Source
from tidegate.records import Limits, Partition, Position, Report

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Ends = dict[Partition, int]

JOINING = Joining(GROUP, SESSION_SECONDS)
SOURCE = Source((TOPIC,), GROUP, None, "earliest", lost="earliest")
LIMITS = Limits(5.0, 1.0, 3.0, 20.0)
STALL_SECONDS = 75.0
"""Two turns of a lane whose tasks start as late as may be are no stall."""
NAPS = (0.05, 0.5, 4.0)
"""How late the loop may wake, where nothing comes: a machine is busy."""


class Inbox(queue.SimpleQueue[Event]):
    """The driver's queue: where it waits, others go on."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._events: deque[Event] = deque()

    def put(self, item: Event, block: bool = True, timeout: float | None = None) -> None:
        assert block
        assert timeout is None
        self._process.was_asked_to_stop |= isinstance(item, StopAsked)
        self._events.append(item)
        self._process.rouse()

    def get(self, block: bool = True, timeout: float | None = None) -> Event:
        if not self._events and block and timeout:
            self._process.nap(timeout)
        if not self._events:
            raise queue.Empty
        return self._events.popleft()

    def get_nowait(self) -> Event:
        return self.get(block=False)


class SimAsker:
    """Asks in a fiber of its own."""

    def __init__(self, process: Process, name: str) -> None:
        self._process = process
        self._name = name
        self._is_closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def ask() -> None:
            try:
                answer = fn(*args, **kwargs)
            except TidegateError as error:
                future.set_exception(error)
            else:
                future.set_result(answer)

        if not self._is_closed:
            self._process.begin(self._name, ask)
        return future

    def shutdown(self, wait: bool = True) -> None:
        assert not wait
        self._is_closed = True


class Silence(Bulletin):
    """Nobody watches."""

    def tell(self, state: State, board: Board, member: Member, error: Exception | None) -> None:
        pass


class Process:
    """A program that runs the pipeline, from its start to its end or its kill."""

    def __init__(self, sim: Simulation, slot: int, number: int) -> None:
        self.sim, self.world, self.cluster, self.slot = sim, sim.world, sim.cluster, slot
        self._name = f"P{slot}.{number}"
        self.is_dead = self.was_asked_to_stop = False
        self._frozen_until = self._cut_until = self.deaf_until = 0.0
        self.silent_since = -1.0
        self.slowness = 1.0
        self.board: Board | None = None
        self.consumer: SimConsumer | None = None
        self.report: Report | None = None
        self.inbox = Inbox(self)
        self.workers: list[Worker] = []
        self._fibers: list[Fiber] = []
        self._main = self.begin("main", self._run)

    def __str__(self) -> str:
        return self._name

    # --- what its parts ask of it

    def begin(self, name: str, function: Callable[[], None]) -> Fiber:
        fiber = Fiber(self.world, f"{self._name} {name}", function, lambda: self._frozen_until - self.world.now)
        fiber.owner = self
        self._fibers.append(fiber)
        return fiber

    def sleep(self, seconds: float) -> None:
        """Give way for so long, in whichever fiber this is."""
        fiber = self.world.running
        assert fiber is not None
        fiber.sleep(seconds)

    def nap(self, seconds: float) -> None:
        """Wait for an event or an answer of the group."""
        self.sleep(max(seconds, self.world.pick(NAPS)))

    def rouse(self) -> None:
        self._main.rouse()

    @property
    def session(self) -> int:
        assert self.consumer is not None
        return self.consumer.session

    @property
    def is_cut(self) -> bool:
        return self.world.now < self._cut_until

    @property
    def cut_seconds(self) -> float:
        """For how long nothing will come through."""
        return max(0.0, self._cut_until - self.world.now)

    @property
    def silent_seconds(self) -> float:
        """For how long its heartbeats will not come through."""
        return max(0.0, self._cut_until - self.world.now, self._frozen_until - self.world.now)

    # --- what is done to it

    def kill(self) -> None:
        if self.is_dead:
            return
        self.world.say(self, "is killed")
        if self.consumer is not None:
            self.sim.note_fault("killed", driver=self.session)
        self._end()
        for task in self.sim.tasks_of(self):
            task.orphan()
        if self.consumer is not None:
            seconds = SESSION_SECONDS * (0.75 + 0.25 * self.world.random())
            self.world.at(seconds, self.cluster.group.expel, self.consumer.member_id)

    def freeze(self, seconds: float) -> None:
        self._frozen_until = self.world.now + seconds
        self._fall_silent()

    def cut_off(self, seconds: float) -> None:
        self._cut_until = self.world.now + seconds
        self._fall_silent()

    def _fall_silent(self) -> None:
        since = self.silent_since = self.world.now
        if self.consumer is not None and self.silent_seconds > SESSION_SECONDS:
            member = self.consumer.member_id
            self.world.at(SESSION_SECONDS, lambda: self.cluster.group.expel(member, silent_since=since))

    def _end(self) -> None:
        self.is_dead = True
        for fiber in self._fibers:
            fiber.kill()
        self.sim.process_ended(self)

    def bury(self) -> None:
        for fiber in self._fibers:
            fiber.bury()

    # --- its life

    def _run(self) -> None:
        try:
            self.report = self._drive()
            if self.sim.plan.until_caught_up and self.report.exit_code == 0 and not self.was_asked_to_stop:
                self.sim.judge.returned(self)
        except TidegateError as error:
            self.world.say(self, "ends:", error.happened)
            if isinstance(error, Stalled):  # nothing here hangs for so long
                self.sim.judge.breach(f"{self} ends: {error.happened}")
            self.sim.endings[type(error).__name__] += 1
        if self.consumer is not None and self.board is not None and self.board.uncommitted():
            self.sim.note_fault("ended without its last commit", driver=self.session)
        self.world.say(self, "has ended")
        self._end()

    def _drive(self) -> Report:
        plan, world, inbox = self.sim.plan, self.world, self.inbox
        beside = Beside(world.tell_time, self.sleep, lambda name: SimAsker(self, name), world.tell_time)
        admin = SimAdmin(self, self.cluster)
        topics = Topics(admin.existing([TOPIC]), admin.existing([RETRY]))
        made = self.sim.made
        starting = made.starting(admin, Truth(admin, GROUP, None, None), SOURCE, topics, "")
        if plan.is_frames:
            self._wait_for_its_turn()
        starting.before_joining()
        if plan.until_caught_up:
            self.sim.judge.is_to_reach(self, ends := admin.ends(self.cluster.sources))
        else:
            ends = None
        board, lanes = self._frames(beside, admin, ends) if plan.is_frames else self._records(ends)
        self.board = board
        tally = Tally(GROUP, 300.0, beside)
        committer = made.committer(board, starting.metadata, beside)
        lookout = Lookout(admin, topics, None, STALL_SECONDS, inbox.put, beside)
        backer = self._backer(starting)
        helpers = Helpers(
            made.marks(board, starting, inbox.put, beside),
            lookout,
            made.finish(
                partial(admin.committed, GROUP),
                admin.ends,
                partial(admin.ends, committed_only=False),
                Goal(ends, topics, waits=True),
                inbox.put,
                beside,
            ),
            made.rewinder(board, starting, inbox.put, beside, backer),
            Silence(str(self), tally, lookout, committer, lambda _status: None, beside),
            None,
            purse=None
            if plan.rate is None
            else Purse(plan.rate, LIVE_LOT_SECONDS if plan.is_live else PLAIN_LOT_SECONDS, self.world.now),
            backer=backer,
        )
        driver = made.driver(
            board, lanes, helpers, committer, tally, inbox, stop_seconds=plan.stop_seconds, beside=beside
        )
        return driver.run(self._open_member, topics, SOURCE)

    def _records(self, ends: Ends | None) -> tuple[Board, SimLanes]:
        plan = self.sim.plan
        limits, rounds_commit = replace(LIMITS, records=plan.most_records), plan.store == "kafka"
        board = self.sim.made.board(plan.lanes, limits, ends, rounds_commit=rounds_commit)
        lanes = SimLanes if plan.store == "none" else SimOnceLanes
        return board, lanes(self, is_live=plan.is_live)

    def _backer(self, starting: Starting) -> Backer | None:
        if self.sim.plan.store == "none":
            return None
        family, in_transactions = f"{GROUP}.{self}", self.sim.plan.store == "kafka"
        made = self.sim.made.backer
        return made(KAFKA, GROUP, family, starting.topic_id, self.inbox.put, in_transactions=in_transactions)

    def _frames(self, beside: Beside, admin: SimAdmin, ends: Ends | None) -> tuple[Board, SimLanes]:
        board = self.sim.made.frame_board(LIMITS, ends, lambda: self.cluster.logs)
        limits = RoundLimits(self.sim.plan.most_records or 3, 1_000_000, 5.0)

        def stand(partitions: list[Partition]) -> dict[Partition, Position]:
            found = admin.committed(GROUP, partitions)
            return {tp: decode_any(GROUP, tp, one.mark, one.metadata).position for tp, one in found.items()}

        return board, SimFrameLanes(self, Planner(board, admin.ends, stand, GROUP, limits, 0.5, beside))

    def _wait_for_its_turn(self) -> None:
        while self.cluster.group.seats:
            self.sleep(0.5)

    def _open_member(self, callbacks: Callbacks) -> Member:
        beside = Beside(self.world.tell_time, self.sleep)

        def open_consumer(settings: dict[str, Any]) -> Any:
            self.consumer = SimConsumer(self, settings)
            return self.consumer

        return SimMember(KAFKA, JOINING, callbacks, beside, open_consumer)
