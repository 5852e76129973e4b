"""Transactions as a store, against a real broker: all or nothing, and whoever comes later has the say."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import tidegate as tg
from tests.support import broker_behind_proxy, visible, wait_until
from tidegate.dev.broker import Broker
from tidegate.errors import BrokerUnreachable
from tidegate.kafka import transactions
from tidegate.kafka.admin import Admin
from tidegate.kafka.committed import CommittedReader
from tidegate.kafka.transactions import Transactions, fence, membership_of
from tidegate.records import Commit, Partition
from tidegate.store import Effect, Outgoing, Overtaken, Poisoned
from tidegate.testing import HideBrokers, KafkaProxy


class Scene:
    """A group with one member, which owns the topic's one partition, and a topic for outputs."""

    def __init__(self, bootstrap: str) -> None:
        name = uuid.uuid4().hex[:8]
        self.kafka = tg.Kafka(bootstrap)
        self.admin = Admin(self.kafka, 20.0)
        self.group, self.topic, self.out = f"g-{name}", f"t-{name}", f"o-{name}"
        self.admin.create_topic(self.topic)
        self.admin.create_topic(self.out, 1, {"max.message.bytes": "2000"})
        self.partition = Partition(self.topic, 0)
        self._members: list[Consumer] = []

    def join(self) -> Consumer:
        member = Consumer({"bootstrap.servers": self.kafka.bootstrap, "group.id": self.group})
        member.subscribe([self.topic])
        self._members.append(member)
        while not member.assignment():
            member.poll(0.1)
        return member

    def store(self, name: str = "lane") -> Transactions:
        return Transactions(self.kafka, self.group, f"{self.group}.{name}")

    def outputs(self) -> list[str]:
        return [(one.value or b"").decode() for one in visible(self.admin, self.kafka, self.out)]

    def mark(self) -> int | None:
        found = self.admin.committed(self.group).get(self.partition)
        return None if found is None else found.mark

    def effects(self, *values: str) -> list[Effect]:
        return [Effect([Outgoing(self.out, value.encode())]) for value in values]

    def commits(self, mark: int) -> dict[Partition, Commit]:
        return {self.partition: Commit(mark, f"note {mark}")}

    def close(self) -> None:
        for member in self._members:
            member.close()


@pytest.fixture
def scene(broker: Broker) -> Iterator[Scene]:
    made = Scene(broker.bootstrap)
    yield made
    made.close()


def membership(member: Consumer) -> bytes:
    return membership_of(member.consumer_group_metadata())


def test_outputs_copies_and_marks_come_together(scene: Scene) -> None:
    member = scene.join()
    store = scene.store()
    assert store.begin([scene.partition], membership(member)) == {}
    copy = Outgoing(scene.out, b"copy", b"key", (("why", b"because"),), 0)
    assert store.seal([*scene.effects("a", "b"), Effect(copy=copy)], scene.commits(3)) == {}
    assert scene.outputs() == ["a", "b", "copy"]
    assert store.begin([scene.partition], membership(member)) == scene.commits(3)
    assert store.seal([], scene.commits(7)) == {}, "marks alone"
    assert scene.mark() == 7


def test_one_output_that_the_broker_refuses_leaves_nothing_and_stands_alone_in_the_end(scene: Scene) -> None:
    member = scene.join()
    store = scene.store()
    store.begin([scene.partition], membership(member))
    with pytest.raises(Poisoned, match="too large") as poisoned:
        store.seal(scene.effects("a" * 1500, "x" * 5000, "b"), scene.commits(3))
    assert poisoned.value.suspect in (0, 1)
    assert scene.outputs() == []
    assert scene.mark() is None
    refused = store.seal(scene.effects("x" * 5000), scene.commits(1))
    assert isinstance(refused[0], tg.Reject)
    assert store.seal(scene.effects("a", "b"), scene.commits(2)) == {}, "the store goes on"
    assert (scene.outputs(), scene.mark()) == (["a", "b"], 2)


def test_who_begins_later_shuts_the_earlier_one_out(scene: Scene) -> None:
    member = scene.join()
    first, second = scene.store(), scene.store()
    first.begin([scene.partition], membership(member))
    assert first.seal(scene.effects("a"), scene.commits(1)) == {}
    assert second.begin([scene.partition], membership(member)) == scene.commits(1)
    with pytest.raises(Overtaken):
        first.seal(scene.effects("late"), scene.commits(2))
    assert second.seal(scene.effects("b"), scene.commits(2)) == {}
    assert (scene.outputs(), scene.mark()) == (["a", "b"], 2)
    assert first.begin([scene.partition], membership(member)) == scene.commits(2), "made anew, it has the say again"
    assert first.seal(scene.effects("c"), scene.commits(3)) == {}
    with pytest.raises(Overtaken):
        second.seal(scene.effects("late"), scene.commits(3))
    assert scene.outputs() == ["a", "b", "c"]


