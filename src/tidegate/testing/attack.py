"""Does to running pipelines what a schedule says, by real means, and keeps account of it."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tidegate.errors import TidegateError
from tidegate.testing import faults
from tidegate.testing.evidence import Struck, Witness
from tidegate.testing.nodes import NOT_WHOLE, choose_node, duties_of
from tidegate.testing.operators import Operators
from tidegate.testing.programs import Program, kill
from tidegate.testing.proxy import Delay, Disturbance, RefuseCommits
from tidegate.testing.requests import COORDINATOR_LOAD_IN_PROGRESS
from tidegate.testing.sayings import said_in
from tidegate.testing.switches import FAIL, FILL, SLOW

if TYPE_CHECKING:
    from tidegate.testing.schedule import Due, Schedule
    from tidegate.testing.stage import Stage
    from tidegate.testing.trial import Trial

_TICK_SECONDS = 0.1
_GRACE_SECONDS = 12.0
"""How long after its end a fault may still make a member lose its partitions, or a worker speak late."""
_EVERY_API = range(100)
_SAID_SECONDS = 30.0
"""How long after its end a fault may show in what a program says of itself: that a sink is away, every ten seconds."""
_STOP_SECONDS = 60.0
_WHOLE_SECONDS = 60.0
"""How long a node that came back may take to catch up with the others before the next one is struck."""
_WORK_SECONDS = 3.0
_TICKS_BETWEEN_LOOKS = 10
_NOT_FULL = "but it said nothing of its history"

Undo = Callable[[], None]


class Attack:
    """Carries out schedules against trials that share a stage."""

    def __init__(self, stage: Stage, trials: Sequence[Trial], say: Callable[[str], None] = lambda _: None) -> None:
        self._stage = stage
        self._trials = list(trials)
        self._say = say
        self.struck: list[Struck] = []
        self._open: list[tuple[float, Struck, Undo]] = []
        self._witness = Witness()
        self._operators = Operators()
        for trial in trials:
            trial.attacks.append(self)

    def run(self, schedule: Schedule) -> None:
        """Strike as planned, keep the copies running, and return when time is up and every fault is over."""
        passed = 0.0
        waiting = list(schedule.due)
        try:
            while passed < schedule.seconds:
                while waiting and waiting[0].at_seconds <= passed:
                    self.strike(waiting.pop(0))
                # Time that a fault took, a broker's start for example, does not count: the next would follow at once.
                self._pass()
                passed += _TICK_SECONDS
        finally:
            self._end_those(until=None)
        self._operators.wait()
        while self._witness.is_looking:
            self._witness.look()
            self._keep()

    def _pass(self) -> None:
        """Let a moment pass: what is over ends, what was awaited is seen, what has ended is started again."""
        self._end_those(until=time.monotonic())
        self._witness.look()
        self._keep()

    def _keep(self) -> None:
        for trial in self._trials:
            trial.keep()
        time.sleep(_TICK_SECONDS)

    def strike(self, due: Due) -> Struck:
        """Cause one fault now."""
        fault = due.fault
        able = [one for one in self._trials if type(fault) not in one.subject.spared]
        trial = able[min(int(due.draw * len(able)), len(able) - 1)] if able else None
        everybody = isinstance(fault, (*_OF_ALL, *_OF_A_NODE))
        whom = "" if trial is None or everybody else trial.subject.group
        struck = Struck(fault, _now_ms(), whom)
        self.struck.append(struck)
        if trial is None and not everybody:
            struck.told, struck.is_possible = "no pipeline here can have it", False
        else:
            self._cause(struck, trial, due.draw)
        if not struck.ended_ms:
            struck.ended_ms = _now_ms()
        self._say(str(struck))
        return struck

    def _cause(self, struck: Struck, trial: Trial | None, draw: float) -> None:
        fault = struck.fault
        try:
            if isinstance(fault, _OF_A_NODE):
                self._strike_node(struck, draw)
            elif isinstance(fault, _OF_ALL):
                self._strike_all(struck)
            elif trial is not None and isinstance(fault, _OF_A_COPY):
                copies = [program for program in trial.copies if program.code is None]
                if copies:
                    program = copies[int(draw * 1000) % len(copies)]
                    # One that strikes while nothing runs proves little.
                    trial.log.wait_for_work(program.pid, _WORK_SECONDS)
                    struck.at_ms = _now_ms()
                    self._strike_copy(struck, trial, program)
                else:
                    struck.told = "no copy of it ran just then"
            elif trial is not None:
                self._strike_pipeline(struck, trial)
        except TidegateError as error:
            struck.happened = False
            struck.told = f"not possible just then: {error}"

    # --- of a copy

    def _strike_copy(self, struck: Struck, trial: Trial, program: Program) -> None:
        fault, pid = struck.fault, program.pid
        struck.happened, struck.told, struck.driver = True, f"process {pid}", pid
        match fault:
            case faults.KillDriver():
                trial.may_end(program)
                trial.log.fault("driver_killed", driver=pid)
                program.kill()
            case faults.CutPower():
                trial.may_end(program)
                trial.log.fault("power_cut", driver=pid)
                program.kill_all()
            case faults.Rebalance():
                trial.may_end(program)
                program.send(signal.SIGTERM)
                look = partial(_ended_well, program)
                self._witness.watch(struck, look, within=_STOP_SECONDS, missing="but it did not end with 0")
            case faults.KillExecutor():
                self._kill_executor(struck, trial, program)
            case faults.KillWorker():
                self._kill_worker(struck, trial, program)
            case faults.FreezeDriver(seconds=seconds):
                self._freeze(struck, trial, program, seconds)
            case faults.FillDisk(seconds=seconds):
                program.limit_files()
                self._later(struck, seconds, program.unlimit_files)
                look = partial(_said_since, struck, [program], "history_failed")
                self._witness.watch(struck, look, within=seconds + _SAID_SECONDS, missing=_NOT_FULL)

    @staticmethod
    def _kill_executor(struck: Struck, trial: Trial, program: Program) -> None:
        javas = program.javas()
        if not javas:
            struck.happened, struck.told = False, "it had no Java just then"
            return
        trial.may_end(program)
        trial.log.fault("executor_killed", driver=program.pid)
        for java in javas:
            kill(java)
        struck.told = f"Java {javas} of process {program.pid}"

    def _freeze(self, struck: Struck, trial: Trial, program: Program, seconds: float) -> None:
        trial.log.fault("driver_frozen", driver=program.pid, lasts_seconds=seconds + _GRACE_SECONDS)
        program.send(signal.SIGSTOP)
        struck.happened = False

        def thaw() -> None:
            struck.happened = program.is_frozen
            program.send(signal.SIGCONT)
            struck.told += " stood still" if struck.happened else " had ended"
            if struck.happened and seconds > trial.session_seconds:
                look = partial(_said_since, struck, [program], "lost")
                self._witness.watch(struck, look, within=_SAID_SECONDS, missing="but lost no partitions")

        self._later(struck, seconds, thaw)

    @staticmethod
    def _kill_worker(struck: Struck, trial: Trial, program: Program) -> None:
        workers = program.workers()
        at_work = [event.pid for event in trial.log.read().events[-50:] if event.pid in workers]
        victim = at_work[-1] if at_work else workers[0] if workers else None
        if victim is None:
            struck.happened, struck.told = False, "it had no worker just then"
            return
        trial.log.fault("worker_killed", worker=victim)
        kill(victim)
        struck.told = f"worker {victim} of process {program.pid}"

    # --- of a pipeline

    def _strike_pipeline(self, struck: Struck, trial: Trial) -> None:
        match struck.fault:
            case faults.FailSink(seconds=seconds):
                away = trial.subject.sink_away
                if away is None:
                    self._turn_for_a_record(struck, trial, FAIL, seconds)
                else:
                    self._take_away(struck, trial, away, seconds)
            case faults.SlowSink(seconds=seconds):
                self._turn_for_a_record(struck, trial, SLOW, seconds)
            case faults.FillMetadata(seconds=seconds, records=records):
                self._turn(struck, trial, FILL, seconds)
                self._operators.fill(struck, trial, records, seconds)
            case faults.DeleteSettled():
                self._operators.delete_settled(struck, trial)
            case faults.RewindGroup(records=records):
                self._operators.rewind(struck, trial, records)
            case faults.RedriveDead():
                self._operators.redrive(struck, trial)

    def _turn(self, struck: Struck, trial: Trial, name: str, seconds: float) -> None:
        trial.switch.turn(name, on=True)
        self._later(struck, seconds, lambda: trial.switch.turn(name, on=False))

    def _turn_for_a_record(self, struck: Struck, trial: Trial, name: str, seconds: float) -> None:
        self._turn(struck, trial, name, seconds)
        look = partial(_met, trial, name)
        self._witness.watch(struck, look, within=seconds, missing="no record met it")

    def _take_away(self, struck: Struck, trial: Trial, away: Callable[[bool], None], seconds: float) -> None:
        away(True)  # noqa: FBT003  # a user's function of one argument
        self._later(struck, seconds, lambda: away(False))  # noqa: FBT003
        look = partial(_said_since, struck, trial.copies, "held", "store_away", "round_failed")
        self._witness.watch(struck, look, within=seconds + _SAID_SECONDS, missing="no copy said that it was away")

    # --- of everybody

    def _strike_node(self, struck: Struck, draw: float) -> None:
        cluster = self._stage.cluster
        if isinstance(struck.fault, faults.LoseNode) and len(cluster.nodes) == 1:
            struck.told, struck.is_possible = "there is one node only", False
            return
        number = self._sound_node(draw)
        if number is None:
            struck.told = NOT_WHOLE
            return
        struck.at_ms = _now_ms()
        node = cluster.node(number)
        struck.told = duties_of(cluster, number, [trial.subject.group for trial in self._trials])
        match struck.fault:
            case faults.KillBroker(seconds=seconds):
                self._note_all("broker_killed", seconds)
                node.kill()
                self._later(struck, seconds, lambda: _start(node.start))
            case faults.LoseNode(seconds=seconds):
                self._note_all("node_lost", seconds)
                cluster.lose(number)
                self._later(struck, seconds, lambda: _start(node.start))
            case faults.RestartBroker():
                self._note_all("broker_restarted", 0)
                node.restart()
        struck.happened = True  # what was ended was away when the call returned

    def _sound_node(self, draw: float) -> int | None:
        """Return the node to strike, once the others can do without it; None where that does not come in time."""
        deadline = time.monotonic() + _WHOLE_SECONDS
        while True:
            with contextlib.suppress(TidegateError):  # none answers just now
                if (number := choose_node(self._stage.cluster, draw)) is not None:
                    return number
            if time.monotonic() > deadline:
                return None
            for _ in range(_TICKS_BETWEEN_LOOKS):
                self._pass()

    def _strike_all(self, struck: Struck) -> None:
        struck.happened = True  # what is cut was so when the call returns
        proxy = self._stage.proxy
        match struck.fault:
            case faults.CutConnections():
                self._note_all("connections_cut", 0)
                self._count(struck, proxy.cut())
            case faults.DropConnections(seconds=seconds):
                self._note_all("connections_dropped", seconds)
                self._count(struck, proxy.unplug())
                self._later(struck, seconds, proxy.plug)
            case faults.DelayRequests(seconds=seconds, by_seconds=by_seconds):
                self._note_all("requests_delayed", seconds)
                self._disturb(struck, Delay(_EVERY_API, seconds=by_seconds), seconds)
            case faults.DenyCommits(seconds=seconds):
                self._disturb(struck, RefuseCommits(COORDINATOR_LOAD_IN_PROGRESS), seconds)
            case faults.SkewClock(seconds=seconds, days=days):
                self._skew(struck, seconds, days)

    @staticmethod
    def _count(struck: Struck, connections: int) -> None:
        struck.happened, struck.told = connections > 0, f"{connections} connections"

    def _skew(self, struck: Struck, seconds: float, days: int) -> None:
        before = self._produced_skewed
        for trial in self._trials:
            trial.skew_days = days

        def set_right() -> None:
            for trial in self._trials:
                trial.skew_days = 0

        self._later(struck, seconds, set_right)

        def look() -> str:
            count = self._produced_skewed - before
            return f"{count} records carry a wrong time" if count else ""

        # What was being written when the clock was set right arrives a little later.
        self._witness.watch(struck, look, within=seconds + _GRACE_SECONDS, missing="nothing was produced by it")

    @property
    def _produced_skewed(self) -> int:
        return sum(trial.produced_skewed for trial in self._trials)

    def _note_all(self, kind: str, seconds: float) -> None:
        for trial in self._trials:
            trial.log.fault(kind, lasts_seconds=seconds + _GRACE_SECONDS)

    def _disturb(self, struck: Struck, disturbance: Disturbance, seconds: float) -> None:
        stack = contextlib.ExitStack()
        stack.enter_context(self._stage.proxy.under(disturbance))

        def end() -> None:
            stack.close()
            struck.happened = disturbance.struck > 0
            struck.told = f"{disturbance.struck} requests"

        struck.happened = False
        self._later(struck, seconds, end)

    # --- what lasts

    def _later(self, struck: Struck, seconds: float, undo: Undo) -> None:
        struck.ended_ms = _now_ms() + round(seconds * 1000)
        self._open.append((time.monotonic() + seconds, struck, undo))

    def _end_those(self, *, until: float | None) -> None:
        over = [one for one in self._open if until is None or one[0] <= until]
        self._open = [one for one in self._open if one not in over]
        # One that cannot be ended, a Kafka that does not start again for example, keeps no other one from its end.
        with contextlib.ExitStack() as ending:
            for _, struck, undo in reversed(over):
                ending.callback(_end, struck, undo)


_OF_A_COPY = (
    faults.KillDriver,
    faults.CutPower,
    faults.Rebalance,
    faults.KillExecutor,
    faults.KillWorker,
    faults.FreezeDriver,
    faults.FillDisk,
)
_OF_A_NODE = (faults.KillBroker, faults.RestartBroker, faults.LoseNode)
_OF_ALL = (
    faults.CutConnections,
    faults.DropConnections,
    faults.DelayRequests,
    faults.DenyCommits,
    faults.SkewClock,
)


def _said_since(struck: Struck, programs: Sequence[Program], *actions: str) -> str:
    """Return what the first of these lines says that came after a fault."""
    for program in programs:
        for said in said_in(program.err, actions):
            if said.at_ms >= struck.at_ms:
                return said.message
    return ""


def _ended_well(program: Program) -> str:
    return "it ended with 0" if program.code == 0 else ""


def _met(trial: Trial, name: str) -> str:
    return "it was met" if trial.switch.was_met(name) else ""


def _end(struck: Struck, undo: Undo) -> None:
    undo()
    struck.ended_ms = _now_ms()


def _start(start: Callable[[], object]) -> None:
    start()


def _now_ms() -> int:
    return int(time.time() * 1000)
