"""The proxy does to requests what it says, counts it, and does nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support import broker_behind_proxy, wait_until
from tidegate.errors import BrokerUnreachable
from tidegate.kafka import bulk
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.ops.produce import Message, produce
from tidegate.records import Partition
from tidegate.testing import Delay, DelayAnswers, KafkaProxy, RefuseCommits
from tidegate.testing.requests import LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH

TOPICS = ("a", "b")


@pytest.fixture(scope="module")
def proxy() -> Iterator[KafkaProxy]:
    with broker_behind_proxy() as made:
        admin = Admin(Kafka(made.bootstrap), 20.0)
        for topic in TOPICS:
            admin.create_topic(topic, 2)
        yield made


@pytest.fixture
def consumer(proxy: KafkaProxy, request: pytest.FixtureRequest) -> Iterator[Consumer]:
    made = Consumer({"bootstrap.servers": proxy.bootstrap, "group.id": request.node.name})
    yield made
    made.close()


def commit(consumer: Consumer, mark: int) -> dict[tuple[str, int], int | None]:
    """Commit one mark for all partitions; return the errors of each."""
    places = [TopicPartition(topic, number, mark, "a word") for topic in TOPICS for number in (0, 1)]
    try:
        answers = consumer.commit(offsets=places, asynchronous=False)
    except KafkaException as error:
        return {(one.topic, one.partition): error.args[0].code() for one in places}
    assert answers is not None
    return {(one.topic, one.partition): None if one.error is None else one.error.code() for one in answers}


def marks(proxy: KafkaProxy, group: str) -> set[int]:
    places = [Partition(topic, number) for topic in TOPICS for number in (0, 1)]
    return {one.mark for one in Admin(Kafka(proxy.bootstrap), 20.0).committed(group, places).values()}


def test_a_refused_commit_is_refused_for_each_partition_and_never_stored(
    proxy: KafkaProxy, consumer: Consumer, request: pytest.FixtureRequest
) -> None:
    assert set(commit(consumer, 3).values()) == {None}
    with proxy.under(RefuseCommits(KafkaError.ILLEGAL_GENERATION)) as refusal:
        errors = commit(consumer, 5)
    assert len(errors) == 4
    assert set(errors.values()) == {KafkaError.ILLEGAL_GENERATION}
    assert refusal.struck == 1
    assert marks(proxy, request.node.name) == {3}
    assert set(commit(consumer, 5).values()) == {None}
    assert refusal.struck == 1, "it is off"
    assert marks(proxy, request.node.name) == {5}


def test_a_delayed_commit_arrives_later_and_one_that_is_let_go_at_once(proxy: KafkaProxy, consumer: Consumer) -> None:
    assert set(commit(consumer, 1).values()) == {None}
    with proxy.under(Delay([OFFSET_COMMIT], seconds=1.0)) as delay:
        began = time.monotonic()
        assert set(commit(consumer, 2).values()) == {None}
        assert time.monotonic() - began >= 1.0
    assert (delay.struck, delay.is_holding) == (1, False)

    with proxy.under(Delay([OFFSET_COMMIT], seconds=3600.0)) as delay:
        consumer.commit(offsets=[TopicPartition("a", 0, 3)], asynchronous=True)
        wait_until(lambda: delay.is_holding, within=10, what="a commit is held")
    wait_until(lambda: not delay.is_holding, within=10, what="it is let go")


def test_a_refused_commit_in_a_transaction_is_refused_for_each_partition_and_never_stored(
    proxy: KafkaProxy, consumer: Consumer, request: pytest.FixtureRequest
) -> None:
    assert set(commit(consumer, 3).values()) == {None}
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "transactional.id": request.node.name})
    producer.init_transactions(20)

    def commit_inside(mark: int) -> None:
        producer.begin_transaction()
        places = [TopicPartition(topic, number, mark, "a word") for topic in TOPICS for number in (0, 1)]
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), 20)
        producer.commit_transaction(20)

    with proxy.under(RefuseCommits(KafkaError.UNKNOWN_MEMBER_ID)) as refusal:
        with pytest.raises(KafkaException) as refused:
            commit_inside(5)
        assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    assert refusal.struck == 1
    producer.abort_transaction(20)
    assert marks(proxy, request.node.name) == {3}
    commit_inside(7)
    wait_until(lambda: marks(proxy, request.node.name) == {7}, within=10, what="the end of the transaction is written")


def test_a_commit_whose_answer_is_held_is_done_and_its_answer_comes_later_or_is_lost_in_a_cut(
    proxy: KafkaProxy, consumer: Consumer, request: pytest.FixtureRequest
) -> None:
    assert set(commit(consumer, 1).values()) == {None}
    with ThreadPoolExecutor(1) as threads:
        with proxy.under(DelayAnswers([OFFSET_COMMIT], seconds=3600.0)) as held:
            answer = threads.submit(commit, consumer, 2)
            wait_until(lambda: held.is_holding, within=10, what="an answer on its way")
            assert marks(proxy, request.node.name) == {2}, "the broker has done it"
            assert not answer.done()
        assert set(answer.result(20).values()) == {None}
        assert (held.struck, held.is_holding) == (1, False)

        with proxy.under(DelayAnswers([OFFSET_COMMIT], seconds=3600.0)) as lost:
            answer = threads.submit(commit, consumer, 3)
            wait_until(lambda: lost.is_holding, within=10, what="an answer on its way")
            assert marks(proxy, request.node.name) == {3}, "the broker has done it"
            assert proxy.cut() > 0
            wait_until(lambda: lost.struck > 1, within=30, what="the client, which heard nothing, asks again")
        assert set(answer.result(20).values()) == {None}


def test_clients_come_back_after_a_cut(proxy: KafkaProxy, consumer: Consumer) -> None:
    assert set(commit(consumer, 1).values()) == {None}
    assert proxy.cut() > 0
    wait_until(lambda: set(commit(consumer, 2).values()) == {None}, within=20, what="a commit is taken again")
    report = produce("a", [Message(b"x" * 900_000, partition=0)], kafka=Kafka(proxy.bootstrap))
    assert [one.first_offset for one in report.partitions] == [0]


def test_unplugged_it_ends_every_connection_and_takes_none_until_it_is_plugged_in_again(
    proxy: KafkaProxy, consumer: Consumer
) -> None:
    assert set(commit(consumer, 1).values()) == {None}
    assert proxy.unplug() > 0, "there were connections to end"
    try:
        with pytest.raises(BrokerUnreachable):
            Admin(Kafka(proxy.bootstrap), 2.0).topics()
    finally:
        proxy.plug()
    assert set(TOPICS) <= {info.name for info in Admin(Kafka(proxy.bootstrap), 20.0).topics()}
    wait_until(lambda: set(commit(consumer, 2).values()) == {None}, within=30, what="the old client is back")


@pytest.mark.parametrize("ask", [Admin.ends, bulk.ends], ids=["one by one", "in bulk"])
def test_a_log_whose_end_nobody_told_has_none_and_is_asked_for_again(
    proxy: KafkaProxy, ask: Callable[[Admin, list[Partition]], dict[Partition, int]]
) -> None:
    admin = Admin(Kafka(proxy.bootstrap), 20.0)
    places = [Partition("b", 0), Partition("b", 1)]
    assert ask(admin, places) == dict.fromkeys(places, 0)
    heard: list[Future[Any]] = []

    def told(client: AdminClient, question: dict[TopicPartition, Any], **options: Any) -> dict[Any, Any]:
        answers = list_offsets(client, question, **options)
        heard.extend(answers.values())
        return answers

    list_offsets = AdminClient.list_offsets
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as threads:
        patch.setattr(AdminClient, "list_offsets", told)
        with proxy.under(Delay([LIST_OFFSETS], seconds=3600.0)) as delay:
            asked = threads.submit(ask, admin, places)
            wait_until(lambda: delay.is_holding, within=10, what="a question on its way")
            assert proxy.cut() > 0
        assert asked.result(60).items() <= dict.fromkeys(places, 0).items(), "right, or left out"
    without = [one for one in heard if one.exception() is None and one.result().offset == OFFSET_INVALID]
    assert without, "the client told of no answer without an offset, so nothing was proved"


def test_a_mark_that_was_asked_for_over_a_connection_that_is_cut_is_not_taken_for_missing(
    proxy: KafkaProxy, request: pytest.FixtureRequest
) -> None:
    admin = Admin(Kafka(proxy.bootstrap), 20.0)
    places = [Partition("a", 0), Partition("a", 1)]
    admin.commit_for_empty_group(request.node.name, dict.fromkeys(places, (5, "")))
    assert {one.mark for one in admin.committed(request.node.name, places).values()} == {5}
    with ThreadPoolExecutor(1) as threads:
        with proxy.under(Delay([OFFSET_FETCH], seconds=3600.0)) as delay:
            asked = threads.submit(admin.committed, request.node.name, places)
            wait_until(lambda: delay.is_holding, within=10, what="a question on its way")
            assert proxy.cut() > 0
        assert {place: one.mark for place, one in asked.result(60).items()} == dict.fromkeys(places, 5)
