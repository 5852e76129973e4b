"""The driver stays in the group, commits by itself, and gives partitions back in good order."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer

import tidegate as tg
from tests.spark.conftest import Beside, World
from tests.support import wait_until
from tidegate.records import Partition


def test_one_record_then_silence_is_committed_soon(world: World) -> None:
    took: list[float] = []

    def produce_and_wait() -> None:
        wait_until(lambda: world.mark() == 0, within=60, what="the group has its starting position")
        wait_until(
            lambda: len(world.admin.group_members(world.group).members) == 1, within=60, what="the run is a member"
        )
        world.produce(["warm"])
        wait_until(lambda: world.mark() == 1, within=60, what="the first record is committed")
        began = time.monotonic()
        world.produce(["one"])
        wait_until(lambda: world.mark() == 2, within=60, what="the record is committed")
        took.append(time.monotonic() - began)

    beside = Beside(produce_and_wait)
    report = world.run(world.pipeline().sink(world.trail), until="stopped")
    beside.check()
    assert report.exit_code == 0
    assert world.trail.offsets() == [0, 1]
    assert took[0] < 2.0 * 4, "promised within two seconds"


def test_a_sink_slower_than_the_poll_interval_stays_in_the_group(world: World) -> None:
    world.produce([0.1, 9.0, 0.1])
    kafka = tg.Kafka(world.kafka.bootstrap, {"max.poll.interval.ms": 6500})
    world.settings = {"session_timeout": 6}

    def wait(value: float) -> float:
        time.sleep(value)
        return value

    seen: set[str] = set()
    ended = threading.Event()

    def watch_members() -> None:
        while not ended.is_set():
            seen.update(member.member_id for member in world.admin.group_members(world.group).members)
            ended.wait(0.5)

    watcher = threading.Thread(target=watch_members, daemon=True)
    watcher.start()
    pipeline = tg.from_kafka(world.topic, group=world.group, kafka=kafka).map(tg.json).map(wait).sink(world.trail)
    report = world.run(pipeline)
    ended.set()
    watcher.join()
    assert report.exit_code == 0
    assert world.trail.offsets() == [0, 1, 2], "no record ran twice"
    assert len(seen) == 1, f"one member from the start to the end, not {seen}"


def test_partitions_that_are_taken_away_are_finished_and_committed_first(make_world: Callable[..., World]) -> None:
    world = make_world(4)
    world.settings = {"commit_every": "1s"}
    for partition in range(4):
        world.produce(range(400), partition)
    given: set[Partition] = set()
    second_read: dict[Partition, int] = {}

    def take_half() -> None:
        wait_until(lambda: len(world.trail.lines()) > 20, within=60, what="the run is at work")
        rival = Consumer(
            {
                "bootstrap.servers": world.kafka.bootstrap,
                "group.id": world.group,
                "partition.assignment.strategy": "cooperative-sticky",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
            }
        )
        rival.subscribe([world.topic])
        try:

            def has_some() -> bool:
                message = rival.poll(0.2)
                if message is not None and message.error() is None:
                    at = Partition(message.topic() or "", message.partition() or 0)
                    second_read.setdefault(at, message.offset() or 0)
                given.update(Partition(one.topic, one.partition) for one in rival.assignment())
                return len(second_read) >= 2

            wait_until(has_some, within=60, what="the rival got partitions and read from them")
        finally:
            rival.close()

    def slow(value: object) -> object:
        time.sleep(0.01)
        return value

    beside = Beside(take_half)
    world.run(world.pipeline().map(tg.json).map(slow).sink(world.trail), until="stopped")
    beside.check()
    assert len(given) == 2, "the rebalance did happen"
    for taken in given:
        ran = [one for one in world.trail.offsets(taken.number) if one < second_read[taken]]
        assert ran == list(range(second_read[taken])), "the rival begins exactly where the run ended"
    for number in range(4):
        offsets = world.trail.offsets(number)
        assert offsets == sorted(set(offsets)), "no record ran twice"


@pytest.mark.parametrize("stop_signal", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_in_good_order(world: World, stop_signal: signal.Signals) -> None:
    world.produce(range(2000))
    world.settings = {"commit_every": "1s"}

    def slow(value: object) -> object:
        time.sleep(0.005)
        return value

    def stop() -> None:
        wait_until(lambda: len(world.trail.lines()) > 100, within=60, what="the run is at work")
        os.kill(os.getpid(), stop_signal)

    beside = threading.Thread(target=stop, daemon=True)
    beside.start()
    report = world.run(world.pipeline().map(slow).sink(world.trail), until="stopped")
    beside.join()
    ran = world.trail.offsets()
    assert report.exit_code == 0
    assert len(ran) < 2000, "it was stopped in the middle"
    assert ran == list(range(len(ran)))
    assert world.mark() == len(ran), "what was finished is committed"
    assert world.admin.group_members(world.group).members == ()


def test_resources_are_made_once_per_worker_and_closed_at_the_end(world: World) -> None:
    world.produce(range(50))
    notes = world.trail.path.with_name("notes")

    def note(word: str) -> None:
        with notes.open("a") as file:
            file.write(f"{word} {os.getpid()} {threading.get_ident()}\n")

    def make() -> str:
        note("made")
        return "connection"

    pool = tg.resource(make, close=lambda _: note("closed"))

    def use(value: object) -> object:
        assert pool.get() == "connection"
        return value

    world.run(world.pipeline().map(use).sink(world.trail).commit_every("5s", records=10))
    lines = [line.split() for line in notes.read_text().splitlines()]
    made = [line[1:] for line in lines if line[0] == "made"]
    closed = [line[1:] for line in lines if line[0] == "closed"]
    assert made
    assert len({pid for pid, _ in made}) == len(made), "one per worker"
    assert sorted(closed) == sorted(made), "closed by the thread that made it"


def test_the_record_in_hand_tells_everything_about_itself(world: World) -> None:
    produced_at = int(time.time() * 1000) - 60_000  # old, but not old enough for retention to take it
    world.produce(["v"], key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=produced_at)

    def look(_value: object) -> str:
        record = tg.current()
        moment = record.timestamp.isoformat() if record.timestamp else None
        return f"{record.key!r} {record.headers!r} {moment} {record.attempt} {record.value!r}"

    world.run(world.pipeline().map(look).sink(world.trail))
    moment = datetime.fromtimestamp(produced_at / 1000, tz=UTC).isoformat()
    expected = f"b'k' (('h', b'1'), ('h', None)) {moment} 1 b'v'"
    assert world.trail.values() == [repr(expected)]
    assert f"{world.group}:{world.topic}:0:0 " in world.trail.lines()[0]