def test_workers_that_take_turns_at_a_lane_lose_no_rounds_by_that(scene: Scene) -> None:
    member = scene.join()
    workers = [scene.store(), scene.store()]
    before = None
    for round_number, worker in enumerate([0, 1, 0, 0, 1, 1, 0], 1):
        store = workers[worker]
        store.follow(before, round_number)
        store.begin([scene.partition], membership(member))
        assert store.seal(scene.effects(str(round_number)), scene.commits(round_number)) == {}
        before = round_number
    assert scene.outputs() == ["1", "2", "3", "4", "5", "6", "7"]


def test_a_worker_whose_name_the_driver_has_taken_takes_it_back_when_it_begins(scene: Scene) -> None:
    member = scene.join()
    store = scene.store()
    store.follow(None, 1)
    store.begin([scene.partition], membership(member))
    assert store.seal(scene.effects("a"), scene.commits(1)) == {}
    fence(scene.kafka, f"{scene.group}.lane")
    store.follow(None, 2)
    store.begin([scene.partition], membership(member))
    assert store.seal(scene.effects("b"), scene.commits(2)) == {}


def test_offsets_that_an_open_transaction_holds_back_are_told_from_a_kafka_that_does_not_answer(scene: Scene) -> None:
    member = scene.join()
    producer = transactions._open(scene.kafka, f"{scene.group}.lane", [])
    producer.begin_transaction()
    offsets = [TopicPartition(scene.partition.topic, scene.partition.number, 5)]
    producer.send_offsets_to_transaction(offsets, member.consumer_group_metadata(), 10)
    admin = Admin(scene.kafka, 2.0)
    with pytest.raises(BrokerUnreachable, match="a transaction that Kafka has not ended holds the offsets of group"):
        admin.committed(scene.group, [scene.partition], require_stable=True)
    assert admin.committed(scene.group, [scene.partition]) == {}
    producer.commit_transaction(10)
    assert admin.committed(scene.group, [scene.partition], require_stable=True)[scene.partition].mark == 5


def test_a_name_that_was_fenced_writes_no_more(scene: Scene) -> None:
    member = scene.join()
    store = scene.store()
    store.begin([scene.partition], membership(member))
    fence(scene.kafka, f"{scene.group}.lane")
    with pytest.raises(Overtaken):
        store.seal(scene.effects("late"), scene.commits(1))
    assert scene.outputs() == []


def test_a_group_that_has_moved_on_takes_no_marks_and_so_no_outputs(scene: Scene) -> None:
    member = scene.join()
    store = scene.store()
    before = membership(member)
    store.begin([scene.partition], before)
    member.close()
    after = scene.join()
    with pytest.raises(Overtaken):
        store.seal(scene.effects("late"), scene.commits(1))
    assert scene.outputs() == []
    assert scene.mark() is None
    store.begin([scene.partition], membership(after))
    assert store.seal(scene.effects("a"), scene.commits(1)) == {}
    assert (scene.outputs(), scene.mark()) == (["a"], 1)


def test_a_missing_topic_may_come(scene: Scene) -> None:
    member = scene.join()
    store = scene.store()
    store.begin([scene.partition], membership(member))
    refused = store.seal([Effect([Outgoing(f"{scene.out}-none", b"a")])], scene.commits(1))
    assert isinstance(refused[0], tg.Unavailable)
    scene.admin.create_topic(f"{scene.out}-none")
    wait_until(
        lambda: store.seal([Effect([Outgoing(f"{scene.out}-none", b"a")])], scene.commits(1)) == {},
        within=30,
        what="the new topic",
    )


def test_marks_inside_a_transaction_that_nobody_ends_are_asked_for_again_and_end_no_run(scene: Scene) -> None:
    member = scene.join()
    open_one = Producer({"bootstrap.servers": scene.kafka.bootstrap, "transactional.id": f"{scene.group}.dead"})
    open_one.init_transactions(10)
    open_one.begin_transaction()
    open_one.send_offsets_to_transaction([TopicPartition(scene.topic, 0, 5)], member.consumer_group_metadata(), 10)
    with pytest.raises(tg.BrokerUnreachable):
        CommittedReader(scene.kafka, scene.group, 1.0, require_stable=True).read([scene.partition])
    open_one.abort_transaction(10)
    assert CommittedReader(scene.kafka, scene.group, 10.0, require_stable=True).read([scene.partition]) == {}


