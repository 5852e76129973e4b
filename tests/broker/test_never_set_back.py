"""What the group has committed is not taken back by one of us that comes late: a copy that starts, a commit."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.postgres.proxy import Proxy
from tests.postgres_server import Server
from tests.support import wait_until
from tidegate.beside import Beside
from tidegate.dev.broker import Broker
from tidegate.engine.backing import Backer
from tidegate.engine.board import Board
from tidegate.engine.rewinder import MovesReady, MovesStored, RewindAsked, Rewinder
from tidegate.engine.starting import Starting
from tidegate.engine.topics import Topics
from tidegate.engine.truth import Truth
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.kafka.member import Callbacks, Joining, Member
from tidegate.kafka.transactions import Transactions
from tidegate.ledger import Home, decode_any, encode
from tidegate.ops.produce import Message, produce
from tidegate.records import Commit, Limits, Partition, Position
from tidegate.sinks.postgres_progress import PostgresProgress
from tidegate.store import Overtaken

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


def starting_of(
    admin: Admin, place: Partition, begins: str = "earliest", table: PostgresProgress | None = None
) -> Starting:
    group = f"{place.topic}-group"
    source = tg.from_kafka(place.topic, group=group, starting=begins).source  # type: ignore[arg-type]
    return Starting(admin, Truth(admin, group, table, None), source, Topics(admin.describe([place.topic])), "sinks")


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

        def call() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except tg.TidegateError as error:
                future.set_exception(error)

        self.calls.append(call)
        return future

    def shutdown(self, wait: bool = True) -> None:
        assert not wait


@dataclass
class Rewinding:
    """A member that owns the partition and stands at 5, and a rewinder that asks when it is told to."""

    board: Board
    rewinder: Rewinder
    member: Member
    epoch: int
    asked: Asked
    ready: list[MovesReady | MovesStored]

    def turn(self) -> None:
        self.rewinder.turn(self.member)

    def answer(self) -> None:
        """Let what was asked be answered, and be heard."""
        self.asked.calls.pop()()
        self.rewinder.take(self.ready.pop(), self.member)


@contextmanager
def rewinding(kafka: Kafka, place: Partition, starting: Starting, backer: Backer | None = None) -> Iterator[Rewinding]:
    starting.before_joining()
    board, asked = Board(1, Limits(5.0, 1.0, 3.0, 20.0)), Asked()
    ready: list[MovesReady | MovesStored] = []
    rewinder = Rewinder(board, starting, ready.append, Beside(open_asker=lambda _: asked), backer)
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
        board.place(place, epoch, Position(5), is_committed=True)
        yield Rewinding(board, rewinder, member, epoch, asked, ready)
    finally:
        member.leave()


def test_a_rewind_waits_until_the_group_has_what_was_settled_before(kafka: Kafka, place: Partition) -> None:
    with rewinding(kafka, place, starting_of(Admin(kafka), place)) as scene:
        # Seven are settled, of which the group has five: the last commit is on its way, or was refused.
        scene.board.owned[place].position = Position(7)
        rewind = RewindAsked(1, {place: 2})
        scene.rewinder.want(rewind)
        for _ in range(3):
            scene.turn()
        assert not scene.asked.calls, "the next commit would take it back"

        scene.board.note_committed({(place, scene.epoch): Position(7)})
        scene.turn()
        scene.answer()
        scene.turn()
        assert rewind.answer.result(timeout=0) == {place: 2}
        assert not scene.board.uncommitted()
    assert mark_of(kafka, place) == 2


def test_a_round_that_was_shut_out_and_began_late_does_not_take_a_rewind_back(kafka: Kafka, place: Partition) -> None:
    group = f"{place.topic}-group"
    backer = Backer(kafka, group, f"tidegate.{group}", lambda _: "id", lambda _: None, in_transactions=True)
    with rewinding(kafka, place, starting_of(Admin(kafka), place), backer) as scene:
        scene.board.owned[place].bound = 0  # a round on it ended badly
        late = Transactions(kafka, group, f"tidegate.{group}.0")
        late.begin([place], scene.member.membership)

        rewind = RewindAsked(1, {place: 2})
        scene.rewinder.want(rewind)
        scene.turn()
        scene.answer()
        wait_until(lambda: bool(scene.ready), within=60, what="the rewind to be stored")
        scene.rewinder.take(scene.ready.pop(), scene.member)
        scene.turn()
        assert rewind.answer.result(timeout=0) == {place: 2}
        with pytest.raises(Overtaken):
            late.seal((), {place: Commit(7, "")})
        assert scene.board.owned[place].position == Position(2, replay=1)
    backer.close()
    assert mark_of(kafka, place) == 2


def test_a_rewind_that_was_stored_unheard_is_not_stored_again(kafka: Kafka, place: Partition) -> None:
    """A round that began late may have gone on from there: it would be set back within the same rewind."""
    group = f"{place.topic}-group"
    backer = Backer(kafka, group, f"tidegate.{group}", lambda _: "id", lambda _: None, in_transactions=True)
    with rewinding(kafka, place, starting_of(Admin(kafka), place), backer) as scene:
        home = Home(group, "id", place.number, "")
        aim, gone_on = (Commit(mark, encode(Position(mark, replay=1), home)) for mark in (2, 3))
        backer.rewind(scene.member, 0, {place: aim}).result(timeout=60)
        assert mark_of(kafka, place) == 2
        backer.rewind(scene.member, 0, {place: gone_on}).result(timeout=60)
        assert mark_of(kafka, place) == 2
    backer.close()


def test_a_rewind_that_is_taken_back_before_it_is_sent_moves_nothing(kafka: Kafka, place: Partition) -> None:
    with rewinding(kafka, place, starting_of(Admin(kafka), place)) as scene:
        before = mark_of(kafka, place)
        rewind = RewindAsked(1, {place: 2})
        scene.rewinder.want(rewind)
        scene.turn()
        assert rewind.answer.cancel(), "nothing is stored anywhere"
        scene.answer()
        scene.turn()
        assert scene.board.owned[place].position == Position(5)
        assert [one.partitions[0].partition for one in scene.board.leases()] == [place], "and it goes on"
    assert mark_of(kafka, place) == before != 2


def test_a_rewind_that_a_table_may_have_is_brought_to_its_end(kafka: Kafka, place: Partition, postgres: Server) -> None:
    """Otherwise: the rows' marks are moved, the history says that it was taken back, and the records come again."""
    admin, group = Admin(kafka), f"{place.topic}-group"
    table = PostgresProgress(postgres.uri, group)
    with rewinding(kafka, place, starting_of(admin, place, table=table)) as scene:
        rewind = RewindAsked(1, {place: 2})
        scene.rewinder.want(rewind)
        scene.turn()
        assert not rewind.answer.cancel()
        scene.answer()
        scene.turn()
        assert rewind.answer.result(timeout=0) == {place: 2}
    assert (mark_of(kafka, place), table.read([place])[place].mark) == (2, 2)
    table.close()


