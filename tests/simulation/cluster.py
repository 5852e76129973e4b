"""A simulated broker: logs, a group's coordinator and its commits. It knows no more of Tidegate than a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from confluent_kafka import KafkaError

from tests.simulation.world import World
from tidegate.kafka.commits import CommitSeen
from tidegate.kafka.connection import Kafka
from tidegate.names import retry_topic
from tidegate.records import Commit, Partition

if TYPE_CHECKING:
    from tests.simulation.client import SimConsumer
    from tests.simulation.messages import SimCopy

KAFKA = Kafka("localhost:9092")
GROUP = "g"
TOPIC = "t"
TOPIC_ID = "i"
RETRY = retry_topic(GROUP, 3.0)
"""The group's own; how long copies lie there is the plan's to say."""
RETRY_ID = "r"
OPERATOR = "operator"
"""Who moves a group that has no member."""
SESSION_SECONDS = 6.0
REBALANCE_SECONDS = 60.0


@dataclass
class Log:
    """One partition's log."""

    end: int
    missing: set[int]
    """Offsets that hold no record: compacted away, or markers of transactions."""
    beginning: int = 0
    removed: dict[int, int] = field(default_factory=dict)
    """What retention took, and at which tick."""
    copies: list[SimCopy] = field(default_factory=list)
    """What lies there, where it is of the retry topic."""

    undecided: set[int] = field(default_factory=set)
    """Of transactions that have not ended: a reader gets no further than the first of them."""

    @property
    def readable_end(self) -> int:
        """Where it ends for a reader."""
        return min(self.undecided, default=self.end)

    def copy(self, at: int) -> SimCopy | None:
        """Return what a record here is a copy of."""
        return self.copies[at] if self.copies else None


@dataclass
class Seat:
    """What the coordinator knows of a member."""

    consumer: SimConsumer
    session: int
    owned: frozenset[Partition]
    joins: int
    """With which of its requests it has joined: another's answer is of no use to it."""
    has_joined: bool = True


class Cluster:
    """Logs and commits. One group, whose coordinator it is."""

    def __init__(self, world: World, logs: dict[Partition, Log]) -> None:
        self.world = world
        self.logs = logs
        self.offsets: dict[Partition, Commit] = {}
        self.commits: list[CommitSeen] = []
        self.stored_at: dict[Partition, int] = {}
        """At which tick each was stored last."""
        self.watch: Callable[[Partition, Commit, object], None] | None = None
        """Looks at every mark that is stored, and by whom."""
        self.loading_until = 0.0
        self.group = Group(world, list(logs))

    @property
    def is_loading(self) -> bool:
        return self.world.now < self.loading_until

    def store(self, commits: Mapping[Partition, Commit], who: object) -> None:
        for partition, commit in commits.items():
            tick = self.world.tick()
            self.offsets[partition] = commit
            self.stored_at[partition] = tick
            self.commits.append(CommitSeen(GROUP, partition, commit.mark, commit.metadata, tick, len(self.commits)))
            self.world.say(who, "committed", partition, commit.mark, commit.metadata)
            if self.watch is not None:
                self.watch(partition, commit, who)

    @property
    def sources(self) -> list[Partition]:
        """The partitions that are not the group's own."""
        return [partition for partition in self.logs if partition.topic == TOPIC]

    def append(self, copy: SimCopy, *, is_decided: bool = True) -> tuple[int, int]:
        """Write a copy to the retry topic; return the partition's number and the offset at which it lies."""
        number = (copy.origin.number + copy.at) % (len(self.logs) - len(self.sources))
        log = self.logs[Partition(RETRY, number)]
        log.copies.append(replace(copy, written_at=self.world.now))
        log.end += 1
        if not is_decided:
            log.undecided.add(log.end - 1)
        self.world.say("a copy of", copy.origin, copy.at, "lies in", Partition(RETRY, number), log.end - 1)
        return number, log.end - 1

    def remove(self, partition: Partition, beginning: int) -> None:
        """Retention takes what lies before."""
        log = self.logs[partition]
        tick = self.world.tick()
        for at in range(log.beginning, min(beginning, log.end)):
            if at not in log.missing:
                log.removed[at] = tick
        log.beginning = max(log.beginning, min(beginning, log.end))
        self.world.say("retention:", partition, "begins at", log.beginning)

    @property
    def is_done(self) -> bool:
        """Whether the group is committed up to every end."""
        offsets = self.offsets
        return all(tp in offsets and offsets[tp].mark >= log.end for tp, log in self.logs.items())


