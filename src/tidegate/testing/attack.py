"""Does to running pipelines what a schedule says, by real means, and keeps account of it."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.errors import TidegateError
from tidegate.history.store import History
from tidegate.kafka.admin import Admin
from tidegate.kafka.cutting import delete_before
from tidegate.ops.reach import Reach
from tidegate.ops.redrive import redrive
from tidegate.ops.rewind import carry_out, plan_rewind
from tidegate.testing import faults
from tidegate.testing.programs import Program, kill
from tidegate.testing.proxy import Delay, Disturbance, RefuseCommits
from tidegate.testing.requests import COORDINATOR_LOAD_IN_PROGRESS
from tidegate.testing.switches import FAIL, FILL, SLOW

if TYPE_CHECKING:
    from tidegate.testing.schedule import Due, Schedule
    from tidegate.testing.stage import Stage
    from tidegate.testing.trial import Trial

_TICK_SECONDS = 0.1
_GRACE_SECONDS = 12.0
"""How long after its end a fault may still make a member lose its partitions, or a worker speak late."""
_EVERY_API = range(100)
_OPERATOR_SECONDS = 100.0

Undo = Callable[[], None]


@dataclass(slots=True)
class Struck:
    """A fault that was due, and what became of it."""

    fault: faults.PlannedFault
    at_ms: int
    whom: str
    """The group that it struck; empty: all of them, or none."""
    happened: bool = False
    told: str = ""
    """What was seen of it, or why it could not be."""
    ended_ms: int = 0


class Attack:
    """Carries out schedules against trials that share a stage."""

    def __init__(self, stage: Stage, trials: Sequence[Trial], say: Callable[[str], None] = lambda _: None) -> None:
        self._stage = stage
        self._trials = list(trials)
        self._say = say
        self.struck: list[Struck] = []
        self.skew_days = 0
        """By how many days the producer's clock is wrong now."""
        self._open: list[tuple[float, Struck, Undo]] = []
        self._operators: dict[str, threading.Thread] = {}

    def run(self, schedule: Schedule) -> None:
        """Strike as planned, keep the copies running, and return when time is up and every fault is over."""
        passed = 0.0
        waiting = list(schedule.due)
        try:
            while passed < schedule.seconds:
                while waiting and waiting[0].at_seconds <= passed:
                    self.strike(waiting.pop(0))
                self._end_those(until=time.monotonic())
                for trial in self._trials:
                    trial.keep()
                # Time that a fault took, a broker's start for example, does not count: the next would follow at once.
                time.sleep(_TICK_SECONDS)
                passed += _TICK_SECONDS
        finally:
            self._end_those(until=None)
        for operator in self._operators.values():
            operator.join(_OPERATOR_SECONDS)

    def strike(self, due: Due) -> Struck:
        """Cause one fault now."""
        fault = due.fault
        able = [one for one in self._trials if type(fault) not in one.subject.spared]
        trial = able[min(int(due.draw * len(able)), len(able) - 1)] if able else None
        everybody = isinstance(fault, _OF_ALL)
        whom = "" if trial is None or everybody else trial.subject.group
        struck = Struck(fault, _now_ms(), whom)
        self.struck.append(struck)
        if trial is None and not everybody:
            struck.told = "no pipeline here can have it"
        else:
            self._cause(struck, trial, due.draw)
        if not struck.ended_ms:
            struck.ended_ms = _now_ms()
        self._say(f"{fault.kind} {struck.whom}: {struck.told}")
        return struck

    def _cause(self, struck: Struck, trial: Trial | None, draw: float) -> None:
        fault = struck.fault
        try:
            if isinstance(fault, _OF_ALL):
                self._strike_all(struck)
            elif trial is not None and isinstance(fault, _OF_A_COPY):
                copies = [program for program in trial.copies if program.code is None]
                if copies:
                    self._strike_copy(struck, trial, copies[int(draw * 1000) % len(copies)])
                else:
                    struck.told = "no copy of it ran just then"
            elif trial is not None:
                self._strike_pipeline(struck, trial)
        except TidegateError as error:
            struck.told = f"not possible just then: {error}"

    # --- of a copy

    def _strike_copy(self, struck: Struck, trial: Trial, program: Program) -> None:
        fault, pid = struck.fault, program.pid
        struck.happened, struck.told = True, f"process {pid}"
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
            case faults.KillExecutor():
                javas = program.javas()
                trial.may_end(program)
                trial.log.fault("executor_killed", driver=pid)
                for java in javas:
                    kill(java)
                struck.happened, struck.told = bool(javas), f"Java {javas} of process {pid}"
            case faults.KillWorker():
                self._kill_worker(struck, trial, program)
            case faults.FreezeDriver(seconds=seconds):
                trial.log.fault("driver_frozen", lasts_seconds=seconds + _GRACE_SECONDS, frozen=pid)
                program.send(signal.SIGSTOP)
                self._later(struck, seconds, lambda: program.send(signal.SIGCONT))
            case faults.FillDisk(seconds=seconds):
                program.limit_files()
                self._later(struck, seconds, program.unlimit_files)

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
        struck.happened = True
        match struck.fault:
            case faults.FailSink(seconds=seconds):
                away = trial.subject.sink_away
                self._turn(struck, trial, FAIL, seconds) if away is None else self._take_away(struck, away, seconds)
            case faults.SlowSink(seconds=seconds):
                self._turn(struck, trial, SLOW, seconds)
            case faults.FillMetadata(seconds=seconds):
                self._turn(struck, trial, FILL, seconds)
            case faults.DeleteSettled():
                self._delete_settled(struck, trial)
            case faults.RewindGroup(records=records):
                self._operate(struck, trial, lambda: self._rewind(struck, trial, records))
            case faults.RedriveDead():
                self._operate(struck, trial, lambda: self._redrive(struck, trial))

    def _turn(self, struck: Struck, trial: Trial, name: str, seconds: float) -> None:
        trial.switch.turn(name, on=True)
        self._later(struck, seconds, lambda: trial.switch.turn(name, on=False))

    def _take_away(self, struck: Struck, away: Callable[[bool], None], seconds: float) -> None:
        away(True)  # noqa: FBT003  # a user's function of one argument
        self._later(struck, seconds, lambda: away(False))  # noqa: FBT003

    def _delete_settled(self, struck: Struck, trial: Trial) -> None:
        if self._is_operated(trial):
            # A rewind that was asked for would find its place gone: that is data loss, and not tried here.
            struck.happened, struck.told = False, "an operator is at work"
            return
        marks = {place: mark for place, mark in trial.marks().items() if place.topic == trial.subject.topic}
        delete_before(Admin(self._stage.kafka), marks)
        struck.told = f"the log begins at {', '.join(f'{place} {mark}' for place, mark in sorted(marks.items()))}"

    def _operate(self, struck: Struck, trial: Trial, work: Undo) -> None:
        if self._is_operated(trial):
            struck.happened, struck.told = False, "an operator is at work"
            return
        struck.happened = False

        def operate() -> None:
            try:
                work()
            except TidegateError as error:
                struck.told = f"not possible just then: {error}"
            struck.ended_ms = _now_ms()

        operator = threading.Thread(target=operate, name=f"operator {trial.subject.group}", daemon=True)
        self._operators[trial.subject.group] = operator
        operator.start()

    def _is_operated(self, trial: Trial) -> bool:
        operator = self._operators.get(trial.subject.group)
        return operator is not None and operator.is_alive()

    def _rewind(self, struck: Struck, trial: Trial, records: int) -> None:
        subject = trial.subject
        admin, reach = Admin(self._stage.kafka), Reach(history=History(str(trial.history)))
        marks = {place: mark for place, mark in trial.marks().items() if place.topic == subject.topic}
        if not marks:
            struck.told = "it has no mark yet"
            return
        place = max(marks, key=lambda one: marks[one])
        to = str(max(0, marks[place] - records))
        plan = plan_rewind(admin, subject.group, to, place.topic, place.number, reach)
        for move in plan.moves:
            trial.log.rewind(move.partition, move.to)
        carry_out(admin, plan, reach)
        struck.happened, struck.told = True, f"{place} from {marks[place]} to {plan.moves[0].to}"

    def _redrive(self, struck: Struck, trial: Trial) -> None:
        report = redrive(trial.subject.group, kafka=self._stage.kafka)
        struck.happened, struck.told = report.sent > 0, f"{report.sent} dead letters"

    # --- of everybody

    def _strike_all(self, struck: Struck) -> None:
        struck.happened = True
        broker, proxy = self._stage.broker, self._stage.proxy
        match struck.fault:
            case faults.KillBroker(seconds=seconds):
                self._note_all("broker_killed", seconds)
                broker.kill()
                self._later(struck, seconds, lambda: _start(broker.start))
            case faults.RestartBroker():
                self._note_all("broker_restarted", 0)
                broker.restart()
            case faults.CutConnections():
                self._note_all("connections_cut", 0)
                struck.told = f"{proxy.cut()} connections"
            case faults.DropConnections(seconds=seconds):
                self._note_all("connections_dropped", seconds)
                struck.told = f"{proxy.unplug()} connections"
                self._later(struck, seconds, proxy.plug)
            case faults.DelayRequests(seconds=seconds, by_seconds=by_seconds):
                self._note_all("requests_delayed", seconds)
                self._disturb(struck, Delay(_EVERY_API, seconds=by_seconds), seconds)
            case faults.DenyCommits(seconds=seconds):
                self._disturb(struck, RefuseCommits(COORDINATOR_LOAD_IN_PROGRESS), seconds)
            case faults.SkewClock(seconds=seconds, days=days):
                self.skew_days = days
                self._later(struck, seconds, self._set_clock_right)

    def _set_clock_right(self) -> None:
        self.skew_days = 0

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
        for _, struck, undo in over:
            undo()
            struck.ended_ms = _now_ms()


_OF_A_COPY = (
    faults.KillDriver,
    faults.CutPower,
    faults.Rebalance,
    faults.KillExecutor,
    faults.KillWorker,
    faults.FreezeDriver,
    faults.FillDisk,
)
_OF_ALL = (
    faults.KillBroker,
    faults.RestartBroker,
    faults.CutConnections,
    faults.DropConnections,
    faults.DelayRequests,
    faults.DenyCommits,
    faults.SkewClock,
)


def _start(start: Callable[[], object]) -> None:
    start()


def _now_ms() -> int:
    return int(time.time() * 1000)