def test_a_rewind_that_cannot_be_brought_to_its_end_does_not_say_that_nothing_was_moved(
    kafka: Kafka, place: Partition, postgres: Server, tmp_path: Path
) -> None:
    """Otherwise: its rows' marks are moved, its records come again, and somebody was told that they do not."""
    admin, group = Admin(kafka), f"{place.topic}-group"
    with closing(Proxy(tmp_path, postgres.socket_folder)) as proxy:
        table = PostgresProgress(f"{postgres.uri.partition('?')[0]}?host={tmp_path}", group)
        with rewinding(kafka, place, starting_of(admin, place, table=table)) as scene:
            rewind, other = RewindAsked(1, {place: 2}), RewindAsked(2, {place: 3})
            scene.rewinder.want(rewind)
            scene.turn()
            proxy.at_commit = "lose the answer"
            scene.answer()
            proxy.at_commit = "pass"
            assert (proxy.hits, table.read([place])[place].mark) == (1, 2), "the table has it, and nobody heard so"
            assert not rewind.answer.done(), "it is tried again"

            admin.delete_topic(place.topic)

            def is_asked_again() -> bool:
                scene.turn()
                return bool(scene.asked.calls)

            wait_until(is_asked_again, within=30, what="the second try")
            scene.answer()
            with pytest.raises(tg.RewindRefused, match="was perhaps rewound"):
                rewind.answer.result(timeout=0)

            scene.rewinder.want(other)
            scene.turn()
            scene.answer()
            with pytest.raises(tg.RewindRefused, match="was not rewound"):
                other.answer.result(timeout=0)
        table.close()


def placing(admin: Admin, place: Partition, table: PostgresProgress | None) -> Starting:
    """`tg.at` with a place that is taken at every start."""
    group = f"{place.topic}-group"
    source = tg.from_kafka(tg.at({place.topic: {place.number: 3}}, always=True), group=group).source
    return Starting(admin, Truth(admin, group, table, None), source, Topics(admin.describe([place.topic])), "sinks")


class HeldUpAfterItsCommit(Admin):
    """Something happens elsewhere when it has committed for the empty group."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def commit_for_empty_group(self, group: str, commits: Mapping[Partition, tuple[int, str]]) -> None:
        super().commit_for_empty_group(group, commits)
        self.meanwhile()


def test_a_copy_that_was_held_up_at_its_place_does_not_set_the_table_back(
    kafka: Kafka, place: Partition, postgres: Server
) -> None:
    group = f"{place.topic}-group"
    table = PostgresProgress(postgres.uri, group)
    placing(Admin(kafka), place, table).before_joining()
    table.enter({place: Commit(3, Admin(kafka).committed(group, [place])[place].metadata)})
    late = HeldUpAfterItsCommit(kafka)

    def meanwhile() -> None:
        placing(Admin(kafka), place, table).before_joining()
        row = table.read([place])[place]
        assert row.mark == 3
        stood = decode_any(group, place, row.mark, row.metadata)
        worked = encode(replace(stood.position, mark=9), Home(group, stood.topic_id or "", place.number, "sinks"))
        assert table.move({place: Commit(9, worked)}), "rows up to 9 are written"

    late.meanwhile = meanwhile
    other = PostgresProgress(postgres.uri, group)
    placing(late, place, other).before_joining()
    assert table.read([place])[place].mark == 9, "they are not written again"
    table.close()
    other.close()


def test_a_place_taken_again_is_the_latest_move_whatever_the_clocks_say(kafka: Kafka, place: Partition) -> None:
    """The number of a move names its passes and rounds: one that was used before would be taken for done."""
    admin, group = Admin(kafka), f"{place.topic}-group"
    topic_id = admin.describe([place.topic])[place.topic].topic_id
    ahead = Position(5, replay=int(time.time() * 1000) + 3_600_000, finished="round 7")
    there = encode(ahead, Home(group, topic_id, place.number, "sinks"))
    admin.commit_for_empty_group(group, {place: (5, there)})

    placing(admin, place, None).before_joining()

    commit = admin.committed(group, [place])[place]
    found = decode_any(group, place, commit.mark, commit.metadata).position
    assert (found.mark, found.replay, found.finished) == (3, ahead.replay + 1, "round 7")
