"""A program on trial: its copies are kept running whatever becomes of them, and at the end the laws judge it."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tidegate.durations import seconds
from tidegate.errors import DeliveryFailed, TidegateError
from tidegate.kafka.admin import Admin
from tidegate.kafka.commits import CommitSeen, read_commits
from tidegate.kafka.scan import SeenRecord
from tidegate.machine import environment_without
from tidegate.names import delay_of
from tidegate.ops.produce import Delivery, Message, produce
from tidegate.ops.tail import tail
from tidegate.records import Partition
from tidegate.testing.attack import Attack
from tidegate.testing.copies import read_copies
from tidegate.testing.faults import DenyCommits, FillMetadata, PlannedFault
from tidegate.testing.laws import Order, check_laws
from tidegate.testing.programs import Program, tidegate
from tidegate.testing.record_log import Event, Fault, RecordLog
from tidegate.testing.remains import Gone, Remains
from tidegate.testing.sayings import Span, losses_without_cause, spans_of_causes, told_faults
from tidegate.testing.schedule import Schedule
from tidegate.testing.stage import Stage
from tidegate.testing.story import Breach, Place
from tidegate.testing.switches import Switch

_SESSION = "session_timeout="
_QUICK = (f"{_SESSION}6s", "commit_every=1s", "history_every=1s", "log_format=json")
"""Several commits in a short trial, and nobody waits long for the session of one that was killed."""
_CACHE = "TIDEGATE_CACHE"
_SILENCE = re.compile(r"Kafka at \S+ does not answer|no answer came from Kafka")
"""What a run says that cannot begin without a broker."""
_SINK_AWAY = re.compile(r"PostgreSQL cannot be reached")
"""What a run says that cannot begin without its database."""
_NAP_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is tried. The program finds TOPIC, GROUP and LOG in its environment, the path of its record log."""

    app: Path | str
    topic: str
    group: str
    copies: int = 2
    words: tuple[str, ...] = ()
    """More words for `tidegate run`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    order: Order = "partition"
    spared: tuple[type[PlannedFault], ...] = (FillMetadata,)
    """Faults that never strike it."""
    sink_away: Callable[[bool], None] | None = None
    """Makes its sink fail, and brings it back, where that is not the business of a `Switch`."""
    backlog: Callable[[int], Iterable[object]] | None = None
    """Makes so many records of one partition, for faults that need much work at once."""
    wanted: Callable[[SeenRecord], bool] | None = None
    """Whether a record of its topic should reach a sink. Without it all should, or be set aside.

    Of those that it drops no sink may have an effect.
    """


class Trial:
    """One subject, its record log and its copies. End it with `close`, or use it as a context manager."""

    def __init__(self, stage: Stage, subject: Subject, folder: Path) -> None:
        self.stage = stage
        self.subject = subject
        self.folder = folder
        self.log = RecordLog(folder / "records")
        self.switch = Switch(self.log.path)
        self.history = folder / "history.sqlite"
        self.produced: set[Place] = set()
        self.produced_skewed = 0
        """How many of them the producer wrote while its clock was wrong."""
        self.unwanted: set[Place] = set()
        """Those that should reach no sink, as far as they were looked for."""
        self.skew_days = 0
        """By how many days the producer's clock is wrong now."""
        self.copies: list[Program] = []
        self.lives = 0
        self.surprises: list[str] = []
        """What copies did although nobody had given them cause: that they ended, what they left, what they lost."""
        self.attacks: list[Attack] = []
        self._ended: list[Program] = []
        self._remains = Remains()
        self._may_end: set[int] = set()
        self._told_to_stop: set[int] = set()
        self._heard_out = 0

    @property
    def session_seconds(self) -> float:
        """How long its group waits for a member that says nothing."""
        chosen = [word for word in (*_QUICK, *self.subject.words) if word.startswith(_SESSION)]
        return seconds(chosen[-1].removeprefix(_SESSION))

    # --- its life

    def create_topic(self, partitions: int = 4) -> None:
        """Create the subject's topic; retention never takes a record by its time."""
        Admin(self.stage.kafka).create_topic(self.subject.topic, partitions=partitions, config={"retention.ms": "-1"})

    def produce(self, records: Iterable[object]) -> None:
        """Write records to the subject's topic. What the broker did not acknowledge is found at the end."""
        days = self.skew_days
        written = (dated(one, days) for one in records) if days else records
        try:
            delivery: Delivery | None = produce(self.subject.topic, written, kafka=self.stage.kafka)
        except DeliveryFailed as error:
            delivery = error.delivery
        self.produced_skewed += delivery.count if days and delivery is not None else 0
        for one in () if delivery is None else delivery.partitions:
            offsets = range(one.first_offset, one.last_offset + 1)
            self.produced |= {(one.partition.topic, one.partition.number, at) for at in offsets}

    def start(self) -> None:
        """Start all copies."""
        while len(self.copies) < self.subject.copies:
            self.copies.append(self._start_copy())

    def keep(self) -> None:
        """Start again what has ended, as a service manager does: at once, whatever of it still lives."""
        for place, program in enumerate(self.copies):
            if program.code is not None:
                self._remains.take(program)
                self.copies[place] = self._start_copy()
        for gone in self._remains.look():
            self._bury(gone)

    def may_end(self, program: Program) -> None:
        """Its end is wanted from here on."""
        self._may_end.add(program.pid)

    def stop(self, within: float = 90.0) -> None:
        """Let all copies end in good order; whatever is left then is killed."""
        for program in self.copies:
            # One that was struck a moment ago ends as it may.
            self._told_to_stop |= {program.pid} - self._may_end
            program.send(signal.SIGTERM)
        deadline = time.monotonic() + within
        for program in self.copies:
            if program.ended_within(max(0.1, deadline - time.monotonic())) is None:
                self.surprises.append(f"process {program.pid} did not end within {within:g} s of SIGTERM")
                program.kill_all()
                self._ended.append(program)
            else:
                self._remains.take(program)
        self.copies = []
        for gone in self._remains.wait():
            self._bury(gone)
        self._look_for_losses()

    def close(self) -> None:
        """Kill what is left."""
        for program in self.copies:
            program.kill_all()
        self._ended += [*self.copies, *self._remains.kill()]
        self.copies = []

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start_copy(self) -> Program:
        self.lives += 1
        folder = self.folder / f"life-{self.lives}"
        folder.mkdir()
        subject = self.subject
        settings = [word for one in (*_QUICK, f"history={self.history}") for word in ("--set", one)]
        master = ("--master", "local[2]", "--bootstrap", self.stage.bootstrap)
        app = str(Path(subject.app).absolute())
        known = {
            **environment_without("TIDEGATE_", keeping=(_CACHE,)),
            "TOPIC": subject.topic,
            "GROUP": subject.group,
            "LOG": self.log.path,
        }
        command = tidegate("run", app, *master, *settings, *subject.words)
        return Program(command, folder, {**known, **subject.environment})

    def _bury(self, gone: Gone) -> None:
        program = gone.program
        self._ended.append(program)
        if gone.left:
            self.surprises.append(f"process {program.pid} ended and left behind: {'; '.join(gone.left)}")
        if not self._was_to_end(program):
            self.surprises.append(f"process {program.pid} ended with {program.code}: {_last_words(program)}")

    def _was_to_end(self, program: Program) -> bool:
        if program.pid in self._may_end:
            return True
        if program.pid in self._told_to_stop:
            # One that has not joined yet has nothing to finish, and ends by the signal.
            return program.code == 0 or (program.code == -signal.SIGTERM and not _has_joined(program))
        # One that finds no broker when it starts, or no database where a trial takes that away, ends and says so, and
        # whoever keeps it tries again.
        away = [_SILENCE] if self.subject.sink_away is None else [_SILENCE, _SINK_AWAY]
        return program.code == 1 and not _has_joined(program) and any(one.search(program.err) for one in away)

    def _look_for_losses(self) -> None:
        causes = self._causes()
        for program in self._ended[self._heard_out :]:
            for loss in losses_without_cause(program.err, causes):
                self.surprises.append(
                    f"process {program.pid} lost its partitions and nothing had been done to it: "
                    f"{loss.message} at {loss.at_ms}"
                )
        self._heard_out = len(self._ended)

    # --- attack and judgement

    def attack(self, schedule: Schedule, *, drain_seconds: float = 180.0) -> None:
        """Start it, strike it as planned, wait until everything is settled, and stop it.

        Give it records first. An attack that proves nothing is a surprise: there is nothing to do, it never begins to
        work, no fault strikes.
        """
        if not self.count_produced():
            self.surprises.append("nothing was produced")
            return
        self.start()
        if self.wait_for_work():
            attack = Attack(self.stage, [self])
            attack.run(schedule)
            self.finish(drain_seconds)
            if not any(one.happened for one in attack.struck):
                self.surprises.append(f"no fault struck: {'; '.join(map(str, attack.struck)) or 'none was due'}")
        else:
            self.stop()

    def wait_for_work(self, within: float = 120.0) -> bool:
        """Wait until the group has committed beyond its beginning; return whether it has.

        Where it has not, that is a surprise, told as soon as a copy ends by itself.
        """
        known = len(self.surprises)
        self._wait(lambda: len(self.surprises) > known or any(self.marks().values()), within)
        if _holds(lambda: any(self.marks().values())):
            return True
        words = "; ".join(_last_words(program) for program in [*self._ended[-1:], *self.copies])
        self.surprises.append(f"it did not begin to work: {words}")
        return False

    def finish(self, within: float = 180.0) -> None:
        """Wait until everything is committed, retries included, and stop; that it did not come is a surprise."""
        if not self._wait(self.is_drained, within):
            words = "; ".join(_last_words(program) for program in self.copies)
            self.surprises.append(f"not everything was committed {within:g} s after the last fault: {words}")
        self.stop()

    def _wait(self, check: Callable[[], bool], within: float) -> bool:
        deadline = time.monotonic() + within
        while not _holds(check):
            if time.monotonic() > deadline:
                return False
            self.keep()
            time.sleep(_NAP_SECONDS)
        return True

    def marks(self) -> dict[Partition, int]:
        """What the group has committed, by partition."""
        found = Admin(self.stage.kafka).committed(self.subject.group)
        return {partition: one.mark for partition, one in found.items()}

    def is_drained(self) -> bool:
        """Whether the group stands at the end of its topic, and of its retry and redrive topics."""
        admin = Admin(self.stage.kafka)
        topic, group = self.subject.topic, self.subject.group
        # The marks first. Otherwise: we read the end of the second retry topic, a copy goes there from the first, and
        # the first one's mark is at its end when we read it: a copy still waits, and all looks settled.
        marks = self.marks()
        own = [info for info in admin.topics() if info.name == topic or delay_of(info.name, group) is not None]
        ends = admin.ends([place for info in own for place in info.each_partition()])
        return all(marks.get(place, 0) >= end for place, end in ends.items())

    def faults(self) -> list[Fault]:
        """All that was done to it, and what its copies said of themselves after which records may run again."""
        noted, causes = list(self.log.read().faults), self._causes()
        for program in [*self._ended, *self._remains.programs, *self.copies]:
            noted += told_faults(program.err, causes)
        return noted

    def _causes(self) -> list[Span]:
        """When that was done to it which can cost a member its partitions."""
        struck = [one for attack in self.attacks for one in attack.struck]
        # Commits that are refused are noted nowhere else: no record may run again by them.
        denied = [(one.at_ms, one.ended_ms) for one in struck if isinstance(one.fault, DenyCommits) and one.happened]
        return [*spans_of_causes(self.log.read().faults), *denied]

    def commits(self) -> list[CommitSeen]:
        """Every commit of its group."""
        return read_commits(self.stage.kafka, self.subject.group)

    def count_produced(self) -> int:
        """Complete what was produced by what lies in the topic, or lay there before retention took it; count it."""
        topic, admin = self.subject.topic, Admin(self.stage.kafka)
        self.look_for_unwanted()
        for place, first in admin.beginnings(admin.describe([topic])[topic].each_partition()).items():
            self.produced |= {(topic, place.number, record_offset) for record_offset in range(first)}
        return len(self.produced)

    def look_for_unwanted(self) -> None:
        """Look through the topic: which records lie there, and which of them should reach no sink.

        `breaches` does it, too. Do it before anything of the topic is deleted, where the subject says what is `wanted`.
        """
        wanted = self.subject.wanted
        for one in tail(self.subject.topic, kafka=self.stage.kafka):
            place = (one.topic, one.partition, one.offset)
            self.produced.add(place)
            if wanted is not None and not wanted(one):
                self.unwanted.add(place)

    def breaches(
        self,
        *,
        events: Iterable[Event] | None = None,
        effects: Iterable[Place] | None = None,
    ) -> list[Breach]:
        """Check the laws on all that happened.

        `events`: where they lie elsewhere than in the record log. `effects`: where the sink keeps the marks.
        """
        self.count_produced()
        entries = self.log.read()
        return check_laws(
            self.produced - self.unwanted,
            entries.events if events is None else events,
            self.commits(),
            self.faults(),
            copies=read_copies(self.stage.kafka, self.subject.group),
            rewinds=entries.rewinds,
            effects=effects,
            order=self.subject.order,
        )


def _holds(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except TidegateError:
        return False  # the broker is away, or has just come back


def dated(record: object, days: int) -> Message:
    """Return a record with the time of a clock that is so many days off."""
    message = record if isinstance(record, Message) else Message(record)
    return replace(message, timestamp=(message.timestamp or datetime.now(UTC)) + timedelta(days=days))


def _has_joined(program: Program) -> bool:
    """Whether it ever had a partition. Before that it has nothing to finish, and ends at once."""
    return '"action": "gained"' in program.err


def _last_words(program: Program) -> str:
    lines = [line for line in program.err.splitlines() if line.strip()]
    return " / ".join(lines[-3:])[-600:] or "it said nothing"
