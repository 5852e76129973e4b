"""What the group has committed is not taken back by one of us that comes late: a copy that starts, a commit."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

import pytest

import tidegate as tg
from tests.support import wait_until
from tidegate.beside import Beside
from tidegate.dev.broker import Broker
from tidegate.engine.board import Board
from tidegate.engine.rewinder import MovesReady, RewindAsked, Rewinder
from tidegate.engine.starting import Starting
from tidegate.engine.topics import Topics
from tidegate.engine.truth import Truth
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.kafka.member import Callbacks, Joining, Member
from tidegate.ops.produce import Message, produce
from tidegate.records import Limits, Partition, Position

pytestmark = pytest.mark.broker


class HeldUp(Admin):
    """Something happens elsewhere while it asks where logs begin or end."""

    meanwhile: Callable[[], None] | None = None

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return self._after(super().beginnings(partitions))

    def ends(self, partitions: Iterable[Partition], *, committed_only: bool = True) -> dict[Partition, int]:
        return self._after(super().ends(partitions, committed_only=committed_only))

    def _after(self, found: dict[Partition, int]) -> dict[Partition, int]:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return found


@pytest.fixture
def kafka(broker: Broker) -> Kafka:
    return Kafka(broker.bootstrap)


@pytest.fixture
def place(kafka: Kafka) -> Partition:
    """A topic of one partition with ten records."""
    topic = f"orders-{uuid.uuid4().hex[:10]}"
    Admin(kafka).create_topic(topic)
    produce(topic, (Message(str(number)) for number in range(10)), kafka=kafka)
    return Partition(topic, 0)


def starting_of(admin: Admin, place: Partition, begins: str = "earliest") -> Starting:
    group = f"{place.topic}-group"
    source = tg.from_kafka(place.topic, group=group, starting=begins).source  # type: ignore[arg-type]
    return Starting(admin, Truth(admin, group, None, None), source, Topics(admin.describe([place.topic])), "sinks")


def mark_of(kafka: Kafka, place: Partition) -> int:
    return Admin(kafka).committed(f"{place.topic}-group", [place])[place].mark


@pytest.mark.parametrize(("begins", "chosen"), [("earliest", 0), ("latest", 10)])
def test_a_copy_that_was_held_up_while_it_chose_does_not_set_the_group_back(
    kafka: Kafka, place: Partition, begins: str, chosen: int
) -> None:
    late = HeldUp(kafka)

    def meanwhile() -> None:
        starting_of(Admin(kafka), place, begins).before_joining()
        assert mark_of(kafka, place) == chosen
        Admin(kafka).commit_for_empty_group(f"{place.topic}-group", {place: (chosen + 3, "")})

    late.meanwhile = meanwhile
    starting_of(late, place, begins).before_joining()

    assert late.meanwhile is None, "nobody was held up"
    assert mark_of(kafka, place) == chosen + 3


class Asked:
    """Asks only when it is told to, so that a test sees whether there is something to ask."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.calls.append(lambda: future.set_result(fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True) -> None:
        assert not wait


def test_a_rewind_waits_until_the_group_has_what_was_settled_before(kafka: Kafka, place: Partition) -> None:
    admin, asked = Admin(kafka), Asked()
    ready: list[MovesReady] = []
    starting = starting_of(admin, place)
    starting.before_joining()
    board = Board(1, Limits(5.0, 1.0, 3.0, 20.0))
    rewinder = Rewinder(board, starting, ready.append, Beside(open_asker=lambda _: asked))
    gained: list[Partition] = []
    ignored: Callable[..., None] = lambda *_: None  # noqa: E731  # three callbacks that have nothing to do here
    member = Member(kafka, Joining(f"{place.topic}-group", 6.0), Callbacks(gained.extend, ignored, ignored, ignored))
    member.join([place.topic])
    try:

        def has_it() -> bool:
            member.poll(0.05)
            return gained == [place]

        wait_until(has_it, within=30, what="the partition")
        epoch = board.gain([place])[place]
        # Seven are settled, of which the group has five: the last commit is on its way, or was refused.
        board.place(place, epoch, Position(5), is_committed=True)
        board.owned[place].position = Position(7)
        rewind = RewindAsked(1, {place: 2})
        rewinder.want(rewind)
        for _ in range(3):
            rewinder.turn(member)
        assert not asked.calls, "the next commit would take it back"

        board.note_committed({(place, epoch): Position(7)})
        rewinder.turn(member)
        [call] = asked.calls
        call()
        [moves] = ready
        rewinder.take(moves, member)
        rewinder.turn(member)
        assert rewind.answer.result(timeout=0) == {place: 2}
        assert not board.uncommitted()
    finally:
        member.leave()
    assert mark_of(kafka, place) == 2
