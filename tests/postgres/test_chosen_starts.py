"""Where a group begins is decided once: two copies that decide at the same moment set nothing back."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import pytest

import tidegate as tg
from tests.postgres.support import Database, effects
from tidegate.dev.broker import Broker
from tidegate.engine.starting import Starting
from tidegate.engine.topics import Topics
from tidegate.engine.truth import Truth
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.ops.produce import Message, produce
from tidegate.records import Commit, Partition, Position
from tidegate.settings import Trust
from tidegate.sinks.postgres_progress import PostgresProgress
from tidegate.sinks.postgres_store import PostgresStore


class Halting(PostgresProgress):
    """Something happens elsewhere right after it has read."""

    meanwhile: Callable[[], None] | None = None

    def read(self, partitions: Iterable[Partition]) -> dict[Partition, Commit]:
        found = super().read(partitions)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return found


@dataclass
class Place:
    """A topic of one partition, and a group that nobody has used."""

    kafka: Kafka
    database: Database
    topic: str = field(default_factory=lambda: f"orders-{uuid.uuid4().hex[:10]}")
    opened: list[PostgresProgress] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.admin.create_topic(self.topic)
        self.admin.group_members(self.group)
        self.produce(10)

    @property
    def admin(self) -> Admin:
        return Admin(self.kafka)

    @property
    def group(self) -> str:
        return f"{self.topic}-group"

    @property
    def partition(self) -> Partition:
        return Partition(self.topic, 0)

    def produce(self, count: int) -> None:
        produce(self.topic, (Message(str(number)) for number in range(count)), kafka=self.kafka)

    def copy(self, starting: str, meanwhile: Callable[[], None] | None = None, trust: Trust | None = None) -> Starting:
        """One copy of a program that is about to join."""
        table = Halting(self.database.dsn, self.group)
        table.meanwhile = meanwhile
        self.opened.append(table)
        source = tg.from_kafka(self.topic, group=self.group, starting=starting).source  # type: ignore[arg-type]
        truth = Truth(self.admin, self.group, table, trust)
        return Starting(self.admin, truth, source, Topics(self.admin.describe([self.topic])), "sinks")

    def work(self, starting: str, trust: Trust | None = None) -> None:
        """A whole other copy: it decides where to begin, writes two rows, and lets the group follow."""
        self.copy(starting, trust=trust).before_joining()
        sink = self.database.orders()
        store = PostgresStore([sink], self.group, lambda _: {})
        begun = store.begin([self.partition], b"")[self.partition]
        store.seal(effects(sink, begun.mark, begun.mark + 2), {self.partition: Commit(begun.mark + 2, begun.metadata)})
        store.discard()
        self.move_group(begun.mark + 2)

    def move_group(self, mark: int) -> None:
        self.admin.commit_for_empty_group(self.group, {self.partition: (mark, "")})

    def stored(self) -> int:
        [(mark,)] = self.database.ask('select mark from tidegate_offsets where "group" = %s', self.group)
        return int(mark)


@pytest.fixture
def place(broker: Broker, database: Database) -> Iterator[Place]:
    made = Place(Kafka(broker.bootstrap), database)
    yield made
    for table in made.opened:
        table.close()


@pytest.mark.parametrize(("starting", "first"), [("earliest", 0), ("latest", 10)])
def test_a_copy_that_chose_too_late_does_not_move_the_table_back(place: Place, starting: str, first: int) -> None:
    def meanwhile() -> None:
        place.work(starting)
        place.produce(5)

    place.copy(starting, meanwhile).before_joining()

    assert place.database.ids() == [first, first + 1]
    assert place.stored() == first + 2, "what lies before it would be written again"
    again = place.copy("none")
    again.before_joining()  # group and table do not differ


def test_a_member_that_chose_too_late_asks_again(place: Place) -> None:
    member = place.copy("earliest", lambda: place.work("earliest"))
    assert set(member.find([place.partition], {}).chosen) == {place.partition}, "when it looked, nobody had chosen"
    start = {place.partition: Commit(0, member.metadata_for(place.partition, Position(0), ""))}

    assert member.enter(start) != start
    assert place.stored() == 2
    assert member.find([place.partition], {}).committed == {place.partition: Position(2)}


def test_of_two_copies_that_trust_the_group_one_sets_the_table_back(place: Place) -> None:
    for _ in range(3):
        place.work("earliest")
    assert place.database.ids() == list(range(6))
    place.move_group(1)

    place.copy("none", lambda: place.work("none", trust="group"), trust="group").before_joining()

    assert sorted(place.database.ids()) == [0, 1, 1, 2, 2, 3, 4, 5], "from 1 on, as the group was set, and no more"
    assert place.stored() == 3, "what the other one wrote would be written a third time"
