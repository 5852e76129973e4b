"""Producing: every record has its place in the report, or a reason."""

from __future__ import annotations

import itertools
import time
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tidegate.errors import BrokerUnreachable, DeliveryFailed, SettingsError, TopicMissing
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.ops.produce import Delivered, Message, produce
from tidegate.ops.tail import tail
from tidegate.records import Partition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.dev.broker import Broker
    from tidegate.kafka.writer import Ack


@pytest.fixture
def kafka(broker: Broker) -> Kafka:
    return Kafka(broker.bootstrap)


@pytest.fixture
def topic(kafka: Kafka) -> str:
    name = f"produce-{uuid.uuid4().hex[:12]}"
    # Some tests write old timestamps, and retention goes by these.
    Admin(kafka).create_topic(name, partitions=2, config={"retention.ms": "-1"})
    return name


def test_values_of_every_kind_arrive_as_they_should(kafka: Kafka, topic: str) -> None:
    moment = datetime(2026, 1, 31, 12, 0, 0, 123000, tzinfo=UTC)
    message = Message("v", key="k", headers={"a": "1", "b": b"\xff", "c": None}, partition=1, timestamp=moment)
    values = ["té", b"\x00\xff", None, {"amount": 5}, [1, 2], 7]
    produce(topic, [*(Message(value, partition=0) for value in values), message], kafka=kafka)
    seen = list(tail(topic, kafka=kafka))

    assert [record.value for record in seen if record.partition == 0] == [
        "té".encode(),
        b"\x00\xff",
        None,
        b'{"amount":5}',
        b"[1,2]",
        b"7",
    ]
    (last,) = [record for record in seen if record.partition == 1]
    assert (last.key, last.value, last.timestamp) == (b"k", b"v", moment)
    assert last.headers == (("a", b"1"), ("b", b"\xff"), ("c", None))


def test_the_report_names_first_and_last_offset_of_each_partition(kafka: Kafka, topic: str) -> None:
    produce(topic, [Message("earlier", partition=0)], kafka=kafka)
    report = produce(topic, [Message(str(number), partition=number % 2) for number in range(5)], kafka=kafka)

    assert report.count == 5
    assert report.failures == ()
    assert report.partitions == (
        Delivered(Partition(topic, 0), 3, 1, 3),
        Delivered(Partition(topic, 1), 2, 0, 1),
    )


def test_plain_values_keep_their_order_under_one_key(kafka: Kafka, topic: str) -> None:
    produce(topic, (Message(str(number), key="same") for number in range(5_000)), kafka=kafka)

    assert [record.value for record in tail(topic, kafka=kafka)] == [str(number).encode() for number in range(5_000)]


def test_a_full_queue_is_waited_for(broker: Broker, topic: str) -> None:
    small = Kafka(broker.bootstrap, {"queue.buffering.max.messages": 10})
    report = produce(topic, (str(number) for number in range(500)), kafka=small)

    assert report.count == 500
    values = [record.value for record in tail(topic, kafka=small)]
    assert sorted(values, key=lambda value: int(value or b"")) == [str(number).encode() for number in range(500)]


def test_a_missing_topic_is_said_at_once(kafka: Kafka, topic: str) -> None:
    began = time.monotonic()
    with pytest.raises(TopicMissing, match=f"tidegate topics create {topic}-not"):
        produce(f"{topic}-not", ["x"], kafka=kafka)

    assert time.monotonic() - began < 5.0


def test_a_partition_that_is_not_there_fails_with_the_choice(kafka: Kafka, topic: str) -> None:
    with pytest.raises(DeliveryFailed, match=r"\[7\] does not exist: the topic has 2 partitions; choose .* 0 to 1"):
        produce(topic, [Message("x", partition=7)], kafka=kafka)


def test_a_failed_record_ends_the_sending_and_the_report_says_what_arrived(kafka: Kafka, topic: str) -> None:
    records = [Message("fits", partition=0), Message("x" * 5_000_000, partition=0), Message("never", partition=0)]
    with pytest.raises(DeliveryFailed, match=r"1 of 2 records were not delivered .*too large; send less") as caught:
        produce(topic, records, kafka=kafka)

    report = caught.value.delivery
    assert report is not None
    assert report.partitions == (Delivered(Partition(topic, 0), 1, 0, 0),)
    assert len(report.failures) == 1
    assert [record.value for record in tail(topic, kafka=kafka)] == [b"fits"]


def test_a_value_that_json_cannot_hold_is_a_failure_with_the_cure(kafka: Kafka, topic: str) -> None:
    with pytest.raises(DeliveryFailed, match=r"type object cannot be written: .*; pass bytes, text, None"):
        produce(topic, [object()], kafka=kafka)


def test_a_time_without_a_zone_is_refused(kafka: Kafka, topic: str) -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001  # the point of the test
    with pytest.raises(DeliveryFailed, match="no time zone; pass an aware datetime"):
        produce(topic, [Message("x", timestamp=naive)], kafka=kafka)


def test_records_sent_before_the_source_broke_have_arrived(kafka: Kafka, topic: str) -> None:
    def source() -> Iterator[str]:
        yield "first"
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        produce(topic, source(), kafka=kafka)

    assert [record.value for record in tail(topic, kafka=kafka)] == [b"first"]


def test_pacing_keeps_its_distance_and_tells_of_each_record_meanwhile(kafka: Kafka, topic: str) -> None:
    told: list[Ack] = []
    taken: list[float] = []
    told_by_then: list[int] = []

    def source() -> Iterator[Message]:
        for number in range(4):
            yield Message(str(number), partition=0)
            taken.append(time.monotonic())
            told_by_then.append(len(told))

    produce(topic, source(), kafka=kafka, every="700ms", on_ack=told.append)

    assert all(later - earlier >= 0.69 for earlier, later in itertools.pairwise(taken[1:]))
    assert [ack.record_offset for ack in told] == [0, 1, 2, 3]
    assert told_by_then[-1] >= 2, "acknowledgements come while it waits, not only at the end"


def test_a_pace_that_is_no_duration_is_refused(kafka: Kafka, topic: str) -> None:
    with pytest.raises(SettingsError, match="'often' is not a duration"):
        produce(topic, ["x"], kafka=kafka, every="often")


def test_nobody_there_is_said_within_the_broker_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_BROKER_TIMEOUT", "500ms")
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1 does not answer"):
        produce("orders", ["x"], kafka=Kafka("127.0.0.1:1"))