class Group:
    """The coordinator: the classic protocol, with cooperative rebalances."""

    def __init__(self, world: World, partitions: Iterable[Partition]) -> None:
        self._world = world
        self._partitions = list(partitions)
        self.state: Literal["empty", "preparing", "completing", "stable"] = "empty"
        self.generation = 0
        self.seats: dict[str, Seat] = {}
        self.ended: dict[int, int] = {}
        """Sessions that were over for the group before their processes knew, and at which tick."""

    def join(self, consumer: SimConsumer, joins: int) -> None:
        """A member joins, or joins again with what it has."""
        if consumer.joins != joins:
            return
        if consumer.member_id not in self.seats:
            if consumer.member_id:
                consumer.hear_unknown(consumer.member_id)
                return
            consumer.become_member()
            if consumer.process.is_dead:
                self._world.at(SESSION_SECONDS, self.expel, consumer.member_id)
        self.seats[consumer.member_id] = Seat(consumer, consumer.session, frozenset(consumer.owned), joins)
        self._world.say(consumer.process, "joins as", consumer.member_id)
        if self.state != "preparing":
            self._prepare(consumer.member_id)
        self._complete()

    def _prepare(self, newcomer: str | None) -> None:
        self.state = "preparing"
        for name, seat in self.seats.items():
            if name != newcomer:
                seat.has_joined = False
                self._world.at(self._world.soon(), seat.consumer.hear_rebalance, name)
        self._world.at(REBALANCE_SECONDS, self._give_up_waiting, self.generation)

    def _give_up_waiting(self, generation: int) -> None:
        if self.state == "preparing" and self.generation == generation:
            for name in [name for name, seat in self.seats.items() if not seat.has_joined]:
                self.expel(name)

    def _complete(self) -> None:
        if self.state != "preparing" or not self.seats or not all(one.has_joined for one in self.seats.values()):
            return
        self.generation += 1
        self.state = "completing"
        self._world.at(self._world.soon(), self._share, self.generation)

    def _share(self, generation: int) -> None:
        if self.state != "completing" or self.generation != generation:
            return
        self.state = "stable"
        given = self._assign()
        self._world.say("generation", generation, {name: sorted(p.number for p in one) for name, one in given.items()})
        for name, seat in self.seats.items():
            take = seat.consumer.take_assignment
            self._world.at(self._world.soon(), take, seat.joins, generation, given[name])

    def _assign(self) -> dict[str, set[Partition]]:
        """Evenly, with as few moves as may be; what somebody still has goes to another one rebalance later."""
        names = sorted(self.seats)
        self._world.chance.shuffle(names)
        most = -(-len(self._partitions) // len(names))
        has: dict[str, set[Partition]] = {name: set() for name in names}
        taken: set[Partition] = set()
        for name in names:
            kept = [tp for tp in sorted(self.seats[name].owned) if tp not in taken][:most]
            has[name].update(kept)
            taken.update(kept)
        held = {tp for seat in self.seats.values() for tp in seat.owned}
        for partition in self._partitions:
            if partition not in taken:
                fewest = min(names, key=lambda name: len(has[name]))
                if partition not in held:
                    has[fewest].add(partition)
        return has

    def leave(self, name: str) -> None:
        if self.seats.pop(name, None) is not None:
            self._world.say(name, "leaves")
            self._after_departure()

    def expel(self, name: str, *, silent_since: float | None = None) -> None:
        """The session is over; the process does not know."""
        seat = self.seats.get(name)
        if seat is None or (silent_since is not None and seat.consumer.process.silent_since != silent_since):
            return
        del self.seats[name]
        self.ended[seat.session] = self._world.tick()
        self._world.say(name, "is expelled")
        self._world.at(self._world.soon() + 0.3, seat.consumer.hear_unknown, name)
        self._after_departure()

    def disown(self) -> None:
        """Another coordinator counts generations anew: nobody's is of use any more, and what they have is lost."""
        if self.state != "stable":
            return
        self.generation += 1
        self._world.say("nobody's generation counts any more")
        for name, seat in self.seats.items():
            self.ended[seat.session] = self._world.tick()
            hear = seat.consumer.hear_old_generation
            self._world.at(self._world.soon() + 0.3, hear, name, seat.consumer.generation)

    def _after_departure(self) -> None:
        if not self.seats:
            self.state = "empty"
            self.generation += 1
        elif self.state == "preparing":
            self._complete()
        else:
            self._prepare(None)

    def refusal(self, name: str, generation: int) -> int | None:
        """Why a commit of this member is not taken; None if it is."""
        if name not in self.seats:
            return int(KafkaError.UNKNOWN_MEMBER_ID)
        if generation != self.generation:
            return int(KafkaError.ILLEGAL_GENERATION)
        return int(KafkaError.REBALANCE_IN_PROGRESS) if self.state == "completing" else None

    def refusal_in_transaction(self, name: str, generation: int) -> int | None:
        """Why marks of this member are not taken into a transaction; one that names no generation is not looked at."""
        if not name and generation < 0:
            return None
        code = self.refusal(name, generation)
        return None if code == KafkaError.REBALANCE_IN_PROGRESS else code

    def hear_of(self, name: str) -> None:
        """A member whose rounds are refused hears by its heartbeats, too, that its generation is not the group's."""
        seat = self.seats.get(name)
        if seat is not None and self.state == "stable" and seat.consumer.generation != self.generation:
            self._world.at(0.3, seat.consumer.hear_old_generation, name, seat.consumer.generation)
