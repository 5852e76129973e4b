"""Readers of Python workers: one that hears nothing is replaced, one that has nothing to hear is not."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.support import broker_behind_proxy, wait_until
from tidegate.kafka import reader
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.kafka.reader import Reader, worker_reader
from tidegate.ops.produce import Message, produce
from tidegate.records import Partition
from tidegate.testing import KafkaProxy

KEY = b"a key"


@pytest.fixture(scope="module")
def proxy() -> Iterator[KafkaProxy]:
    with broker_behind_proxy() as made:
        yield made


@pytest.fixture
def place(proxy: KafkaProxy, monkeypatch: pytest.MonkeyPatch) -> Partition:
    """A partition with one record."""
    monkeypatch.setattr(reader, "_readers", {})
    monkeypatch.setattr(reader, "DEAF_SECONDS", 1.0)
    topic = f"read-{uuid.uuid4().hex[:8]}"
    Admin(Kafka(proxy.bootstrap), 20.0).create_topic(topic, 1)
    produce(topic, [Message(b"one")], kafka=Kafka(proxy.bootstrap))
    return Partition(topic, 0)


def listen(one: Reader, times: int) -> list[bytes | None]:
    return [message.value() for _ in range(times) for message in one.read(10, 0.1)]


def test_a_reader_that_hears_nothing_is_replaced_and_the_next_one_reads(proxy: KafkaProxy, place: Partition) -> None:
    kafka = Kafka(proxy.bootstrap)
    first = worker_reader(kafka, "group", KEY)
    proxy.unplug()
    try:
        for era in ("one", "two"):  # its partitions go and come back meanwhile
            first.begin({place: 0}, era)
            assert listen(first, 6) == []
        assert first.has_failed
    finally:
        proxy.plug()
    second = worker_reader(kafka, "group", KEY)
    assert second is not first
    second.begin({place: 0}, "three")
    wait_until(lambda: listen(second, 1) == [b"one"], within=30, what="its record")


def test_a_reader_that_hears_nothing_any_more_after_it_was_at_the_end_is_replaced(
    proxy: KafkaProxy, place: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partitions stay, so that nothing else would make it look."""
    monkeypatch.setattr(reader, "HEARD_SECONDS", 0.5)
    first = worker_reader(Kafka(proxy.bootstrap), "group", KEY)
    first.begin({place: 1}, "one")
    wait_until(lambda: listen(first, 1) is not None and bool(first.take_ends(tuple)), within=30, what="the end")
    proxy.unplug()
    try:
        for _ in range(3):
            first.stand_at(place, 1)
            first.begin({place: 1}, "one")
            assert listen(first, 8) == []
        assert first.has_failed
    finally:
        proxy.plug()


@pytest.mark.parametrize("mark", [0, 1])
def test_a_reader_that_has_read_all_there_is_stays(proxy: KafkaProxy, place: Partition, mark: int) -> None:
    first = worker_reader(Kafka(proxy.bootstrap), "group", KEY)
    first.begin({place: mark}, "one")
    wait_until(lambda: listen(first, 1) is not None and bool(first.take_ends(tuple)), within=30, what="the end")
    assert listen(first, 30) == []
    assert not first.has_failed
    assert worker_reader(Kafka(proxy.bootstrap), "group", KEY) is first
