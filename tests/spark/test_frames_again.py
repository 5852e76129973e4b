"""DataFrame rounds that are repeated: after failures, stops, rewinds and restarts, the same range under the same id."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

import tidegate as tg
from tests.spark.conftest import Beside, World
from tests.spark.test_frames import all_of, ids, keep
from tests.spark.test_lost import take_by_retention
from tests.spark.test_rewind_running import number, run_beside
from tests.support import wait_until
from tidegate.engine import frame_tasks, spark_frames
from tidegate.kafka.commits import read_commits
from tidegate.ledger import Home, decode
from tidegate.records import Partition, Position


class Failing:
    """A writer that notes every attempt, writes by another, and then fails as often as it is told to."""

    def __init__(self, inner: Any, times: int, error: Exception | None = None) -> None:
        self.inner = inner
        self.times = times
        self.error = error or ValueError("not now")
        self.rounds: list[tg.FrameRound] = []

    def __call__(self, df: Any, round_: tg.FrameRound) -> None:
        self.rounds.append(round_)
        self.inner(df, round_)
        if len(self.rounds) <= self.times:
            raise self.error

    @property
    def names(self) -> list[tuple[str, Any]]:
        return [(one.id, one.ranges) for one in self.rounds]


def stored(world: World, partition: int = 0) -> Position:
    """What the group's commit says now."""
    found = world.admin.committed(world.group)[Partition(world.topic, partition)]
    return decode(found.mark, found.metadata, Home(world.group, "", partition, "")).position


def test_a_round_that_fails_is_repeated_as_a_whole_under_its_id(world: World, tmp_path: Path) -> None:
    world.produce(range(50))
    writer = Failing(tg.parquet(str(tmp_path / "out")), 2)
    pipeline = world.pipeline().dataframe(keep).sink(tg.write(writer)).on_error(tg.retry(3, wait="50ms"))
    report = world.run(pipeline)
    assert (report.settled, report.counts.again, world.mark()) == (50, 2, 50)
    assert len(writer.rounds) == 3
    assert len(set(writer.names)) == 1
    assert [one.is_repeat for one in writer.rounds] == [False, True, True]
    assert ids(world, tmp_path / "out") == all_of({0: 50})


def test_a_sink_that_is_away_is_waited_for(world: World, tmp_path: Path) -> None:
    world.produce(range(5))
    writer = Failing(tg.parquet(str(tmp_path / "out")), 4, tg.Unavailable("asleep"))
    pipeline = world.pipeline().dataframe(keep).sink(tg.write(writer)).on_error(tg.hold("50ms", "100ms"))
    report = world.run(pipeline)
    assert (report.settled, report.counts.held, len(set(writer.names))) == (5, 4, 1)


