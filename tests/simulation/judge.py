"""What a schedule has done, and whether it was lawful: the laws of `tidegate.testing`, and what only we can see.

A rewind begins a new life of its partition. Each life is judged for itself, as if it were a partition of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tests.simulation.cluster import GROUP, RETRY, Cluster
from tidegate.copies import Copy, Origin
from tidegate.kafka.commits import CommitSeen
from tidegate.ledger import decode_any
from tidegate.records import Partition
from tidegate.testing.copies import CopySeen
from tidegate.testing.laws import check_laws
from tidegate.testing.record_log import Event, Fault
from tidegate.testing.story import Breach

if TYPE_CHECKING:
    from tests.simulation.messages import Attempt, Message
    from tests.simulation.plan import Plan
    from tests.simulation.rounds import Task
    from tests.simulation.world import World
    from tidegate.engine.lanes import RoundEnded
    from tidegate.engine.rewinder import RewindAsked


NEVER = 2**60
HEARD_SECONDS = 6.0
"""So long after a partition is lost its rounds may begin records: until they hear it, or a cancelled task is dead."""


def life(partition: Partition, replay: int) -> Partition:
    """One life of a partition."""
    return Partition(f"{partition.topic}#{replay}", partition.number)


def home(task: Task, message: Message) -> tuple[Partition, int]:
    """Return the life of a partition in which a record was read first, and its offset there."""
    if message.copy is not None:
        return life(message.copy.origin, message.copy.replay), message.copy.at
    return life(message.place, task.books.replay(message.place)), message.at


class Judge:
    """Notes what happens; says at the end which laws did not hold."""

    def __init__(self, world: World, plan: Plan, cluster: Cluster, tasks: list[Task]) -> None:
        self._world, self._plan, self._cluster, self._tasks = world, plan, cluster, tasks
        self.events: list[Event] = []
        self.copies: list[CopySeen] = []
        self.faults: list[Fault] = []
        self.breaches: list[str] = []
        self.returns = 0
        self.met_outage = 0
        """Processes that ended by themselves, as caught up."""
        self.promised: Callable[[], Mapping[Partition, int]] = dict
        """Marks that are certain to be stored, and are not there yet."""
        self._failed: set[tuple[object, Partition, int, int]] = set()
        self._tries: dict[tuple[object, Partition, int, int], int] = {}
        self._lost: dict[tuple[object, Partition], float] = {}
        self._goals: dict[object, tuple[Mapping[Partition, int], int]] = {}
        self._out_of_order: set[tuple[str, int, int]] = set()
        """Records that were to be copied to the retry topic: what is behind them need not wait."""
        self._parents: list[tuple[Partition, int, Message, int]] = []
        """Every copy in the retry topic: where it lies, of what it was made, and when."""
        self._first_leases: dict[Partition, tuple[int, int]] = {}
        """Of each life: at which mark it was leased first, and how many commits there were before that."""

    # --- while it happens

    def fault(self, kind: str, driver: int | None = None, worker: int | None = None) -> None:
        self._world.say("fault:", kind, "" if driver is None else driver, "" if worker is None else f"task {worker}")
        self.faults.append(Fault(kind, self._world.tick(), driver, worker))

    def leased(self, task: Task) -> None:
        """No other task may be at work on these, but for one of a session that is over."""
        for item in task.lease.partitions:
            place = life(item.partition, item.position.replay)
            self._first_leases.setdefault(place, (item.position.mark, len(self._cluster.commits)))
        ended = self._cluster.group.ended
        for other in self._tasks:
            if other is task or other.is_over or other.is_out_of_sight or not other.partitions & task.partitions:
                continue
            if other.owner is not task.owner and (other.session in ended or task.session in ended or other.is_orphan):
                continue
            names = ", ".join(map(str, sorted(other.partitions & task.partitions)))
            self.breach(f"two rounds at work on {names}: {other} and {task}")

    def lost(self, process: object, partitions: Iterable[Partition]) -> None:
        """A process was told that these are somebody else's."""
        self._lost |= {(process, partition): self._world.now for partition in partitions}

    def is_to_reach(self, process: object, ends: Mapping[Partition, int]) -> None:
        """A process began that is to end when the group is there."""
        self._goals[process] = ends, self._world.tick()

    def returned(self, process: object) -> None:
        """It ended by itself and says that all is well: then the group was there, whoever brought it there."""
        ends, since = self._goals[process]
        self.returns += 1
        highest: dict[Partition, int] = {}
        for one in self._cluster.commits:
            # Where it stood when the process began counts as well; a rewind may have come since it was there.
            before = highest.get(one.partition, 0) if one.committed_at_ms > since else 0
            highest[one.partition] = max(one.mark or 0, before)
        for partition, mark in self.promised().items():
            highest[partition] = max(mark, highest.get(partition, 0))
        for partition, end in [*ends.items(), *self._retries_to_reach(ends)]:
            if highest.get(partition, 0) < end:
                self.breach(f"{process} ended as caught up, and {partition} is at {highest.get(partition)} of {end}")

    def _retries_to_reach(self, ends: Mapping[Partition, int]) -> Iterator[tuple[Partition, int]]:
        """How far the retry topic is to be read: to each copy that was there when what it is a copy of was passed.

        Not after a rewind: what lay below a mark once may lie above it again, and be copied once more.
        """
        passed: dict[tuple[Partition, int], int] = {}
        marks: dict[Partition, int] = {}
        for one in self._cluster.commits:
            if _replay(one):
                return
            for at in range(marks.get(one.partition, 0), one.mark or 0):
                passed[one.partition, at] = one.committed_at_ms
            marks[one.partition] = max(one.mark or 0, marks.get(one.partition, 0))
        for partition, at, message, tick in self._parents:
            origin, origin_at = message.origin
            if origin_at < ends[origin] and tick <= passed.get((message.place, message.at), -1):
                yield partition, at + 1

    def began(self, task: Task, attempt: Attempt) -> None:
        if task.is_out_of_sight:
            return
        message = attempt.message
        lost_at = self._lost.get((task.owner, message.place), 0.0)
        if task.leased_at < lost_at < self._world.now - HEARD_SECONDS:
            self.breach(
                f"{message.place} offset {message.at} was begun {self._world.now - lost_at:.0f} s after {task} lost it"
            )
        where = (task.owner, message.place, task.epoch(message.place), message.at)
        if where in self._failed:
            self.breach(f"{message.place} offset {message.at} had stopped the run and ran again in {task}")
        if attempt.number <= self._tries.get(where, 0):
            self.breach(f"{message.place} offset {message.at}: attempt {attempt.number} came twice, in {task}")

    def settled(self, task: Task, attempt: Attempt) -> None:
        message, tick = attempt.message, self._world.tick()
        place, at = home(task, message)
        self._world.say(task, "settles", message.place, message.at)
        name = f"{place}:{at}"
        who, session = str(task.pid), task.session
        self.events.append(
            Event("settled", place, at, name, None, attempt.number, tick, task.pid, who, session, str(session))
        )

    def gives_its_place_up(self, task: Task, message: Message) -> None:
        """A record is to be tried again later."""
        place, at = home(task, message)
        self._out_of_order.add((*place, at))

    def copied(
        self, task: Task, message: Message, *, lies_at: tuple[int, int] | None = None, attempts: int = 0
    ) -> None:
        """A copy was written: to the retry topic, or to the dead letters."""
        place, at = home(task, message)
        said, tick = Copy(Origin(place.topic, place.number, at), f"{place}:{at}", attempts), self._world.tick()
        if lies_at is None:
            self._world.say(task, "writes a dead letter of", message.place, message.at)
            self.copies.append(CopySeen(place, at, "g.dead", tick, True, said))
        else:
            self.copies.append(CopySeen(place, at, life(Partition(RETRY, 0), 0).topic, tick, False, said, lies_at))
            self._parents.append((Partition(RETRY, lies_at[0]), lies_at[1], message, tick))

    def delivered(self, task: Task, event: RoundEnded) -> None:
        """A round's end reached its process: what it says must not be forgotten."""
        for item in event.outcome.partitions if event.outcome is not None else ():
            if item.failure is not None:
                self._failed.add((task.owner, item.partition, item.epoch, item.failure.record_offset))
            for one in item.open:
                self._tries[task.owner, item.partition, item.epoch, one.record_offset] = one.tries.failed

    def rewound(self, asked: RewindAsked) -> None:
        """A rewind was said to be done: then the group stands there."""
        for partition in asked.moves:
            stored = self._cluster.offsets[partition]
            if decode_any(GROUP, partition, stored.mark, stored.metadata).position.replay < asked.replay:
                self.breach(f"the rewind {asked.replay} of {partition} was said to be done and is not")

    def breach(self, sentence: str) -> None:
        self._world.say("BREACH:", sentence)
        self.breaches.append(sentence)

    # --- at the end

    def verdict(self) -> list[str]:
        lives = self._lives()
        produced = [(*place, at) for place, offsets in lives.items() for at in offsets]
        last = {place.number: place for place in lives}
        faults = [*self.faults, *(Fault("expelled", at, driver) for driver, at in self._cluster.group.ended.items())]
        known = set(produced)
        events = [one for one in self.events if self._has_a_place(one, known)]
        found = check_laws(produced, events, self._commits, faults, copies=self.copies, order=self._plan.order)
        kept = [str(one) for one in found if not self._is_excused(one, last)]
        twice = self._effects_twice() if self._plan.is_frames or self._plan.store != "none" else ()
        return [*self.breaches, *self._world.crashes, *kept, *twice, *self._undone_rewinds()]

    def _is_excused(self, one: Breach, last: Mapping[int, Partition]) -> bool:
        """Whether it is none: a life that a rewind has ended, or a place that was given up for a copy not written."""
        if one.law == "L2":
            return last[one.partition.number] != one.partition
        return one.law == "L4" and self._out_of_order.issuperset(one.records)

    def _has_a_place(self, event: Event, produced: set[tuple[str, int, int]]) -> bool:
        """Whether it is to be judged.

        What retention took, and a mark has passed as a gap, has no place in the order any more: an attempt at it that
        had been begun may come to its end whenever it likes.
        """
        place = event.partition
        log = self._cluster.logs[Partition(place.topic.partition("#")[0], place.number)]
        return (*place, event.record_offset) in produced or event.record_offset not in log.removed

    @property
    def _commits(self) -> list[CommitSeen]:
        return [
            CommitSeen(GROUP, life(one.partition, _replay(one)), one.mark, one.metadata, one.committed_at_ms, at)
            for at, one in enumerate(self._cluster.commits)
        ]

    def _lives(self) -> dict[Partition, list[int]]:
        """Every life of every partition, in order, and the records that it is to settle."""
        begins: dict[Partition, int] = {}
        covered: dict[tuple[Partition, int], int] = {}
        marks: dict[Partition, int] = {}
        for number, one in enumerate(self._cluster.commits):
            if one.partition.topic == RETRY:
                continue
            place = life(one.partition, _replay(one))
            mark = one.mark or 0
            begins.setdefault(place, self._begin(place, mark, number))
            for at in range(marks.get(place, begins[place]), mark):
                covered[place, at] = one.committed_at_ms
            marks[place] = max(mark, marks.get(place, 0))
        settled: dict[tuple[Partition, int], int] = {}
        when = [((one.partition, one.record_offset), one.at_ms) for one in self.events]
        when += [((one.partition, one.record_offset), one.at_ms) for one in self.copies]
        for where, at_ms in when:
            settled[where] = min(at_ms, settled.get(where, NEVER))
        lives = {}
        for place, begin in begins.items():
            log = self._cluster.logs[Partition(place.topic.partition("#")[0], place.number)]
            there = [at for at in range(begin, log.end) if at not in log.missing]
            # What retention took before it was settled or passed is a gap in the log, and may be passed as one: also
            # while an attempt is being made at it, whose end nobody who takes over can wait for.
            lives[place] = [
                at
                for at in there
                if at not in log.removed
                or settled.get((place, at), NEVER) < covered.get((place, at), NEVER)
                or covered.get((place, at), log.removed[at]) < log.removed[at]
            ]
        return lives

    def _begin(self, place: Partition, mark: int, number: int) -> int:
        """Return where a life begins whose first commit is this one.

        A partition that came to a topic which the group knows begins at its beginning, and may be worked on before
        that is committed: the commit may be refused meanwhile, and the first one that is taken lie behind that work.
        """
        leased_at, commits_before = self._first_leases.get(place, (mark, number))
        return min(mark, leased_at) if commits_before <= number else mark

    def _effects_twice(self) -> Iterable[str]:
        seen = Counter((one.partition, one.record_offset) for one in self.events)
        for (place, at), times in seen.items():
            if times > 1:
                yield f"L6: {place} offset {at} has its effect {times} times"

    def _undone_rewinds(self) -> Iterable[str]:
        newest: dict[Partition, int] = {}
        for one in self._cluster.commits:
            replay = _replay(one)
            if replay < newest.get(one.partition, 0):
                yield f"L5: {one.partition} was rewound ({newest[one.partition]}), and then went back to before"
            newest[one.partition] = max(replay, newest.get(one.partition, 0))


def _replay(commit: CommitSeen) -> int:
    if '"replay"' not in commit.metadata:
        return 0
    return decode_any(GROUP, commit.partition, commit.mark or 0, commit.metadata).position.replay
