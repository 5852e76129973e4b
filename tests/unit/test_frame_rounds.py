"""What a DataFrame round that failed brings back: it waits, ends the run, or its records are looked for."""

from __future__ import annotations

import pickle
import queue
from typing import Any

import pytest

import tidegate as tg
from tidegate.engine import frame_tasks
from tidegate.engine.frame_lanes import FrameLanes
from tidegate.engine.frame_round import (
    WORKERS_LOST,
    DeadLetters,
    FrameTools,
    FrameWork,
    Gone,
    KafkaAway,
    UndecodableRecord,
    WorkerLost,
    _read_error,
)
from tidegate.engine.frame_tasks import LetterJob, write_letters
from tidegate.engine.spark import RoundBroken, RoundDied
from tidegate.errors import SparkFailed
from tidegate.frames import FrameStep
from tidegate.logs import WorkerLog
from tidegate.policy import Policy
from tidegate.records import Lease, LeasedPartition, Limits, Open, Partition, PlannedRound, Position, Tries

A, B = Partition("t", 0), Partition("t", 1)
ROUND = PlannedRound("7-ab", 20, (A, B))


class OtherSpark:
    """Says what an error was, as Spark would have it."""

    def __init__(self, cause: Exception) -> None:
        self._cause = cause

    def cause(self, _error: Exception) -> Exception:
        return self._cause

    @property
    def slots(self) -> int:
        raise ConnectionRefusedError("nobody listens there any more")

    def cancel(self, _name: str) -> None:
        pass


def work(*row: Any, tries: Tries | None = None) -> FrameWork:
    return FrameWork(tools(*row), lease(tries), lambda _: None, is_repeat=True)


def lease(tries: Tries | None = None) -> Lease:
    open_ = () if tries is None else (Open(0, tries),)
    shares = tuple(
        LeasedPartition(tp, 1, Position(mark, planned=ROUND, replay=mark), None, open_) for tp, mark in ((A, 3), (B, 5))
    )
    return Lease(0, 9, shares, Limits(1, 1, 1, 1))


def tools(*row: Any, spark: Any = None) -> FrameTools:
    policy = Policy().with_row(row) if row else Policy()
    dead = DeadLetters("g.dead", "", lambda: 1)
    return FrameTools(spark, "g", FrameStep(lambda df: df), (), policy, b"", dead, WorkerLog(0))


CASES = [
    # row                              tries before                error                     fate        tries after
    ((), None, ValueError("x"), "stop", None),
    ((tg.retry(2),), None, ValueError("x"), "retry", Tries(failed=1)),
    ((tg.retry(2),), Tries(failed=1), ValueError("x"), "retry", Tries(failed=2)),
    ((tg.retry(2),), Tries(failed=2), ValueError("x"), "stop", None),
    ((tg.retry(2),), None, tg.Reject("never"), "stop", None),
    ((tg.retry(2),), None, UndecodableRecord(B, 8, "no JSON"), "stop", None),
    ((tg.hold(),), Tries(unavailable=50), tg.Unavailable("away"), "hold", Tries(unavailable=51)),
    ((tg.hold(),), None, ValueError("x"), "stop", None),
    ((ValueError, tg.retry(1)), None, KeyError("x"), "stop", None),
    ((), Tries(unavailable=1000), KafkaAway("no answer"), "hold", Tries(unavailable=1001)),
    ((), None, WorkerLost("killed"), "hold", Tries(unavailable=1)),
    ((), Tries(unavailable=WORKERS_LOST), WorkerLost("killed"), "stop", None),
]


@pytest.mark.parametrize(("row", "before", "error", "fate", "tries"), CASES)
def test_what_follows_a_failure(
    row: tuple[Any, ...], before: Tries | None, error: Exception, fate: str, tries: Tries | None
) -> None:
    outcome = work(*row, tries=before).failed(error, 1.5)
    assert [one.fate for one in outcome.mishaps] == [fate]
    assert [one.position.planned for one in outcome.partitions] == [ROUND, ROUND], "the round stays planned"
    if tries is None:
        failures = [one.failure for one in outcome.partitions if one.failure is not None]
        assert len(failures) == 1
        where = (B, 8) if isinstance(error, UndecodableRecord) else (A, 3)
        assert (failures[0].partition, failures[0].record_offset) == where
    else:
        assert [one.open[0].tries for one in outcome.partitions] == [tries, tries]
        assert all(one.parked for one in outcome.partitions)
        assert (outcome.counts.held, outcome.counts.again) == ((1, 0) if fate == "hold" else (0, 1))