def test_a_run_that_stopped_at_a_round_repeats_exactly_that_round_whatever_came_meanwhile(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    world = make_world(2)
    world.produce(range(30), 0)
    world.produce(range(10), 1)
    writer = Failing(tg.parquet(str(tmp_path / "out")), 1)
    pipeline = world.pipeline().dataframe(keep).sink(tg.write(writer))
    stopped = world.run(pipeline)
    assert stopped.exit_code == 3
    assert stopped.failure is not None
    assert writer.rounds[0].id in stopped.failure.message
    assert [world.mark(0), world.mark(1)] == [0, 0]
    planned = stored(world).planned
    assert planned is not None
    assert (planned.id, planned.end) == (writer.rounds[0].id, 30)
    assert planned.partitions == (Partition(world.topic, 0), Partition(world.topic, 1))

    world.produce(range(5), 0)
    world.produce(range(5), 1)
    report = world.run(pipeline)
    assert report.settled == 50
    assert writer.names[1] == writer.names[0], "the same range, the same id"
    assert [one.is_repeat for one in writer.rounds] == [False, True, False]
    assert ids(world, tmp_path / "out") == all_of({0: 35, 1: 15})
    assert stored(world).finished == writer.rounds[2].id
    # Before anything was written, the unchanged mark was committed.
    commits = [one for one in read_commits(world.kafka, world.group) if one.partition == (world.topic, 0)]
    marks = [one.mark for one in commits if one.mark is not None]
    assert marks == sorted(marks)
    assert [(one.mark, "plan" in (one.metadata or "")) for one in commits[:3]] == [(0, False), (0, True), (30, False)]


def test_what_retention_left_of_a_written_round_is_not_written_again_under_another_name(
    world: World, tmp_path: Path
) -> None:
    world.produce(range(30))
    writer = Failing(tg.parquet(str(tmp_path / "out")), 1)
    assert world.run(world.pipeline().dataframe(keep).sink(tg.write(writer))).exit_code == 3
    assert (world.mark(), ids(world, tmp_path / "out")) == (0, all_of({0: 30})), "written, and not committed"

    take_by_retention(world, 10)
    world.produce(range(5))
    report = world.run(world.pipeline(lost="earliest").dataframe(keep).sink(tg.write(writer)))
    assert (report.lost, world.mark()) == (10, 35)
    assert writer.rounds[1].id == writer.rounds[0].id
    assert [one.is_repeat for one in writer.rounds] == [False, True, False]
    assert ids(world, tmp_path / "out") == all_of({0: 35})


def test_rows_and_round_are_one_transaction_behind_jdbc(world: World, tmp_path: Path) -> None:
    url = f"jdbc:derby:{tmp_path}/shop;create=true"
    world.produce(range(20))

    def place(df: Any) -> Any:
        return df.select("partition", "offset")

    writer = Failing(tg.jdbc(url, "orders"), 1)
    pipeline = world.pipeline().dataframe(place, records=15).sink(tg.write(writer)).on_error(tg.retry(1, wait="50ms"))
    assert world.run(pipeline).settled == 20
    assert [one.is_repeat for one in writer.rounds] == [False, True, False]

    def rows(table: str) -> list[Any]:
        found: list[Any] = world.spark.read.jdbc(url, table).collect()
        return found

    assert Counter((row["partition"], row["offset"]) for row in rows("orders")) == all_of({0: 20})
    assert {row[0].partition(" ")[0] for row in rows("tidegate_rounds")} == {one.id for one in writer.rounds}
    tables = rows("(select tablename from sys.systables where tabletype = 'T') t")
    assert {row[0] for row in tables} == {"ORDERS", "TIDEGATE_ROUNDS"}, "nothing is left over"


def test_a_round_is_not_done_without_partitions_that_it_was_planned_over(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    world, other = make_world(1), make_world(1)
    world.produce(range(6))
    other.produce(range(4))
    writer = Failing(tg.write(lambda *_: None), 1)
    both = tg.from_kafka([world.topic, other.topic], group=world.group, kafka=world.kafka)
    assert world.run(both.dataframe(keep).sink(tg.write(writer))).exit_code == 3

    one = world.pipeline().dataframe(keep).sink(tg.parquet(str(tmp_path / "out")))
    with pytest.raises(tg.SettingsError, match=f"planned over {other.topic}\\[0\\], too, and may have been written"):
        world.run(one)
    assert (stored(world).mark, stored(world).planned is not None) == (0, True)

    # Once the other has left the round, by a rewind, the round is done without it, under its name.
    tg.rewind(world.group, to="beginning", topic=other.topic, kafka=world.kafka)
    assert world.run(one).settled == 6
    assert stored(world).finished == writer.rounds[0].id
    assert world.run(both.dataframe(keep).sink(tg.write(writer))).settled == 4


def test_a_database_that_is_not_there_is_unavailable(world: World, tmp_path: Path) -> None:
    world.produce(range(3))
    control = tg.Control()
    pipeline = world.pipeline().dataframe(keep).sink(tg.jdbc(f"jdbc:derby:{tmp_path}/none", "orders"))
    beside = Beside(
        lambda: wait_until(
            lambda: control.status is not None and control.status.counts.held > 1, within=60, what="a second try"
        )
    )
    pipeline.on_error(tg.hold("50ms", "100ms")).run(spark=world.spark, settings=world.settings, control=control)
    beside.check()
    assert world.mark() == 0


def test_a_rewind_of_a_running_pipeline_writes_again_under_new_ids(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    world = make_world(2)
    world.produce(range(40), 0)
    world.produce(range(40), 1)
    seen: list[tg.FrameRound] = []
    first, again = Partition(world.topic, 0), number()

    def steer(control: tg.Control) -> None:
        wait_until(lambda: (world.mark(0), world.mark(1)) == (40, 40), within=60, what="the first pass")
        assert control.rewind({first: 15}, again).result(60) == {first: 15}
        wait_until(lambda: stored(world).mark == 40 and stored(world).replay == again, within=60, what="the second")

    pipeline = world.pipeline().dataframe(keep).sink(tg.parquet(str(tmp_path / "out")))
    report = run_beside(world, pipeline.sink(tg.write(lambda _, round_: seen.append(round_))), steer)
    assert report.settled == 105
    assert ids(world, tmp_path / "out") == all_of({0: 40, 1: 40}) + Counter((0, at) for at in range(15, 40))
    assert len({one.id for one in seen}) == len(seen)
    assert [one.replay for one in seen][-1] == again


def test_a_stop_cancels_a_round_that_outlives_its_budget_and_the_next_run_repeats_it(
    world: World, tmp_path: Path
) -> None:
    world.produce(range(10))
    world.settings |= {"stop_budget": "7s", "commit_every": "500ms", "timeout": "1s"}
    begun = tmp_path / "begun"
    rounds: list[tg.FrameRound] = []

    def slow(batches: Any) -> Any:
        begun.touch()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (tmp_path / "go").exists():
            time.sleep(0.05)
        yield from batches

    def write(df: Any, round_: tg.FrameRound) -> None:
        rounds.append(round_)
        df.mapInArrow(slow, df.schema).write.mode("overwrite").parquet(str(tmp_path / "out"))

    pipeline = world.pipeline().dataframe(keep).sink(tg.write(write))
    beside = Beside(lambda: wait_until(begun.exists, within=60, what="the write"))
    report = pipeline.run(spark=world.spark, settings=world.settings)
    beside.check()
    assert report.unfinished == (Partition(world.topic, 0),)
    assert world.mark() == 0
    (tmp_path / "go").touch()
    assert world.run(pipeline).settled == 10
    assert [(one.id, one.is_repeat) for one in rounds] == [(rounds[0].id, False), (rounds[0].id, True)]
    assert ids(world, tmp_path / "out") == all_of({0: 10})


def test_a_second_process_waits_for_its_turn(world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world.produce(range(5))
    other = Consumer({"bootstrap.servers": world.kafka.bootstrap, "group.id": world.group})
    other.subscribe([world.topic])
    wait_until(lambda: other.poll(0.1) is None and bool(other.assignment()), within=60, what="the other one's turn")

    def give_way() -> None:
        wait_until(lambda: "waits for its turn" in caplog.text, within=60, what="the waiting")
        assert world.mark() is None
        other.close()

    beside = Beside(give_way, stops=False)
    report = world.run(world.pipeline().dataframe(keep).sink(tg.parquet(str(tmp_path / "out"))))
    beside.check()
    assert report.settled == 5


def test_a_spare_that_waits_stops_when_it_is_asked_to(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world.produce(range(5))
    other = Consumer({"bootstrap.servers": world.kafka.bootstrap, "group.id": world.group})
    other.subscribe([world.topic])
    wait_until(lambda: other.poll(0.1) is None and bool(other.assignment()), within=60, what="the other one's turn")
    beside = Beside(lambda: wait_until(lambda: "waits for its turn" in caplog.text, within=60, what="the waiting"))
    report = world.run(world.pipeline().dataframe(keep).sink(tg.parquet(str(tmp_path / "out"))))
    beside.check()
    other.close()
    assert (report.exit_code, report.settled, report.marks) == (0, 0, {})
    assert world.mark() is None


def test_a_worker_that_dies_while_it_reads_is_replaced_and_the_round_read_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.produce(range(20))
    note = tmp_path / "died"
    read_slice = frame_tasks.read_slice

    def read_and_die_once(job: bytes, slice_: int) -> Any:
        yield from read_slice(job, slice_)
        if not note.exists():
            note.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(spark_frames, "read_slice", read_and_die_once)
    report = world.run(world.pipeline().dataframe(keep).sink(tg.parquet(str(tmp_path / "out"))))
    assert note.exists()
    assert (report.settled, report.counts.held, report.exit_code) == (20, 1, 0)
    assert ids(world, tmp_path / "out") == all_of({0: 20})


def test_a_failure_is_told_in_the_words_of_whoever_failed(world: World) -> None:
    world.produce(range(3))

    def wrong_column(df: Any) -> Any:
        return df.select("amount")

    def no_good(_batches: Any) -> Any:
        raise ValueError("no good at all")

    said = []

    def bad_too_late(df: Any) -> Any:
        last = df.groupBy("topic", "partition").agg({"offset": "max"}).withColumnRenamed("max(offset)", "offset")
        return tg.bad(last, "offset > 0", "too many")

    for function in (wrong_column, lambda df: df.mapInArrow(no_good, df.schema), lambda _df: None, bad_too_late):
        report = world.run(world.pipeline().dataframe(function).sink(tg.write(lambda df, _: df.count())))
        assert report.failure is not None
        said.append(report.failure.message)
    assert "UNRESOLVED_COLUMN" in said[0]
    assert "`amount`" in said[0]
    assert said[1].endswith("ValueError: no good at all")
    assert "returned NoneType; return the DataFrame to be written" in said[2]
    assert said[3].endswith("call it before you aggregate"), "the other records of the row would be lost"
    assert world.mark() == 0


def test_a_stranger_that_takes_a_partition_holds_everything_until_it_goes(
    make_world: Callable[..., World], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(2)
    for partition in (0, 1):
        world.produce(range(40), partition)
    settings = {"bootstrap.servers": world.kafka.bootstrap, "group.id": world.group, "enable.auto.commit": False}
    stranger = Consumer({**settings, "partition.assignment.strategy": "cooperative-sticky"})
    rounds: list[int] = []

    def write(df: Any, round_: tg.FrameRound) -> None:
        rounds.append(round_.records)
        tg.parquet(str(tmp_path / "out"))(df, round_)

    def come_and_go() -> None:
        wait_until(lambda: len(rounds) >= 2, within=60, what="the first rounds")
        stranger.subscribe([world.topic])

        def has_one() -> bool:
            stranger.poll(0.1)
            return bool(stranger.assignment())

        wait_until(has_one, within=60, what="its share")
        world.produce(range(40, 60), 0)
        wait_until(lambda: "nothing is begun until this one has them all" in caplog.text, within=60, what="a word")
        begun = len(rounds)
        stranger.close()
        wait_until(lambda: len(rounds) > begun, within=60, what="that it goes on")
        wait_until(lambda: (world.mark(0), world.mark(1)) == (60, 40), within=60, what="everything")

    beside = Beside(come_and_go)
    report = (
        world.pipeline()
        .dataframe(keep, records=20)
        .sink(tg.write(write))
        .run(spark=world.spark, settings=world.settings)
    )
    beside.check()
    assert report.settled == 100
    assert ids(world, tmp_path / "out") == all_of({0: 60, 1: 40})
