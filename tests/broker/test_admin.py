"""Topics, ends and group offsets, asked of a real broker."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support import wait_until
from tidegate.errors import BrokerRefused, BrokerUnreachable, GroupHasMembers, SettingsError, TopicMissing
from tidegate.kafka.admin import Admin
from tidegate.kafka.commits import CommitSeen, read_commits, watch_commits
from tidegate.kafka.connection import Kafka
from tidegate.ops.produce import Message, produce
from tidegate.records import Commit, Partition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from tidegate.dev.broker import Broker


@pytest.fixture
def kafka(broker: Broker) -> Kafka:
    return Kafka(broker.bootstrap)


@pytest.fixture
def admin(kafka: Kafka) -> Admin:
    return Admin(kafka, timeout_seconds=10.0)


@pytest.fixture
def name() -> str:
    return f"admin-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic(admin: Admin, name: str) -> str:
    admin.create_topic(name, partitions=3)
    return name


def joined(kafka: Kafka, group: str, topic: str, protocol: str) -> AbstractContextManager[Consumer]:
    member = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
        }
    )
    member.subscribe([topic])

    def has_partitions() -> bool:
        member.poll(0.05)
        return bool(member.assignment())

    wait_until(has_partitions, within=30, what="the member has its partitions")
    return member


def test_a_new_topic_can_be_used_at_once_and_is_described(admin: Admin, name: str) -> None:
    admin.create_topic(name, partitions=3, config={"cleanup.policy": "compact"}, replication=1)
    info = admin.describe([name])[name]

    assert (info.name, info.partitions, info.replication, info.is_internal) == (name, 3, 1, False)
    assert info.each_partition() == (Partition(name, 0), Partition(name, 1), Partition(name, 2))
    assert admin.ends(info.each_partition()) == dict.fromkeys(info.each_partition(), 0)
    assert info in admin.topics()


def test_a_topic_that_was_recreated_has_another_id(admin: Admin, topic: str) -> None:
    first = admin.describe([topic])[topic].topic_id
    admin.delete_topic(topic)
    assert admin.existing([topic]) == {}
    admin.create_topic(topic)

    assert admin.describe([topic])[topic].topic_id != first


def test_missing_topics_are_all_named_with_the_nearest_name_and_the_cure(admin: Admin, topic: str) -> None:
    nearly = topic[:-1]
    with pytest.raises(TopicMissing) as caught:
        admin.describe([topic, nearly, "zzz"])

    assert str(caught.value) == (
        f"the topics {nearly}, zzz do not exist (did you mean {topic}?); "
        f"create them with: tidegate topics create {nearly} && tidegate topics create zzz"
    )


def test_a_name_that_is_taken_is_refused(admin: Admin, topic: str) -> None:
    with pytest.raises(BrokerRefused, match="already exists; choose another name"):
        admin.create_topic(topic)


@pytest.mark.parametrize(
    ("bad_name", "partitions", "config", "replication"),
    [("a b", 1, {}, 1), ("", 1, {}, 1), ("ok", 0, {}, 1), ("ok", 1, {"no.such.setting": "1"}, 1), ("ok", 1, {}, 9)],
    ids=["name", "empty name", "partitions", "setting", "replication"],
)
def test_a_topic_that_cannot_be_is_refused_as_a_setting(
    admin: Admin, bad_name: str, partitions: int, config: dict[str, str], replication: int
) -> None:
    with pytest.raises(SettingsError, match="creating topic"):
        admin.create_topic(bad_name, partitions, config, replication)


def test_a_client_that_is_never_answered_again_is_replaced_before_the_next_question(kafka: Kafka, topic: str) -> None:
    admin = Admin(kafka, 2.0)
    admin._asker._client = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    with pytest.raises(BrokerUnreachable, match="does not answer"):
        admin.describe([topic])

    assert admin.describe([topic])[topic].partitions == 3


def test_a_client_stays_where_a_new_one_is_not_answered_either() -> None:
    asker = Admin(Kafka("127.0.0.1:1"), 0.5)._asker
    before = asker.client
    with pytest.raises(BrokerUnreachable):
        asker.ask("asking", lambda: {0: asker.client.describe_cluster(request_timeout=0.5)})

    assert asker._is_doubted
    assert asker.client is before


def test_deleting_what_is_not_there_says_so(admin: Admin, name: str) -> None:
    with pytest.raises(TopicMissing, match=f"the topic {name} does not exist"):
        admin.delete_topic(name)


def test_offsets_of_a_partition_or_topic_that_is_not_there_say_which(admin: Admin, topic: str, name: str) -> None:
    with pytest.raises(TopicMissing, match=r"\[9\] does not exist: the topic has 3 partitions; choose .* 0 to 2"):
        admin.ends([Partition(topic, 9)])
    with pytest.raises(TopicMissing, match=f"the topic {name}-not does not exist"):
        admin.beginnings([Partition(f"{name}-not", 0)])


def test_beginnings_and_ends_follow_the_log(admin: Admin, kafka: Kafka, topic: str) -> None:
    produce(topic, [Message(str(number), partition=1) for number in range(5)], kafka=kafka)
    at = Partition(topic, 1)

    assert admin.beginnings([at]) == {at: 0}
    assert admin.ends([at]) == {at: 5}
    assert admin.ends([]) == {}


def test_an_open_transaction_ends_the_log_for_committed_readers(admin: Admin, kafka: Kafka, topic: str) -> None:
    at = Partition(topic, 0)
    produce(topic, [Message("before", partition=0)], kafka=kafka)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"inside", partition=0)
    assert producer.flush(10) == 0

    assert admin.ends([at]) == {at: 1}
    assert admin.ends([at], committed_only=False) == {at: 2}

    producer.commit_transaction()
    wait_until(lambda: admin.ends([at]) == {at: 3}, within=10, what="the record and the marker are in the log")


def test_a_time_is_the_first_record_from_then_on_or_the_end(admin: Admin, kafka: Kafka, topic: str) -> None:
    at, empty = Partition(topic, 0), Partition(topic, 1)
    produce(topic, [Message(str(number), partition=0) for number in range(3)], kafka=kafka)
    future_ms = int(time.time() * 1000) + 3_600_000

    assert admin.offsets_at([at, empty], 0) == {at: 0, empty: 0}
    assert admin.offsets_at([at, empty], future_ms) == {at: 3, empty: 0}


def test_starting_positions_are_stored_with_their_metadata_for_an_empty_group(admin: Admin, topic: str) -> None:
    zero, one, two = (Partition(topic, number) for number in range(3))
    admin.commit_for_empty_group(topic, {zero: (0, "v1:é"), one: (7, "")})

    assert admin.committed(topic) == {zero: Commit(0, "v1:é"), one: Commit(7, "")}
    assert admin.committed(topic, [one, two], require_stable=True) == {one: Commit(7, "")}
    assert admin.committed(topic, []) == {}
    assert topic in admin.groups()


def test_a_group_that_nobody_used_is_dead_and_has_nothing(admin: Admin, name: str) -> None:
    info = admin.group_members(name)

    assert (info.state, info.members) == ("dead", ())
    assert admin.committed(name) == {}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_takes_no_commit_from_outside(
    admin: Admin, kafka: Kafka, topic: str, protocol: str
) -> None:
    at = Partition(topic, 0)
    admin.commit_for_empty_group(topic, {at: (1, "before")})
    with joined(kafka, topic, topic, protocol):
        with pytest.raises(GroupHasMembers, match=f"group {topic} has members"):
            admin.commit_for_empty_group(topic, {at: (2, "foreign")})
        info = admin.group_members(topic)

    assert info.state == "stable"
    assert [member.partitions for member in info.members] == [tuple(Partition(topic, number) for number in range(3))]
    assert info.members[0].host == "127.0.0.1"
    assert admin.committed(topic) == {at: Commit(1, "before")}, "the refused commit left no trace"

    wait_until(lambda: admin.group_members(topic).state == "empty", within=10, what="the member has left")
    admin.commit_for_empty_group(topic, {at: (2, "after")})
    assert admin.committed(topic) == {at: Commit(2, "after")}


def test_metadata_that_is_too_large_is_refused_with_the_cure(admin: Admin, topic: str) -> None:
    with pytest.raises(BrokerRefused, match=r"raise offset\.metadata\.max\.bytes"):
        admin.commit_for_empty_group(topic, {Partition(topic, 0): (0, "x" * 5000)})


def test_a_commit_for_a_topic_that_is_not_there_is_refused(admin: Admin, name: str) -> None:
    with pytest.raises(TopicMissing, match=f"the topic {name} does not exist"):
        admin.commit_for_empty_group(name, {Partition(name, 0): (0, "")})


def test_every_commit_of_a_group_is_read_in_order_and_no_other_groups(admin: Admin, kafka: Kafka, topic: str) -> None:
    zero, one = Partition(topic, 0), Partition(topic, 1)
    before_ms = int(time.time() * 1000)
    admin.commit_for_empty_group(topic, {zero: (1, "é")})
    admin.commit_for_empty_group(f"{topic}-other", {zero: (99, "")})
    admin.commit_for_empty_group(topic, {one: (5, "")})
    admin.commit_for_empty_group(topic, {zero: (2, "later")})
    seen = read_commits(kafka, topic)

    assert [(commit.partition, commit.mark, commit.metadata) for commit in seen] == [
        (zero, 1, "é"),
        (one, 5, ""),
        (zero, 2, "later"),
    ]
    assert {commit.group for commit in seen} == {topic}
    assert [commit.log_offset for commit in seen] == sorted({commit.log_offset for commit in seen})
    assert all(before_ms <= commit.committed_at_ms <= int(time.time() * 1000) for commit in seen)


def test_a_group_that_never_committed_has_no_commits(admin: Admin, kafka: Kafka, topic: str) -> None:
    admin.commit_for_empty_group(f"{topic}-other", {Partition(topic, 0): (0, "")})

    assert read_commits(kafka, topic) == []


def test_commits_are_watched_as_they_come_and_only_from_now_on(admin: Admin, kafka: Kafka, topic: str) -> None:
    at = Partition(topic, 0)
    admin.commit_for_empty_group(topic, {at: (1, "past")})
    watching: Iterator[CommitSeen | None] = watch_commits(kafka, topic)
    assert next(watching) is None, "what was committed before is not news"

    admin.commit_for_empty_group(topic, {at: (2, "news")})
    seen: list[CommitSeen] = []

    def has_come() -> bool:
        commit = next(watching)
        seen.extend([] if commit is None else [commit])
        return bool(seen)

    wait_until(has_come, within=10, what="the commit is seen")
    assert [(commit.mark, commit.metadata) for commit in seen] == [(2, "news")]


def test_a_commit_inside_a_transaction_counts_when_it_is_committed(admin: Admin, kafka: Kafka, topic: str) -> None:
    at = Partition(topic, 0)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions()
    with joined(kafka, topic, topic, "classic") as member:
        for mark in (5, 6):
            producer.begin_transaction()
            positions = [TopicPartition(topic, 0, mark, metadata="inside")]
            producer.send_offsets_to_transaction(positions, member.consumer_group_metadata())
            assert read_commits(kafka, topic) == [], "an open transaction shows nothing"
            if mark == 5:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        wait_until(lambda: bool(read_commits(kafka, topic)), within=10, what="the commit is visible")

    assert [(commit.mark, commit.metadata) for commit in read_commits(kafka, topic)] == [(6, "inside")]
    assert admin.committed(topic, require_stable=True) == {at: Commit(6, "inside")}