def test_records_that_are_gone_are_looked_for_where_they_were() -> None:
    outcome = work().failed(Gone(B, 12), 0.1)
    assert [(one.partition, one.lost_before) for one in outcome.partitions] == [(B, 12)]
    assert outcome.mishaps == ()


def test_a_round_that_is_written_moves_every_mark_to_its_planned_end() -> None:
    done = work()
    done.dead = 2
    outcome = done.done(1.0)
    assert [(one.position.mark, one.position.finished) for one in outcome.partitions] == [(20, "7-ab"), (20, "7-ab")]
    assert outcome.counts.dead == 2
    said = done.round
    assert (said.id, said.number, said.replay, said.is_repeat) == ("7-ab", 7, 5, True)
    assert [(one.partition, one.start, one.end) for one in said.ranges] == [(0, 3, 20), (1, 5, 20)]


class NoPlanner:
    """Has planned nothing."""

    def __init__(self) -> None:
        self.planned: set[str] = set()


def test_a_spark_that_is_gone_ends_the_run_however_often_the_row_would_retry() -> None:
    gone = SparkFailed("Spark ended under the run", "start again")
    planner: Any = NoPlanner()
    lanes = FrameLanes(tools(tg.retry(1000), spark=OtherSpark(gone)), planner, lambda _: None)
    ended = lanes._run(lease())

    assert (ended.outcome, ended.error) == (None, gone)


def test_a_round_that_is_cancelled_before_its_thread_takes_it_begins_nothing() -> None:
    planner: Any = NoPlanner()
    lanes = FrameLanes(tools(tg.retry(1000), spark=OtherSpark(ValueError("it began"))), planner, lambda _: None)
    lanes._given[0] = queue.SimpleQueue()  # no thread takes from this one
    lanes.start(lease())
    lanes.cancel(0)
    taken = lanes._given[0].get_nowait()
    assert taken is not None
    assert str(lanes._run(taken).error) == "it was cancelled"


READ_ERRORS = [
    ("  File x\ntidegate.kafka.ranges.RecordsGone: my.topic-1 4 120\n", RoundBroken("x"), Gone),
    ("tidegate.kafka.ranges.Unread: t[0]: nothing came behind offset 4\n", RoundBroken("x"), KafkaAway),
    ("tidegate.errors.Unavailable: the registry is away\n", RoundBroken("x"), KafkaAway),
    ("Python worker exited unexpectedly (crashed)", RoundDied("crashed"), WorkerLost),
    ("ModuleNotFoundError: No module named 'tidegate'", RoundBroken("x"), RuntimeError),
    ("the gateway is gone", SparkFailed("Spark ended", "start again"), SparkFailed),
]


@pytest.mark.parametrize(("text", "cause", "kind"), READ_ERRORS)
def test_an_error_of_reading_is_told_apart(text: str, cause: Exception, kind: type[Exception]) -> None:
    spark: Any = OtherSpark(cause)
    found = _read_error(RuntimeError(text), spark)
    assert type(found) is kind
    if isinstance(found, Gone):
        assert (found.partition, found.log_start) == (Partition("my.topic-1", 4), 120)


class SilentWriter:
    """A producer whose broker answers nothing in time."""

    def send(self, *_: object, **__: object) -> None:
        """Queue it; nobody ever hears of it."""

    def flush(self, _seconds: float) -> int:
        return 1


def test_a_dead_letter_without_an_answer_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_tasks, "worker_writer", lambda *_: SilentWriter())
    job = LetterJob(pickle.dumps(tg.Kafka("localhost:9092")), "g", "g.dead", 1, "", {}, WorkerLog(0))
    row = {"topic": "t", "partition": 0, "offset": 3, "key": None, "value": b"x", "headers": None, "timestamp": None}
    row |= {"tidegate_copy": None, "tidegate_type": "BadRow", "tidegate_reason": "no good"}
    with pytest.raises(tg.BrokerUnreachable, match="1 dead letters were not acknowledged"):
        write_letters(pickle.dumps(job), [row])
