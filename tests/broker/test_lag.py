"""How far real groups are behind, in records and in seconds, whatever lies in their logs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import tidegate as tg
from tests.support import wait_until
from tidegate.dev.jars import tools_classpath
from tidegate.java import find_java
from tidegate.kafka.commits import read_commits
from tidegate.ledger import Home, encode
from tidegate.ops.cluster import Cluster
from tidegate.ops.lag import load_groups, load_lag
from tidegate.ops.marks import MarksReader
from tidegate.ops.plain import plain
from tidegate.ops.verdicts import Limits, spoken
from tidegate.records import Partition, Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidegate.dev.broker import Broker

WEEK_SECONDS = 7 * 86_400
CHANGING = {"at", "waiting_seconds", "still_seconds", "retention_hours", "expiry_days", "why"}


class Scene:
    """A topic of two partitions, a group of the same name, and a moment in the past at which records were written."""

    def __init__(self, broker: Broker, **config: str) -> None:
        self.kafka = tg.Kafka(broker.bootstrap)
        self.cluster = Cluster(self.kafka, 20.0)
        self.admin = self.cluster.admin
        self.name = f"lag-{uuid.uuid4().hex[:10]}"
        self.admin.create_topic(self.name, 2, {name.replace("_", "."): value for name, value in config.items()})
        self.zero, self.one = Partition(self.name, 0), Partition(self.name, 1)
        self.base_ms = int(time.time() * 1000) - 3_720_000
        self.producer = Producer({"bootstrap.servers": broker.bootstrap})

    def write(self, seconds: Iterable[float], key: str | None = None) -> None:
        """Write a record for each of these seconds after the moment; None: one without a timestamp."""
        for each in seconds:
            at_ms = -1 if each < 0 else self.base_ms + int(each * 1000)
            self.producer.produce(self.name, b"x", key, partition=0, timestamp=at_ms)
        assert self.producer.flush(30) == 0

    def transaction(self, seconds: Iterable[float], *, end: str) -> Producer:
        writer = Producer({"bootstrap.servers": self.kafka.bootstrap, "transactional.id": uuid.uuid4().hex})
        writer.init_transactions(20)
        writer.begin_transaction()
        for each in seconds:
            writer.produce(self.name, b"t", partition=0, timestamp=self.base_ms + int(each * 1000))
        assert writer.flush(30) == 0
        if end == "commit":
            writer.commit_transaction(20)
        if end == "abort":
            writer.abort_transaction(20)
        if end != "open":
            ends = [self.admin.ends([self.zero], committed_only=both) for both in (True, False)]
            wait_until(
                lambda: self.admin.ends([self.zero]) == self.admin.ends([self.zero], committed_only=False),
                within=20,
                what=f"the end of the transaction {ends}",
            )
        return writer

    def stand(self, mark: int, metadata: str = "") -> None:
        self.admin.commit_for_empty_group(self.name, {self.zero: (mark, metadata)})

    def lag(self, before: tg.GroupLag | None = None) -> tg.GroupLag:
        return load_lag(self.cluster, self.name, before)

    def first(self, before: tg.GroupLag | None = None) -> tg.PartitionLag:
        return self.lag(before).partitions[0]

    def waited(self, found: tg.GroupLag, seconds: float) -> float:
        """Return how long a record has waited at that look that was written so many seconds after the moment."""
        return found.at.timestamp() - self.base_ms / 1000 - seconds

    def delete_below(self, offset: int) -> None:
        client = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        for future in client.delete_records([TopicPartition(self.name, 0, offset)]).values():
            future.result(10)

    def member(self, **more: str) -> Consumer:
        """A member with all partitions that reads and commits nothing by itself."""
        who = {"bootstrap.servers": self.kafka.bootstrap, "group.id": self.name, "client.id": "them"}
        member = Consumer({**who, "enable.auto.commit": False, **more})
        member.subscribe([self.name])

        def has_partitions() -> bool:
            member.poll(0.05)
            return bool(member.assignment())

        wait_until(has_partitions, within=30, what="the member has its partitions")
        return member

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.words(*words), capture_output=True, text=True, check=False, timeout=60)

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "tidegate.cli", *words, "--bootstrap", self.kafka.bootstrap]


@pytest.fixture
def scene(broker: Broker) -> Scene:
    return Scene(broker)


@pytest.fixture
def member(scene: Scene) -> Iterator[Consumer]:
    with scene.member() as joined:
        yield joined


# --- records and seconds


def test_lag_in_records_and_seconds_of_a_stopped_group(scene: Scene) -> None:
    scene.write(number * 10 for number in range(10))
    scene.admin.commit_for_empty_group(scene.name, {scene.zero: (4, ""), scene.one: (0, "")})
    found = scene.lag()
    behind, idle = found.partitions

    assert (behind.mark, behind.beginning, behind.end_offset, behind.lag, behind.lost) == (4, 0, 10, 6, 0)
    assert behind.lag_seconds == 50.0, "from the record at 4 to the last one"
    assert behind.waiting_seconds == pytest.approx(scene.waited(found, 40), abs=0.01)
    assert behind.retention_hours == pytest.approx(7 * 24 - scene.waited(found, 40) / 3600, abs=0.001)
    assert (idle.lag, idle.lag_seconds, idle.waiting_seconds, idle.retention_hours) == (0, 0.0, 0.0, None)
    assert (found.lag, found.lag_seconds, found.waiting_seconds) == (6, 50.0, behind.waiting_seconds)
    assert (found.verdict, behind.verdict, idle.verdict) == ("stopped", "stopped", "stopped")
    assert behind.waiting_seconds is not None
    assert behind.why == f"nobody works on it; 6 records wait, the first for {spoken(behind.waiting_seconds)}"
    assert (found.state, found.is_tidegate, found.members) == ("empty", False, ())


def test_a_group_that_has_settled_all_is_seen_as_stopped_without_lag(scene: Scene) -> None:
    scene.write([0, 1])
    scene.stand(2)
    found = scene.lag()

    assert (found.verdict, found.lag, found.lag_seconds, found.waiting_seconds) == ("stopped", 0, 0.0, 0.0)
    assert found.why == "nobody works on it; nothing waits"


def test_kafkas_own_tool_and_ours_agree_on_a_plain_group(scene: Scene) -> None:
    scene.write(range(30))
    scene.admin.commit_for_empty_group(scene.name, {scene.zero: (7, ""), scene.one: (0, "")})
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    words = ["--bootstrap-server", scene.kafka.bootstrap, "--describe", "--group", scene.name]
    answer = subprocess.run(
        [str(find_java()), "-cp", tools_classpath(), tool, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    theirs = {
        (topic, int(number)): (int(mark), int(end), int(lag))
        for _, topic, number, mark, end, lag, *_ in (
            line.split() for line in answer.stdout.splitlines() if line.startswith(scene.name)
        )
    }
    ours = {tuple(one.partition): (one.mark, one.end_offset, one.lag) for one in scene.lag().partitions}

    assert ours == theirs == {tuple(scene.zero): (7, 30, 23), tuple(scene.one): (0, 0, 0)}


def test_a_mark_before_a_marker_at_the_end_has_no_lag(scene: Scene) -> None:
    scene.transaction([0, 1], end="commit")
    scene.stand(2)
    found = scene.first()

    assert found.end_offset == 3, "the marker lies at 2"
    assert (found.lag, found.lag_seconds, found.waiting_seconds, found.why) == (
        0,
        0.0,
        0.0,
        "nobody works on it; nothing waits",
    )
    scene.stand(1)
    assert (scene.first().lag, scene.first().lag_seconds) == (2, 0.0)


def test_records_of_an_aborted_transaction_are_no_lag_and_their_times_do_not_count(scene: Scene) -> None:
    scene.write([0, 30])
    scene.transaction(range(100, 140), end="abort")
    scene.stand(2)
    assert scene.admin.ends([scene.zero])[scene.zero] == 43
    assert (scene.first().lag, scene.first().waiting_seconds) == (0, 0.0)
    scene.stand(0)
    found = scene.lag()

    assert found.partitions[0].lag == 43
    assert found.lag_seconds == 30.0, "the last record that can be read is at 30 s, 41 offsets before the end"
    scene.write([200])
    scene.stand(2)
    found = scene.lag()
    assert (found.partitions[0].lag, found.lag_seconds) == (42, 0.0)
    assert found.waiting_seconds == pytest.approx(scene.waited(found, 200), abs=0.01), "the aborted ones are passed"


def test_an_open_transaction_ends_the_log_where_it_began(scene: Scene) -> None:
    scene.write([0, 10])
    holder = scene.transaction([20], end="open")
    scene.write([30])
    scene.stand(0)
    found = scene.first()
    assert (found.end_offset, found.lag, found.lag_seconds) == (2, 2, 10.0)
    scene.stand(2)
    assert scene.first().lag == 0, "nothing that anybody may read"
    scene.stand(4)
    beyond = scene.first()
    assert (beyond.lag, beyond.verdict) == (0, "stopped"), "somebody who reads uncommitted records is there already"
    holder.commit_transaction(20)
    scene.stand(2)
    wait_until(lambda: scene.first().end_offset == 5, within=20, what="the end of the transaction")
    assert (scene.first().lag, scene.first().lag_seconds) == (3, 10.0)


def test_gaps_of_compaction_are_passed_to_the_first_record_that_is_left(broker: Broker) -> None:
    scene = Scene(
        broker,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_ms="100",
        max_compaction_lag_ms="200",
    )
    scene.write(range(100), key="same")
    scene.write([100], key="other")
    scene.stand(0)

    def is_compacted() -> bool:
        scene.write([200], key="tick")  # a segment is closed only by a later record
        found = scene.lag()
        return found.waiting_seconds is not None and found.waiting_seconds < scene.waited(found, 90)

    wait_until(is_compacted, within=90, what="the first records are compacted away")
    found = scene.lag()
    assert found.partitions[0].lag == found.partitions[0].end_offset, "offsets, as every tool counts them"
    assert found.waiting_seconds == pytest.approx(scene.waited(found, 99), abs=0.01)
    assert found.lag_seconds == 101.0
    assert found.partitions[0].retention_hours is None, "a topic that is only compacted keeps the last of each key"


def test_a_log_cut_off_below_the_mark_says_how_many_are_lost(scene: Scene) -> None:
    scene.write(range(0, 100, 10))
    scene.stand(2)
    scene.delete_below(7)
    found = scene.lag()
    one = found.partitions[0]

    assert (one.lost, one.lag, one.lag_seconds) == (5, 8, 20.0)
    assert (one.verdict, found.verdict) == ("unknown", "unknown")
    assert one.why == "5 records at most lost: the log begins at 7, the mark is 2; nobody works on it"


def test_records_without_timestamps_have_lag_and_no_seconds(scene: Scene) -> None:
    scene.write([-1, -1, -1])
    scene.stand(1)
    found = scene.lag()
    one = found.partitions[0]

    assert (one.lag, one.lag_seconds, one.waiting_seconds, one.retention_hours) == (2, None, None, None)
    assert (found.lag, found.lag_seconds, found.waiting_seconds) == (2, None, None)
    assert one.why == "nobody works on it; 2 records wait"


def test_retention_by_bytes_or_without_end_promises_no_hours(broker: Broker) -> None:
    for config in ({"retention_bytes": "1000000"}, {"retention_ms": "-1"}):
        scene = Scene(broker, **config)
        scene.write([0])
        scene.stand(0)
        assert scene.first().waiting_seconds is not None
        assert scene.first().retention_hours is None
    scene = Scene(broker, cleanup_policy="compact,delete", retention_ms="7200000")
    scene.write([0], key="k")
    scene.stand(0)
    found = scene.lag()
    assert found.partitions[0].retention_hours == pytest.approx(2 - scene.waited(found, 0) / 3600, abs=0.001)


# --- what cannot be known


def test_a_member_without_a_commit_is_unknown_where_records_lie(scene: Scene, member: Consumer) -> None:
    assert member.assignment()
    scene.write([0, 1])
    found = scene.lag()
    full, empty = found.partitions

    assert (full.verdict, full.mark, full.lag, full.member) == ("unknown", None, None, "them@127.0.0.1")
    assert full.why == "no commit yet; 2 records at most in the log"
    assert (empty.verdict, empty.why) == ("ok", "no commit yet, and no record to read")
    assert (found.verdict, found.lag) == ("unknown", 0)


def test_a_topic_that_was_made_anew_or_is_gone_is_no_lag(scene: Scene) -> None:
    old = scene.admin.describe([scene.name])[scene.name].topic_id
    ours = encode(Position(1), Home(scene.name, old, 0, ""))
    scene.write([0, 1, 2])
    scene.stand(1, ours)
    assert (scene.first().lag, scene.lag().is_tidegate) == (2, True)
    scene.admin.delete_topic(scene.name)
    wait_until(
        lambda: scene.lag().partitions == (), within=20, what="Kafka forgets the commits of a topic that is gone"
    )
    assert (scene.lag().verdict, scene.lag().lag) == ("unknown", 0)
    scene.admin.create_topic(scene.name, 2)
    scene.write([0, 1, 2])
    scene.stand(1, ours)
    anew = scene.first()
    assert (anew.verdict, anew.lag, anew.lost) == ("unknown", None, 0), "the commit names another topic"
    assert "made anew" in anew.why
    scene.stand(9)
    assert (scene.first().verdict, scene.first().lag) == ("unknown", None), "a mark beyond the end of the log"


def test_a_group_that_nobody_used_is_dead_and_unknown(scene: Scene) -> None:
    found = tg.lag(f"{scene.name}-not", kafka=scene.kafka)
    assert (found.state, found.partitions, found.verdict, found.lag) == ("dead", (), "unknown", 0)


# --- verdicts that need an earlier look


def earlier(found: tg.GroupLag, seconds: float) -> tg.GroupLag:
    return replace(found, at=found.at - timedelta(seconds=seconds))


def test_a_member_whose_mark_stands_still_with_records_waiting_stalls(scene: Scene, member: Consumer) -> None:
    scene.write(range(5))
    member.commit(offsets=[TopicPartition(scene.name, number, 0) for number in (0, 1)], asynchronous=False)
    before = scene.lag()
    assert before.partitions[0].verdict == "behind", "the mark has only just come there"
    found = scene.lag(earlier(before, 100))
    assert [one.verdict for one in found.partitions] == ["stalled", "ok"]
    assert found.verdict == "stalled"
    assert found.partitions[0].still_seconds == pytest.approx(100, abs=20)
    assert "the mark 0 has not moved for" in found.why
    member.commit(offsets=[TopicPartition(scene.name, 0, 3)], asynchronous=False)
    moved = scene.lag(earlier(found, 100))
    assert (moved.partitions[0].still_seconds, moved.verdict) == (0.0, "behind")


def test_one_look_alone_finds_a_stall_by_the_time_of_the_commit(scene: Scene, member: Consumer) -> None:
    scene.write(range(5))
    member.commit(offsets=[TopicPartition(scene.name, 0, 2)], asynchronous=False)

    def stalls() -> bool:
        found = load_lag(scene.cluster, scene.name, limits=Limits(stall_seconds=0.5))
        return found.partitions[0].verdict == "stalled"

    assert load_lag(scene.cluster, scene.name, limits=Limits(stall_seconds=60)).partitions[0].verdict == "behind"
    wait_until(stalls, within=30, what="the mark has stood still for half a second")


def test_a_group_that_was_moved_back_is_rewound_until_it_is_there_again(scene: Scene) -> None:
    scene.write(range(10))
    scene.stand(8)
    before = scene.lag()
    scene.stand(3)
    rewound = scene.lag(before)
    assert (rewound.verdict, rewound.partitions[0].rewound_from) == ("rewound", 8)
    assert "went back from 8 and stands at 3" in rewound.why
    scene.stand(5)
    rewound = scene.lag(rewound)
    assert (rewound.verdict, rewound.partitions[0].rewound_from) == ("rewound", 8)
    scene.stand(8)
    assert scene.lag(rewound).verdict != "rewound"


def test_somebody_who_commits_without_being_a_member_is_not_stopped(scene: Scene) -> None:
    scene.write(range(10))
    scene.stand(2)
    before = scene.lag()
    assert before.verdict == "stopped"
    scene.stand(6)
    moving = scene.lag(before)
    assert moving.verdict == "behind", "its records are an hour old, but it moves"
    assert scene.lag(moving).verdict == "behind", "and has moved a moment ago"


# --- how long offsets are kept


def test_offsets_of_a_group_that_nobody_joined_expire_a_week_after_the_commit(scene: Scene) -> None:
    scene.stand(0)
    found = scene.lag()
    committed = read_commits(scene.kafka, scene.name)[-1].committed_at_ms / 1000
    assert found.expiry_days is not None
    assert found.at.timestamp() + found.expiry_days * 86_400 == pytest.approx(committed + WEEK_SECONDS, abs=0.01)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_of_a_stopped_group_expire_a_week_after_it_stopped(scene: Scene, protocol: str) -> None:
    with scene.member(**{"group.protocol": protocol}) as joined:
        joined.commit(offsets=[TopicPartition(scene.name, 0, 0)], asynchronous=False)
        assert scene.lag().expiry_days is None, "not while it has members"
        committed = read_commits(scene.kafka, scene.name)[-1].committed_at_ms / 1000
        wait_until(lambda: time.time() > committed + 0.2, within=5, what="some time after the commit")
        leaves = time.time()
    wait_until(lambda: scene.lag().state == "empty", within=20, what="the group is empty")
    found = scene.lag()
    assert found.expiry_days is not None
    since = found.at.timestamp() + found.expiry_days * 86_400 - WEEK_SECONDS
    if protocol == "classic":
        assert leaves - 0.1 < since <= found.at.timestamp(), "from when it left"
    else:
        assert since == pytest.approx(committed, abs=0.01), "in the new protocol from the commit"


# --- all groups


def test_all_groups_and_one_group_say_the_same(scene: Scene) -> None:
    scene.write(range(5))
    scene.stand(2)
    alone = scene.lag()
    among = {one.group: one for one in load_groups(scene.cluster)}[scene.name]

    assert without_times(plain(among)) == without_times(plain(alone))
    assert among.partitions[0].lag_seconds == 2.0


def test_a_group_is_asked_itself_while_an_open_transaction_holds_back_the_commits_of_others(scene: Scene) -> None:
    other = f"{scene.name}-other"
    scene.write(range(5))
    scene.stand(2)
    reader = MarksReader(scene.cluster)
    followed = reader.read([scene.name])[scene.name]
    assert followed[scene.zero].committed_at_ms is not None, "read from Kafka's own topic"
    writer = Producer({"bootstrap.servers": scene.kafka.bootstrap, "transactional.id": other})
    writer.init_transactions(20)
    writer.begin_transaction()
    with Consumer({"bootstrap.servers": scene.kafka.bootstrap, "group.id": other}) as somebody:
        writer.send_offsets_to_transaction([TopicPartition(scene.name, 0, 4)], somebody.consumer_group_metadata(), 20)
    scene.stand(3)
    asked = reader.read([scene.name, other])
    assert asked[scene.name][scene.zero].mark == 3
    assert asked[scene.name][scene.zero].committed_at_ms is None, "asked of the group"
    assert asked[other] == {}, "not committed yet"
    writer.commit_transaction(20)

    def is_followed() -> bool:
        found = reader.read([scene.name, other])
        return found[other].get(scene.zero) is not None and found[scene.name][scene.zero].committed_at_ms is not None

    wait_until(is_followed, within=20, what="the commits are followed again")
    assert {at: one.mark for at, one in reader.read([other])[other].items()} == {scene.zero: 4}
    scene.admin.delete_topic(scene.name)
    wait_until(lambda: reader.read([other]) == {other: {}}, within=20, what="commits that are deleted are forgotten")
    reader.close()


# --- the command


def without_times(thing: Any) -> Any:
    if isinstance(thing, dict):
        return {name: without_times(value) for name, value in thing.items() if name not in CHANGING}
    return [without_times(one) for one in thing] if isinstance(thing, list) else thing


def test_the_json_of_the_command_is_the_lag_of_the_library(scene: Scene) -> None:
    scene.write(range(5))
    scene.stand(2, "meta")
    shown = scene.command("lag", scene.name, "--json")
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    ours = plain(tg.lag(scene.name, kafka=scene.kafka))
    assert isinstance(ours, dict)
    assert without_times(found) == without_times(ours)
    assert found.keys() == ours.keys()
    assert found["partitions"][0].keys() == ours["partitions"][0].keys()
    assert (found["lag"], found["partitions"][0]["lag_seconds"]) == (3, 2.0)
    everyone = json.loads(scene.command("lag", "--json").stdout)
    assert without_times([one for one in everyone if one["group"] == scene.name]) == [without_times(found)]


def test_the_command_for_people_shows_the_verdict_and_why(scene: Scene) -> None:
    scene.write(range(5))
    scene.stand(2)
    shown = scene.command("lag", scene.name)
    assert shown.returncode == 0, shown.stderr
    first, why, heading, row = shown.stdout.splitlines()
    assert first.startswith(f"{scene.name}  stopped  empty  0 members  lag 3  offsets forgotten in 7.0 days")
    assert why.startswith("nobody works on it; 3 records wait, the first for 1 h ")
    assert heading.split() == ["TOPIC", "PARTITION", "MARK", "END", "LAG", "SPAN", "WAITS", "KEPT", "VERDICT", "WHY"]
    assert row.split()[:5] == [scene.name, "0", "2", "5", "3"]
    rows = [line.split() for line in scene.command("lag").stdout.splitlines()]
    assert [row[:3] for row in rows if row[0] == scene.name] == [[scene.name, "stopped", "3"]]


def test_the_command_fails_where_too_many_wait_or_for_too_long(scene: Scene) -> None:
    scene.write(range(5))
    scene.stand(2)
    assert scene.command("lag", scene.name, "--most", "3", "--longest", "2h").returncode == 0
    both = scene.command("lag", scene.name, "--most", "2", "--longest", "10m")
    assert both.returncode == 1
    assert f"tidegate: group {scene.name}: 3 records wait, more than 2\n" in both.stderr
    assert f"tidegate: group {scene.name}: a record waits for 1 h " in both.stderr
    missing = scene.command("lag", f"{scene.name}x")
    assert missing.returncode == 1
    assert f"did you mean {scene.name}?" in missing.stderr


def test_watching_without_a_terminal_prints_a_line_for_each_look(scene: Scene) -> None:
    scene.write(range(5))
    scene.stand(2)
    process = subprocess.Popen(
        scene.words("lag", scene.name, "--watch", "--every", "100ms"), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert f"  {scene.name}  stopped  lag 3  nobody works on it" in process.stdout.readline()
        scene.write([6])
        while "  lag 4  " not in (line := process.stdout.readline()):
            assert line, "it ended too early"
    finally:
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(20) == 0
        process.stdout.close()