@pytest.fixture
def wire() -> Iterator[KafkaProxy]:
    """A broker of its own behind a proxy."""
    with broker_behind_proxy() as proxy:
        yield proxy


@pytest.mark.timeout(90)
def test_transactions_outlive_their_connections(wire: KafkaProxy) -> None:
    scene = Scene(wire.bootstrap)
    member = scene.join()
    store = scene.store()
    store.begin([scene.partition], membership(member))
    for number in range(4):
        # Between two transactions nothing is on its way: the client learns that its connections are gone, and waits.
        assert store.seal(scene.effects(str(number)), scene.commits(number + 1)) == {}
        assert wire.cut() > 0
    assert store.seal([], scene.commits(9)) == {}
    assert scene.outputs() == ["0", "1", "2", "3"]
    assert scene.mark() == 9
    assert not store.is_stuck
    scene.close()


@pytest.mark.timeout(120)
def test_transactions_go_on_after_a_broker_said_that_there_is_none(
    wire: KafkaProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "LATEST_SECONDS", 5.0)
    scene = Scene(wire.bootstrap)
    member = scene.join()
    store = scene.store()
    store.begin([scene.partition], membership(member))
    assert store.seal(scene.effects("before"), scene.commits(1)) == {}
    with wire.under(HideBrokers()) as hidden:
        wire.cut()
        with contextlib.suppress(Overtaken):  # the round ends with that, and the next one begins
            store.seal(scene.effects("during"), scene.commits(2))
        wait_until(lambda: hidden.struck > 0, within=30, what="a client that asks who is there")
    found = store.begin([scene.partition], membership(member))[scene.partition].mark
    assert store.seal(scene.effects("after"), scene.commits(3)) == {}
    assert scene.outputs() == ["before", *(["during"] if found == 2 else []), "after"]
    assert scene.mark() == 3
    scene.close()


@pytest.mark.timeout(90)
def test_a_call_of_the_client_that_never_returns_is_left_behind(
    wire: KafkaProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "LATEST_SECONDS", 3.0)
    scene = Scene(wire.bootstrap)
    member = scene.join()
    # With the client's own way to recover, its call hangs after a cut.
    scene.kafka = tg.Kafka(wire.bootstrap, {"metadata.recovery.strategy": "rebootstrap"})
    store = scene.store()
    store.begin([scene.partition], membership(member))
    assert store.seal(scene.effects("before"), scene.commits(1)) == {}
    wire.cut()
    with pytest.raises(Overtaken, match="did not return within 3 s"):
        store.seal(scene.effects("lost"), scene.commits(2))
    assert store.is_stuck

    assert store.begin([scene.partition], membership(member))[scene.partition].mark == 1
    assert store.seal(scene.effects("after"), scene.commits(2)) == {}
    assert scene.outputs() == ["before", "after"]
    assert scene.mark() == 2
    scene.close()


def test_no_output_is_blamed_for_marks_that_are_not_taken(scene: Scene) -> None:
    """Otherwise: its topic is gone, or the right to read it, and a sound record goes to the dead letters for it."""
    member = scene.join()
    store = scene.store()
    store.begin([scene.partition], membership(member))
    gone = {Partition(f"{scene.topic}-gone", 0): Commit(1, "")}
    with pytest.raises(Overtaken, match="its marks were not taken"):
        store.seal(scene.effects("a"), gone)
    with pytest.raises(Overtaken):
        store.seal([], gone)
    assert scene.outputs() == []
    store.begin([scene.partition], membership(member))
    assert store.seal(scene.effects("b"), scene.commits(1)) == {}
    assert (scene.outputs(), scene.mark()) == (["b"], 1)


def test_marks_that_are_too_large_for_the_broker_end_the_run_with_the_cure(scene: Scene) -> None:
    """No later round would have smaller ones."""
    member = scene.join()
    store = scene.store()
    store.begin([scene.partition], membership(member))
    with pytest.raises(tg.BrokerRefused, match=r"offset\.metadata\.max\.bytes"):
        store.seal(scene.effects("a"), {scene.partition: Commit(1, "x" * 5_000)})
    assert (scene.outputs(), scene.mark()) == ([], None)
