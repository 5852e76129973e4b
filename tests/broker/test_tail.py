"""Looking at topics: every place to start from, up to the end or beyond, without a trace."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tidegate.errors import SettingsError, TopicMissing
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.ops.produce import Message, produce
from tidegate.ops.tail import Start, parse_start, tail
from tidegate.records import Partition

if TYPE_CHECKING:
    from tidegate.dev.broker import Broker


@pytest.fixture
def kafka(broker: Broker) -> Kafka:
    return Kafka(broker.bootstrap)


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """Two partitions; the first holds 0 to 9 at one record a minute, the second a single record."""
    name = f"tail-{uuid.uuid4().hex[:12]}"
    # The timestamps are old, and retention goes by these.
    Admin(kafka).create_topic(name, partitions=2, config={"retention.ms": "-1"})
    minutes = [datetime(2026, 1, 31, 12, minute, tzinfo=UTC) for minute in range(10)]
    records = [Message(str(at.minute), partition=0, timestamp=at) for at in minutes]
    produce(name, [*records, Message("other", partition=1, timestamp=minutes[0])], kafka=kafka)
    return name


def offsets_seen(topic: str, kafka: Kafka, start: str | int, partition: int = 0) -> list[int]:
    return [record.offset for record in tail(topic, start=start, partitions=[partition], kafka=kafka)]


PLACES = [
    ("beginning", list(range(10))),
    ("end", []),
    ("4", [4, 5, 6, 7, 8, 9]),
    ("-3", [7, 8, 9]),
    ("-99", list(range(10))),
    ("-0", []),
    ("2026-01-31T12:07Z", [7, 8, 9]),
    ("2026-01-31T12:06:30", [7, 8, 9]),
    ("2026-01-31T14:07+02:00", [7, 8, 9]),
    ("2026-01-31", list(range(10))),
    ("2026-02-01", []),
]


@pytest.mark.parametrize(("start", "expected"), PLACES, ids=[row[0] for row in PLACES])
def test_each_place_to_start_from_begins_at_its_record(
    kafka: Kafka, topic: str, start: str, expected: list[int]
) -> None:
    assert offsets_seen(topic, kafka, start) == expected


def test_all_partitions_are_read_unless_some_are_chosen(kafka: Kafka, topic: str) -> None:
    assert sorted((record.partition, record.offset) for record in tail(topic, kafka=kafka, start=0)) == [
        *((0, offset) for offset in range(10)),
        (1, 0),
    ]
    assert offsets_seen(topic, kafka, "beginning", partition=1) == [0]


def test_a_record_shows_all_that_it_has(kafka: Kafka, topic: str) -> None:
    produce(topic, [Message(b"\xff", key="k", headers={"h": "1"}, partition=1)], kafka=kafka)
    (record,) = tail(topic, start="-1", partitions=[1], kafka=kafka)

    assert (record.topic, record.partition, record.offset) == (topic, 1, 1)
    assert (record.key, record.value, record.headers) == (b"k", b"\xff", (("h", b"1"),))
    assert record.timestamp is not None
    assert record.timestamp.tzinfo is UTC


def test_following_goes_on_with_what_comes_later(kafka: Kafka, topic: str) -> None:
    following = tail(topic, start="-1", follow=True, partitions=[0], kafka=kafka)
    assert next(following).offset == 9

    produce(topic, [Message("later", partition=0)], kafka=kafka)
    assert next(following).value == b"later"


def test_what_is_written_after_the_start_is_beyond_the_end(kafka: Kafka, topic: str) -> None:
    reading = tail(topic, partitions=[0], kafka=kafka)
    first = next(reading)
    produce(topic, [Message("later", partition=0)], kafka=kafka)

    assert [first.offset, *(record.offset for record in reading)] == list(range(10))


def test_the_end_is_reached_past_markers_and_aborted_records(kafka: Kafka, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions()
    for value, end in ((b"kept", producer.commit_transaction), (b"aborted", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=1)
        assert producer.flush(10) == 0
        end()

    assert [record.value for record in tail(topic, partitions=[1], kafka=kafka)] == [b"other", b"kept"]


def test_it_leaves_no_group_behind(kafka: Kafka, topic: str) -> None:
    before = Admin(kafka).groups()
    assert len(list(tail(topic, kafka=kafka))) == 11

    assert Admin(kafka).groups() == before


def test_records_that_are_gone_are_mentioned_and_the_rest_is_read(kafka: Kafka, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in client.delete_records([TopicPartition(topic, 0, 6)]).values():
        future.result(10)
    notices: list[str] = []
    seen = [record.offset for record in tail(topic, start=2, partitions=[0], kafka=kafka, on_notice=notices.append)]

    assert seen == [6, 7, 8, 9]
    assert notices == [f"{Partition(topic, 0)}: records before offset 6 are no longer retained"]


def test_an_offset_beyond_the_end_is_mentioned(kafka: Kafka, topic: str) -> None:
    notices: list[str] = []

    assert list(tail(topic, start="50", partitions=[0], kafka=kafka, on_notice=notices.append)) == []
    assert notices == [f"{Partition(topic, 0)}: there is no offset 50 yet, the end is 10"]


def test_silence_is_mentioned_while_following(kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class HeardError(Exception):
        pass

    def hear(sentence: str) -> None:
        raise HeardError(sentence)

    monkeypatch.setattr("tidegate.ops.tail._NOTICE_SECONDS", 1.0)
    with pytest.raises(HeardError, match="nothing has come for 1s"):
        next(tail(topic, start="end", follow=True, kafka=kafka, on_notice=hear))


def test_a_topic_or_partition_that_is_not_there_is_named(kafka: Kafka, topic: str) -> None:
    with pytest.raises(TopicMissing, match=f"the topic {topic}-not does not exist"):
        next(tail(f"{topic}-not", kafka=kafka))
    with pytest.raises(TopicMissing, match=r"\[5\] does not exist: the topic has 2 partitions"):
        next(tail(topic, partitions=[5], kafka=kafka))


@pytest.mark.parametrize("start", ["", "middle", "1.5", "--3", "12:00", "2026-13-01"])
def test_what_is_no_place_is_refused_with_the_choices(start: str) -> None:
    with pytest.raises(SettingsError, match="is no place to start from; write beginning, end"):
        parse_start(start)


def test_a_time_without_a_zone_is_utc() -> None:
    assert parse_start("1970-01-01T00:01") == Start("time", 60_000)
