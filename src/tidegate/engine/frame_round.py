"""One DataFrame round: read the planned ranges, run the function, write, put the bad rows aside.

The steps after the plan's commit, in this order: read and decode; the user's function; the writers; the dead letters.
Only then the outcome says that the ranges are settled.
"""

from __future__ import annotations

import logging
import pickle
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidegate.engine.frame_tasks import LetterJob, ReadJob
from tidegate.engine.planning import after, number_of, slices
from tidegate.engine.spark import RoundDied, Spark, pickled
from tidegate.engine.spark_frames import BadRows, FrameRows, Read, collect_bad_rows, column_numbers, write_dead
from tidegate.errors import SettingsError, SparkFailed, Undecodable
from tidegate.formats.json import JsonColumns
from tidegate.frames import FrameRound, FrameStep, FrameWriter, RoundRange
from tidegate.logs import WorkerLog
from tidegate.policy import Again, Policy, Verdict, decide
from tidegate.records import (
    Counts,
    Failure,
    Lease,
    Mishap,
    Open,
    Outcome,
    Partition,
    PartitionOutcome,
    Tries,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame  # noqa: TID251  # a type only

logger = logging.getLogger("tidegate.frames")

UNREAD_SECONDS = 2.0
WORKERS_LOST = 5
"""So often in a row a round is read again whose workers died; then the policy decides."""
_GONE = re.compile(r"ranges\.RecordsGone: (\S+) (\d+) (\d+)")
_UNREAD = re.compile(r"(?:ranges\.Unread|errors\.Unavailable): (.*)")
_AWAY = re.compile(r"errors\.BrokerUnreachable: (.*)")
MESSAGE_CHARACTERS = 2_000


@dataclass(frozen=True)
class DeadLetters:
    """Where bad rows go; the topic is made when the first one comes."""

    topic: str
    sinks: str
    partitions: Callable[[], int]
    """Make the topic if it is not there, and say how many partitions it has."""


@dataclass(frozen=True)
class FrameTools:
    """What all rounds of a run share."""

    spark: Spark
    group: str
    step: FrameStep
    writers: tuple[FrameWriter, ...]
    policy: Policy
    kafka: bytes = field(repr=False)
    """The cluster, pickled as functions are."""
    dead: DeadLetters
    log: WorkerLog
    copies: frozenset[str] = frozenset()
    """Topics of the group's own that are read."""


class Gone(Exception):
    """Records of a planned range are no longer in the log."""

    def __init__(self, partition: Partition, log_start: int) -> None:
        super().__init__(f"{partition}: the log starts at {log_start}")
        self.partition = partition
        self.log_start = log_start


class KafkaAway(Exception):
    """Kafka does not give the records, or take the dead letters, now: it is waited for, whatever the policy says."""


class WorkerLost(KafkaAway):
    """A worker or an executor died while it read: nothing was done, so it is read again, a few times."""


class FrameWork:
    """The work of one lease. `run` blocks; `describe` tells Spark's pages what its jobs are about."""

    def __init__(self, tools: FrameTools, lease: Lease, describe: Callable[[str], None], *, is_repeat: bool) -> None:
        self._tools = tools
        self._lease = lease
        self._describe = describe
        self._is_repeat = is_repeat
        self._positions = {item.partition: item.position for item in lease.partitions}
        self.found = Read(0, 0, None)
        """What was read; nothing before it was."""
        self.dead = 0

    @property
    def id(self) -> str:
        """The name of the planned round."""
        return next(one.planned.id for one in self._positions.values() if one.planned is not None)

    @property
    def partitions(self) -> list[Partition]:
        """The partitions that it covers."""
        return list(self._positions)

    def run(self) -> None:
        """Do all of it; raises what went wrong."""
        job = self._read_job()
        self._describe("read")
        rows = FrameRows(self._tools.spark.session, pickle.dumps(job), len(job.slices), self._tools.step.decoder)
        books = BadRows()
        collect_bad_rows(books)
        try:
            self.found = self._read(rows)
            if self.found.records:
                self._write(self._transformed(rows, books))
                self._bury(rows, books)
        finally:
            collect_bad_rows(None)
            for frame in books.marked:
                frame.unpersist()
            rows.let_go()

    def _read_job(self) -> ReadJob:
        given = self._tools.step.decoder
        # JSON is decoded by Spark itself, Avro by the reading tasks: Spark's own decoder is no part of PySpark.
        decoder = None if given is None or isinstance(given, JsonColumns) else pickled(given)
        parts = slices(self._positions, max(1, self._tools.spark.slots))
        tools = self._tools
        return ReadJob(tools.kafka, tools.group, tuple(parts), tools.copies, tools.log, decoder)

    def _read(self, rows: FrameRows) -> Read:
        try:
            found = rows.read()
        except Exception as error:
            raise _read_error(error, self._tools.spark) from error
        if found.undecodable is not None and self._tools.step.undecodable.kind == "stop":
            (topic, number, record_offset), why = found.undecodable
            raise UndecodableRecord(Partition(topic, number), record_offset, why)
        return found

    def _transformed(self, rows: FrameRows, books: BadRows) -> DataFrame:
        self._describe("function")
        shown = rows.shown
        books.places = column_numbers(shown)
        frame = self._tools.step.function(shown)
        if not hasattr(frame, "sparkSession"):
            raise SettingsError(
                f"the function of dataframe(...) returned {type(frame).__name__}", "return the DataFrame to be written"
            )
        return frame

    def _write(self, frame: DataFrame) -> None:
        for writer in self._tools.writers:
            self._describe(writer.name)
            writer(frame, self.round)

    @property
    def round(self) -> FrameRound:
        """The round as its writers see it."""
        ranges = tuple(
            RoundRange(tp.topic, tp.number, one.mark, one.planned.end, one.replay)
            for tp, one in sorted(self._positions.items())
            if one.planned is not None
        )
        group, records = self._tools.group, self.found.records
        return FrameRound(self.id, number_of(self.id), group, ranges, records, self._is_repeat)

    def _bury(self, rows: FrameRows, books: BadRows) -> None:
        places = list(books.rows)
        if self.found.undecodable is not None:
            places.append(rows.undecodable())
        self._describe("dead letters")
        letters = rows.letters(places)
        if letters is None:
            return
        dead = self._tools.dead
        replays = {tp: one.replay for tp, one in self._positions.items() if one.replay}
        log = self._tools.log
        job = LetterJob(self._tools.kafka, self._tools.group, dead.topic, dead.partitions(), dead.sinks, replays, log)
        try:
            self.dead = write_dead(letters, pickle.dumps(job))
        except Exception as error:
            if (away := _AWAY.search(str(error))) is None:
                raise
            raise KafkaAway(f"the dead letters cannot be written: {away.group(1)}") from error

    # --- what it brings back

    def done(self, seconds: float) -> Outcome:
        """Return the outcome of a round that is written."""
        parts = [PartitionOutcome(one.partition, one.epoch, after(one.position)) for one in self._lease.partitions]
        return self._outcome(parts, seconds, Counts(settled=self.found.records - self.dead, dead=self.dead))

    def failed(self, error: Exception, seconds: float) -> Outcome:
        """Return the outcome of a round that failed: it waits, or ends the run, or its records are looked for."""
        parts = [PartitionOutcome(one.partition, one.epoch, one.position) for one in self._lease.partitions]
        if isinstance(error, Gone):
            lost = [replace(one, lost_before=error.log_start) for one in parts if one.partition == error.partition]
            return self._outcome(lost, seconds)
        before = next((one.open[0].tries for one in self._lease.partitions if one.open), Tries())
        failure = self._failure(error, before.failed + before.unavailable + 1)
        verdict = self._verdict(error, before)
        mishap = Mishap(failure, verdict.fate, 1)
        if not isinstance(verdict, Again):
            stopped = [replace(one, failure=failure) if one.partition == failure.partition else one for one in parts]
            return self._outcome(stopped, seconds, mishap=mishap)
        logger.warning(
            "round %s is repeated in %.1f s: %s: %s",
            self.id,
            verdict.wait,
            failure.error_type,
            failure.message,
            extra={"action": "round_failed"},
        )
        open_ = (Open(0, verdict.tries, verdict.wait),)
        waiting = [replace(one, open=open_, parked=verdict.wait) for one in parts]
        return self._outcome(waiting, seconds, Counts(held=1) if verdict.is_hold else Counts(again=1), mishap)

    def _verdict(self, error: Exception, before: Tries) -> Verdict:
        is_passing = not isinstance(error, WorkerLost) or before.unavailable < WORKERS_LOST
        if isinstance(error, KafkaAway) and is_passing:
            return Again(UNREAD_SECONDS, Tries(before.failed, before.unavailable + 1), is_hold=True)
        row = self._tools.policy.row_for(type(error))
        jitter = random.random()  # noqa: S311  # it only spreads waits
        return decide(row, error, before, waited=0.0, others_go_on=False, jitter=jitter)

    def _outcome(
        self,
        parts: Sequence[PartitionOutcome],
        seconds: float,
        counts: Counts | None = None,
        mishap: Mishap | None = None,
    ) -> Outcome:
        told = () if mishap is None else (mishap,)
        lane, number = self._lease.lane, self._lease.round
        return Outcome(lane, number, tuple(parts), counts or Counts(), seconds=seconds, mishaps=told)

    def _failure(self, error: Exception, attempts: int) -> Failure:
        if isinstance(error, UndecodableRecord):
            return Failure(error.partition, error.record_offset, "Undecodable", str(error), attempts=attempts)
        first = self._lease.partitions[0]
        text = self._tools.spark.explain(error) if _is_sparks(error) else str(error)
        message = f"round {self.id}: {text}"[:MESSAGE_CHARACTERS]
        return Failure(first.partition, first.position.mark, type(error).__name__, message, attempts=attempts)


class UndecodableRecord(Undecodable):
    """A record that the decoder cannot read; where it lies."""

    def __init__(self, partition: Partition, record_offset: int, why: str) -> None:
        super().__init__(why)
        self.partition = partition
        self.record_offset = record_offset


def _is_sparks(error: Exception) -> bool:
    return type(error).__module__.startswith(("pyspark", "py4j"))


def _read_error(error: Exception, spark: Spark) -> Exception:
    """Tell records that are gone from a Kafka that is away, from a worker that died, and from a Spark that is gone."""
    text = str(error)
    if (gone := _GONE.search(text)) is not None:
        return Gone(Partition(gone.group(1), int(gone.group(2))), int(gone.group(3)))
    if (unread := _UNREAD.search(text)) is not None:
        return KafkaAway(unread.group(1))
    cause = spark.cause(error)
    if isinstance(cause, RoundDied):
        return WorkerLost(str(cause))
    return cause if isinstance(cause, SparkFailed) else error
