"""A record that fails holds the group exactly there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tidegate as tg
from tests.spark.conftest import World
from tidegate.records import Partition


def plus_one(value: int) -> int:
    if value > 3:
        raise ValueError(f"{value} is more than 3")
    return value + 1


def plus_one_mended(value: int) -> int:
    return value + 1


@pytest.mark.parametrize("records", [None, 1], ids=["commit every 5 s", "commit every record"])
def test_the_group_stays_at_the_failed_record_and_goes_on_when_it_is_mended(world: World, records: int | None) -> None:
    world.produce([1, 2, 3, 4])

    def pipeline(function: Callable[[int], int]) -> tg.Pipeline:
        made = world.pipeline().map(tg.json).map(function).sink(world.trail)
        return made.commit_every("5s", records=records)

    report = world.run(pipeline(plus_one))
    assert report.failure is not None
    assert (report.failure.record_offset, report.failure.error_type) == (3, "ValueError")
    assert report.exit_code == 3
    assert world.mark() == 3
    assert world.trail.offsets() == [0, 1, 2]

    report = world.run(pipeline(plus_one))
    assert report.failure is not None
    assert report.failure.record_offset == 3
    assert world.mark() == 3
    assert world.trail.offsets() == [0, 1, 2], "nothing before the failed record runs again"

    report = world.run(pipeline(plus_one_mended))
    assert report.failure is None
    assert world.mark() == 4
    assert world.trail.offsets() == [0, 1, 2, 3]
    assert world.trail.values() == ["2", "3", "4", "5"]
    expected = [0, 1, 2, 3, 4] if records == 1 else [0, 3, 4]
    assert world.commits() == expected, "one commit per record where that was asked for"


@pytest.mark.parametrize("live", [False, True], ids=["plain", "live"])
def test_failures_in_four_partitions_leave_each_mark_at_its_own_failed_record(
    make_world: Callable[..., World], live: bool
) -> None:
    world = make_world(4)
    world.settings = {"live": live}
    bad = {0: 0, 1: 7, 2: 40, 3: 99}
    for partition, record_offset in bad.items():
        world.produce(["bad" if one == record_offset else "good" for one in range(100)], partition)

    def refuse_bad(value: bytes) -> bytes:
        if value == b"bad":
            raise RuntimeError("bad record")
        return value

    report = world.run(world.pipeline().map(refuse_bad).sink(world.trail))
    failed = {failure.partition.number: failure.record_offset for failure in report.failures}
    marks = {partition: world.mark(partition) or 0 for partition in bad}
    if live:
        # The first failure is heard while the other lane works: it stops there, before or at its failed record.
        assert failed
        assert failed.items() <= bad.items()
        assert all(marks[partition] <= record_offset for partition, record_offset in bad.items())
        assert failed.items() <= marks.items()
    else:
        # A plain round goes on to its end, so that every partition meets its failed record.
        assert failed == bad
        assert marks == bad
    assert {partition: world.trail.offsets(partition) for partition in bad} == {
        partition: list(range(mark)) for partition, mark in marks.items()
    }


def test_a_sink_that_has_the_record_does_not_get_it_again_after_a_restart(world: World) -> None:
    world.produce([1, 2])
    second_gets = world.trail.path.with_name("second")

    def make(broken: bool) -> tg.Pipeline:
        def second(value: int) -> None:
            if broken:
                raise ConnectionError("second is away")
            with second_gets.open("a") as file:
                file.write(f"{tg.current().stable_id} {value}\n")

        return world.pipeline().map(tg.json).sink(world.trail).sink(second)

    report = world.run(make(broken=True))
    assert report.failure is not None
    assert report.failure.record_offset == 0
    assert world.trail.offsets() == [0]

    report = world.run(make(broken=False))
    assert report.failure is None
    assert world.trail.offsets() == [0, 1], "the first sink got record 0 once"
    stable = f"{world.group}:{world.topic}:0"
    assert second_gets.read_text().splitlines() == [f"{stable}:0/1 1", f"{stable}:1/1 2"]


def test_children_that_have_their_effect_do_not_get_it_again_after_a_restart(world: World) -> None:
    world.produce(["[1,2,3,4]", "[5]"])

    def make(bad: int) -> tg.Pipeline:
        trail = world.trail

        def sink(value: int) -> None:
            if value == bad:
                raise ValueError(value)
            trail(value)

        return world.pipeline().flat_map(tg.json).sink(sink)

    report = world.run(make(bad=3))
    assert report.failure is not None
    assert world.mark() == 0, "the record is settled only when all its children are"
    assert world.trail.values() == ["1", "2"]
    world.run(make(bad=-1))
    assert world.trail.values() == ["1", "2", "3", "4", "5"]
    assert world.mark() == 2


def test_when_chooses_the_sink(world: World) -> None:
    world.produce(range(6))
    pipeline = world.pipeline().map(tg.json).filter(lambda x: x != 5).sink(world.trail, when=lambda x: x % 2 == 0)
    report = world.run(pipeline)
    assert report.settled == 6
    assert world.trail.values() == ["0", "2", "4"]
    assert world.mark() == 6


UNDECODABLE: list[tuple[str, Any, str]] = [
    ("bytes that are no JSON", b"\xff\xfe", "Undecodable"),
    ("an empty value", b"", "Undecodable"),
]


@pytest.mark.parametrize(("what", "raw", "error"), UNDECODABLE, ids=[case[0] for case in UNDECODABLE])
def test_an_undecodable_record_fails_alone(world: World, what: str, raw: bytes, error: str) -> None:
    world.produce(["1", None, raw, "2"])
    report = world.run(world.pipeline().map(tg.json).sink(world.trail))
    assert report.failure is not None, what
    assert (report.failure.record_offset, report.failure.error_type) == (2, error)
    assert world.trail.values() == ["1", "None"], "a null value is an ordinary one"


def raise_odd_error(_value: object) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text for you")

    raise Odd


def recurse(value: object) -> object:
    return recurse(value)


def leave(_value: object) -> None:
    raise SystemExit(9)


def surrogate(_value: object) -> None:
    raise ValueError("\ud800")


@pytest.mark.parametrize("function", [raise_odd_error, recurse, leave, surrogate])
def test_whatever_a_function_raises_fails_its_record_and_nothing_else(
    world: World, function: Callable[[object], object]
) -> None:
    world.produce([1, 2])
    report = world.run(world.pipeline().map(function).sink(world.trail))
    assert report.failure is not None
    assert report.failure.record_offset == 0
    assert world.mark() == 0


def test_an_attempt_that_takes_longer_than_its_timeout_fails_and_its_worker_is_replaced(world: World) -> None:
    world.produce([0.0, 0.0, 600.0, 0.0])
    pids = world.trail.path.with_name("pids")

    def wait(value: float) -> float:
        import os  # noqa: PLC0415
        import time  # noqa: PLC0415

        with pids.open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(value)
        return value

    pipeline = world.pipeline().map(tg.json).map(wait).sink(world.trail).parallel(timeout="1s")
    for _ in range(2):
        report = world.run(pipeline)
        assert report.failure is not None
        assert (report.failure.record_offset, report.failure.error_type) == (2, "TimedOut")
        assert world.mark() == 2
    assert world.trail.offsets() == [0, 1]
    first, *_, last = pids.read_text().split()
    assert first != last, "the worker with the stuck thread was not used again"


def test_several_topics_in_one_pipeline_each_have_their_marks(make_world: Callable[..., World]) -> None:
    one, two = make_world(2), make_world()
    one.produce([1, 2], partition=1)
    two.produce([3])
    pipeline = tg.from_kafka([one.topic, two.topic], group=one.group, kafka=one.kafka).map(tg.json).sink(one.trail)
    report = one.run(pipeline)
    expected = {Partition(one.topic, 0): 0, Partition(one.topic, 1): 2, Partition(two.topic, 0): 1}
    assert report.marks == expected
    assert {tp: found.mark for tp, found in one.admin.committed(one.group).items()} == expected
    assert sorted(one.trail.values()) == ["1", "2", "3"]
