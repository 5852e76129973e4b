"""A run writes its history, and does what others have asked for there: once, whoever owns the partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import tidegate as tg
from tests.spark.conftest import World
from tests.spark.test_rewind_running import run_beside
from tests.support import wait_until
from tidegate.history.store import History
from tidegate.records import Partition


@pytest.fixture
def history(tmp_path: Path, make_world: Callable[..., World]) -> History:
    del make_world
    return History(str(tmp_path / "history.sqlite"))


@pytest.fixture
def told(world: World, tmp_path: Path) -> World:
    world.settings |= {"history": str(tmp_path / "history.sqlite"), "history_every": "200ms"}
    return world


def test_marks_counts_and_the_end_of_a_run_are_written(told: World, history: History) -> None:
    told.produce(range(50))
    report = told.run(told.pipeline().sink(told.trail))
    cluster = told.admin.cluster_id()
    (row,) = history.offsets(cluster, told.group)
    assert (row.partition, row.mark, row.requested) == (Partition(told.topic, 0), 50, None)
    assert row.topic_id == told.admin.describe([told.topic])[told.topic].topic_id
    (run,) = history.runs(cluster, told.group)
    assert (run.state, run.counts, run.error) == ("done", report.counts, "")
    assert run.ended_at is not None
    assert [one.mark for one in history.commits(cluster, told.group)][-1:] == [50]


def test_a_failure_that_ended_the_run_is_written(told: World, history: History) -> None:
    told.produce(["1", "x", "3"])
    report = told.run(told.pipeline().map(int).sink(told.trail))
    cluster = told.admin.cluster_id()
    (failure,) = history.failures(cluster, told.group)
    assert report.failure is not None
    assert (failure.partition, failure.record_offset, failure.error_type) == (Partition(told.topic, 0), 1, "ValueError")
    assert history.runs(cluster, told.group)[0].state == "failed"
    assert history.offsets(cluster, told.group)[0].mark == 1


def test_attempts_that_failed_are_written_with_what_followed(told: World, history: History) -> None:
    told.produce(["1", "x", "3"])
    pipeline = told.pipeline().map(lambda value: 1 // (value != b"x")).sink(told.trail)
    told.run(pipeline.on_error(tg.retry(2, wait="1ms"), tg.dead_letter()))
    found = history.failures(told.admin.cluster_id(), told.group)
    assert {(one.record_offset, one.error_type) for one in found} == {(1, "ZeroDivisionError")}
    assert Counter(one.fate for one in found) == {"retry": 2, "dead_letter": 1}
    assert len({one.failure_id for one in found}) == 3


def test_what_was_asked_for_is_done_once_and_said_so(told: World, history: History) -> None:
    told.produce(range(30))
    cluster, first = told.admin.cluster_id(), Partition(told.topic, 0)

    def row_is_applied() -> bool:
        (row,) = history.offsets(cluster, told.group)
        return row.applied_at is not None

    def steer(_control: tg.Control) -> None:
        wait_until(lambda: told.mark() == 30, within=60, what="the first pass")
        history.ask(cluster, told.group, {first: 20}, by="a test")
        wait_until(row_is_applied, within=60, what="the request")
        wait_until(lambda: len(told.trail.ids()) == 40, within=60, what="the second pass")
        wait_until(lambda: told.mark() == 30, within=60, what="its commit")

    pipeline = told.pipeline().sink(told.trail)
    run_beside(told, pipeline, steer)
    told.run(pipeline)
    assert Counter(told.trail.offsets()) == Counter([*range(30), *range(20, 30)])


def test_a_request_whose_number_the_group_has_already_is_only_noted(told: World, history: History) -> None:
    """Its owner died between the commit and the note."""
    told.produce(range(30))
    cluster, first = told.admin.cluster_id(), Partition(told.topic, 0)
    pipeline = told.pipeline().sink(told.trail)

    def steer(control: tg.Control) -> None:
        wait_until(lambda: told.mark() == 30, within=60, what="the first pass")
        replay = history.ask(cluster, told.group, {first: 20}, by="a test")
        # As another owner would have done it, without a word in the history.
        control.rewind({first: 25}, replay).result(60)
        wait_until(lambda: history.offsets(cluster, told.group)[0].applied_at is not None, within=60, what="the note")
        wait_until(lambda: told.mark() == 30, within=60, what="the second pass")

    run_beside(told, pipeline, steer)
    assert told.trail.offsets() in ([*range(30), *range(25, 30)], [*range(30), *range(20, 30)])


def test_a_rewind_reaches_the_running_pipeline_through_the_history(
    told: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_HISTORY", str(told.settings["history"]))
    told.produce(range(30))

    def steer(_control: tg.Control) -> None:
        wait_until(lambda: told.mark() == 30, within=60, what="the first pass")
        plan = tg.rewind(told.group, "-10", kafka=told.kafka)
        assert (plan.is_done, plan.members, [move.to for move in plan.moves]) == (True, 1, [20])
        wait_until(lambda: told.mark() == 30, within=60, what="the second pass")
        monkeypatch.setenv("TIDEGATE_HISTORY", "off")
        with pytest.raises(tg.BrokerRefused, match="cannot be asked from here"):
            tg.rewind(told.group, "-10", kafka=told.kafka)

    run_beside(told, told.pipeline().sink(told.trail), steer)
    assert told.trail.offsets() == [*range(30), *range(20, 30)]


def test_a_history_that_is_broken_stops_nothing(world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken = tmp_path / "history.sqlite"
    broken.write_bytes(b"this is no database" * 1000)
    world.settings |= {"history": str(broken), "history_every": "100ms"}
    world.produce(range(20))
    report = world.run(world.pipeline().sink(world.trail))
    assert report.settled == 20
    assert (world.trail.offsets(), world.mark()) == (list(range(20)), 20)
    assert len([one for one in caplog.records if "without its history" in one.message]) == 1
