"""A running pipeline rewinds itself, rests and goes on, and shows what it does."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

import tidegate as tg
from tests.spark.conftest import Beside, World, channel
from tests.spark.test_to_postgres import Database, database
from tests.support import wait_until
from tidegate.kafka.commits import read_commits
from tidegate.ledger import Home, decode
from tidegate.ops.tail import tail
from tidegate.records import Partition

__all__ = ["database"]  # a fixture


def number() -> int:
    return int(time.time() * 1000)


def run_beside(world: World, pipeline: tg.Pipeline, do: Callable[[tg.Control], None]) -> tg.Report:
    """Run in the main thread, steer from another, and end by SIGTERM when that is done."""
    control = tg.Control()

    def steer() -> None:
        wait_until(lambda: _state(control) == "running", within=60, what="the run")
        do(control)

    beside = Beside(steer)
    report = pipeline.run(spark=world.spark, settings=world.settings, control=control)
    beside.check()
    return report


def _state(control: tg.Control) -> str | None:
    return None if control.status is None else control.status.state


def _replay_of(world: World, partition: int) -> int:
    found = world.admin.committed(world.group)[Partition(world.topic, partition)]
    return decode(found.mark, found.metadata, Home(world.group, "", partition, "")).position.replay


@channel("plain")
def test_a_partition_goes_back_alone_and_its_records_come_again_once(
    make_world: Callable[..., World], live: bool
) -> None:
    world = make_world(2)
    world.settings |= {"live": live, "commit_every": "1s"}
    world.produce(range(200), partition=0)
    world.produce(range(200), partition=1)
    first, again = Partition(world.topic, 0), number()

    def steer(control: tg.Control) -> None:
        wait_until(lambda: (world.mark(0), world.mark(1)) == (200, 200), within=60, what="the first pass")
        assert control.rewind({first: 50}, again).result(60) == {first: 50}
        wait_until(lambda: len(world.trail.ids()) == 550, within=60, what="the second pass")
        wait_until(lambda: world.mark(0) == 200, within=60, what="its commit")
        # The same rewind again, as a second messenger would bring it: it is done already.
        assert control.rewind({first: 50}, again).result(60) == {first: 200}

    report = run_beside(world, world.pipeline().sink(world.trail), steer)
    assert Counter(world.trail.ids()) == Counter(
        [*((0, at) for at in range(200)), *((1, at) for at in range(200)), *((0, at) for at in range(50, 200))]
    )
    marks = [one.mark for one in read_commits(world.kafka, world.group) if one.partition == first]
    assert 50 in marks[marks.index(200) :], "it was committed where it was put"
    assert report.marks == {first: 200, Partition(world.topic, 1): 200}
    assert (_replay_of(world, 0), _replay_of(world, 1)) == (again, 0), "the number stays in later commits"


def test_records_in_flight_are_finished_and_committed_before_it_goes_back(world: World) -> None:
    world.produce(range(40))
    trail = world.trail

    def slow(value: object) -> None:
        time.sleep(0.05)  # the work of the record
        trail(value)

    first = Partition(world.topic, 0)

    def steer(control: tg.Control) -> None:
        wait_until(lambda: len(trail.ids()) >= 10, within=60, what="some records")
        assert control.rewind({first: 5}, number()).result(60) == {first: 5}
        wait_until(lambda: world.mark() == 40, within=60, what="the end")

    run_beside(world, world.pipeline().sink(slow), steer)
    offsets = trail.offsets()
    turn = next(place for place, at in enumerate(offsets[1:], 1) if at <= offsets[place - 1])
    assert offsets == [*range(turn), *range(5, 40)], "in order, to the turn, and from the new mark on without a gap"
    commits = [one.mark for one in read_commits(world.kafka, world.group) if one.partition == first]
    assert turn in commits, "what was in flight is committed before the mark goes back"


def test_a_place_that_is_not_retained_begins_where_the_log_does_and_strangers_are_refused(world: World) -> None:
    world.produce(range(20))
    first = Partition(world.topic, 0)

    def steer(control: tg.Control) -> None:
        wait_until(lambda: world.mark() == 20, within=60, what="the first pass")
        assert control.rewind({first: 999}, number()).result(60) == {first: 20}
        with pytest.raises(tg.RewindRefused, match="another process"):
            control.rewind({Partition(world.topic, 7): 0}, number()).result(60)

    run_beside(world, world.pipeline().sink(world.trail), steer)
    assert world.trail.offsets() == list(range(20))


@channel("live")
def test_a_run_that_rests_begins_nothing_and_stays_a_member(world: World, live: bool) -> None:
    world.settings |= {"live": live, "commit_every": "1s"}
    world.produce(range(10))
    later = Partition(world.topic, 0)

    def steer(control: tg.Control) -> None:
        wait_until(lambda: world.mark() == 10, within=60, what="the first pass")
        control.pause()
        wait_until(lambda: _rests(control), within=60, what="the rest")
        world.produce(range(10, 20))
        wait_until(lambda: _sees_end(control, 20), within=60, what="new records that wait")
        assert world.trail.offsets() == list(range(10))
        assert world.mark() == 10
        assert [later in member.partitions for member in world.admin.group_members(world.group).members] == [True]
        control.resume()
        wait_until(lambda: world.mark() == 20, within=60, what="the second pass")

    run_beside(world, world.pipeline().sink(world.trail), steer)
    assert world.trail.offsets() == list(range(20))


def _rests(control: tg.Control) -> bool:
    status = control.status
    return status is not None and status.state == "paused" and not any(one.is_leased for one in status.partitions)


def _sees_end(control: tg.Control, end: int) -> bool:
    return control.status is not None and control.status.partitions[0].end_offset == end


def test_with_transactions_the_outputs_come_again_exactly_once_more(world: World) -> None:
    world.admin.create_topic(f"{world.topic}-out", 1)
    world.produce(range(100))
    first = Partition(world.topic, 0)

    def steer(control: tg.Control) -> None:
        wait_until(lambda: world.mark() == 100, within=60, what="the first pass")
        assert control.rewind({first: 60}, number()).result(60) == {first: 60}
        wait_until(lambda: world.mark() == 100, within=60, what="the second pass")

    run_beside(world, world.pipeline().sink(tg.kafka(f"{world.topic}-out", exactly_once=True)), steer)
    outputs = [one.value for one in tail(f"{world.topic}-out", kafka=world.kafka)]
    assert Counter(outputs) == Counter(str(at).encode() for at in [*range(100), *range(60, 100)])


def test_rows_and_their_table_go_back_together_and_what_failed_may_fail_again(world: World, database: Database) -> None:
    world.produce(range(100))
    first, again = Partition(world.topic, 0), number()

    def fails_first(value: int) -> dict[str, object]:
        if value % 10 == 3 and tg.current().attempt == 1:
            raise ValueError("not yet")
        return {"id": value, "name": f"pass {tg.current().attempt}"}

    pipeline = (
        world.pipeline()
        .map(tg.json)
        .map(fails_first)
        .sink(tg.postgres(database.dsn, table="orders", key="id", on_conflict="update"))
        .parallel(order="none")
        .on_error(tg.retry_later("1s"), tg.dead_letter())
    )

    def passes() -> list[tuple[object, ...]]:
        return database.do("select count(*) from tidegate_passes")

    def steer(control: tg.Control) -> None:
        wait_until(lambda: database.marks(world) == {0: 100} and passes() == [(10,)], within=60, what="the first pass")
        database.do("delete from orders")
        assert control.rewind({first: 50}, again).result(60) == {first: 50}
        wait_until(lambda: passes() == [(15,)], within=60, what="the retries of the second pass")
        wait_until(lambda: world.mark() == 100, within=60, what="the commit")

    run_beside(world, pipeline, steer)
    assert database.ids() == Counter(range(50, 100)), "also the rows that came through the retry topic again"
    assert {copy.replay for copy, _ in world.copies("retry.1s")} == {0, again}
    assert (database.marks(world), world.mark()) == ({0: 100}, 100)


def test_a_group_that_was_rewound_while_it_stood_takes_its_table_along(world: World, database: Database) -> None:
    world.produce(range(30))
    pipeline = (
        world.pipeline()
        .map(tg.json)
        .map(lambda value: {"id": value, "name": "x"})
        .sink(tg.postgres(database.dsn, table="orders", key="id", on_conflict="update"))
    )
    world.run(pipeline)
    database.do("delete from orders")
    tg.rewind(world.group, "10", kafka=world.kafka)
    world.run(pipeline)
    assert database.ids() == Counter(range(10, 30))
    assert (database.marks(world), world.mark()) == ({0: 30}, 30)
