"""From a pipeline to a finished run: check everything, start Spark, join, work, report."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from tidegate.engine.bulletin import Bulletin
from tidegate.engine.chronicle import open_chronicle
from tidegate.engine.committer import Committer
from tidegate.engine.control import Control
from tidegate.engine.driver import Driver
from tidegate.engine.events import Events, Helpers
from tidegate.engine.failure import about as fields_of
from tidegate.engine.finish import Finish, Goal
from tidegate.engine.frames import Frames, frames_sentence
from tidegate.engine.lookout import Lookout
from tidegate.engine.marks import MarkFinder
from tidegate.engine.own_topics import least_taken
from tidegate.engine.parts import (
    check_outputs,
    joining_of,
    open_backer,
    open_clock,
    open_purse,
    pickle_kafka,
    pickle_plan,
    publisher,
    run_row,
)
from tidegate.engine.record_rounds import Records
from tidegate.engine.rewinder import Rewinder
from tidegate.engine.shipping import own_paths, pack_own_modules
from tidegate.engine.spark import Spark, open_spark
from tidegate.engine.starting import Starting
from tidegate.engine.stores import deliverer, keeps_progress, table_of
from tidegate.engine.tally import Tally
from tidegate.engine.task import close_task
from tidegate.engine.topics import Topics, expand
from tidegate.engine.truth import Truth
from tidegate.errors import SettingsError, StoppedAtRecord, TidegateError, TopicMissing
from tidegate.kafka.admin import Admin, TopicInfo
from tidegate.kafka.connection import kafka_of
from tidegate.kafka.member import open_member
from tidegate.logs import during_run, tell
from tidegate.machine import debug_asked
from tidegate.records import Failure, Partition, Report, counted
from tidegate.settings import Resolved, Settings
from tidegate.steps import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession  # noqa: TID251  # a type only

    from tidegate.pipeline import Pipeline, Retries, Source, Until
    from tidegate.sinks.postgres_progress import PostgresProgress


logger = logging.getLogger("tidegate.run")


def run_pipeline(
    pipeline: Pipeline,
    *,
    until: Until,
    retries: Retries,
    session: SparkSession | None,
    more: Mapping[str, object],
    control: Control | None,
) -> Report:
    """Run a pipeline; see `Pipeline.run`."""
    _check_words(until, retries)
    resolved = pipeline.resolved(more)
    settings = resolved.values
    plan = pipeline.plan()
    if pipeline.frames is None:
        pickle_plan(plan)  # what cannot go to the workers is found out before Spark starts
    source = pipeline.source
    kafka = kafka_of(resolved)
    kafka_bytes = pickle_kafka(kafka)
    admin = Admin(kafka, settings.broker_timeout)
    sources = find_topics(admin, source)
    outputs = check_outputs(plan, admin)
    with contextlib.ExitStack() as closing:
        stop = closing.enter_context(_signals())
        spark = open_spark(session, master=settings.master, app_name=f"tidegate {source.group}", debug=debug_asked())
        closing.callback(spark.stop)
        _settle_on(spark, resolved)
        work = _work(pipeline, plan, settings, admin, spark, kafka_bytes, stop.asked)
        own = work.prepare(sources)
        if stop.asked.is_set():
            return Tally(source.group, settings.idle_notice).report((), datetime.now(UTC))
        clock = open_clock(kafka, source.group, own, settings)
        topics = Topics(sources, own.read)
        table = table_of(plan, source.group)
        truth = Truth(admin, source.group, table, settings.trust)
        closing.callback(truth.close)
        starting = Starting(admin, truth, source, topics, plan.fingerprint, settings.history)
        run = run_row(source.group, settings, topics)
        closing.enter_context(during_run(settings.log_format, {"group": source.group, "run": run.run_id}))
        # From here on the group is touched: everything that can be refused has been.
        starting.before_joining()
        ends = admin.ends(_partitions(sources, source)) if until == "caught-up" else None
        events: Events = queue.SimpleQueue()
        board, lanes = work.open(ends, own, topics, run, events)
        closing.callback(lanes.close)  # also where nobody winds down, since the group could not be joined
        tally = Tally(source.group, settings.idle_notice)
        lookout = Lookout(admin, topics, source.pattern, settings.stall_after, events.put)
        committer = Committer(board, starting.metadata)
        chronicle = open_chronicle(run, settings, admin, starting.topic_id, events.put)
        publish = closing.enter_context(publisher(control or Control(), chronicle, events))
        backer = open_backer(
            plan,
            kafka,
            source.group,
            settings,
            starting,
            events,
            lambda: least_taken(admin, [*outputs, *own.delays]),
        )
        driver = Driver(
            board,
            lanes,
            Helpers(
                MarkFinder(board, starting, events.put),
                lookout,
                Finish(
                    partial(admin.committed, source.group),
                    admin.ends,
                    partial(admin.ends, committed_only=False),
                    Goal(ends, topics, waits=retries == "wait", lost=source.lost),
                    events.put,
                    deliver=deliverer(table, kafka),
                ),
                Rewinder(board, starting, events.put, backer=backer),
                Bulletin(run.run_id, tally, lookout, committer, publish),
                clock,
                open_purse(settings, is_live=lanes.is_live),
                backer,
            ),
            committer,
            tally,
            events,
            stop_seconds=settings.stop_budget,
        )
        _say(_guarantee(pipeline, plan, sources))
        stop.also(driver.ask_to_stop)
        report = driver.run(
            lambda callbacks: open_member(kafka, joining_of(settings, source.group), callbacks), topics, source
        )
        if table is not None:
            _say_unsent(table)
        if tally.holds_resources or spark.is_owned:
            spark.run_everywhere(close_task, b"")
    if report.failure is not None:
        _say_stopped(report.failure, {"group": source.group, "run": run.run_id})
    return report


def _say_stopped(failure: Failure, about: dict[str, object]) -> None:
    fields = about | {"action": "stopped", "trace": failure.traceback} | fields_of(failure)
    _say(str(StoppedAtRecord(failure)), logging.ERROR, fields)


def _say_unsent(table: PostgresProgress) -> None:
    """Tell of copies that Kafka has not taken yet: a run that was stopped, or stopped by a record, does not wait."""
    try:
        unsent = table.unsent()
    except TidegateError as error:
        logger.debug("the outbox cannot be read: %s", error, extra={"action": "outbox_unknown"})
        return
    if unsent:
        logger.warning(
            "the outbox holds copies that Kafka has not taken, the next run sends them: %d",
            unsent,
            extra={"action": "unsent"},
        )


def _settle_on(spark: Spark, resolved: Resolved) -> None:
    """Say where the work goes; send the modules beside the program to workers that do not see this machine's files."""
    _say_whose_spark(spark, resolved)
    if not spark.is_cluster:
        return
    logger.info("on %s; Spark's page: %s", spark.master, spark.page or "none", extra={"action": "cluster"})
    if (archive := pack_own_modules(sys.modules, own_paths())) is not None:
        spark.ship(str(archive))


def _say_whose_spark(spark: Spark, resolved: Resolved) -> None:
    """Tell a master that was chosen and is not used from one that is."""
    chosen, source = resolved.values.master, resolved.sources["master"]
    if source != "default" and not spark.is_owned and spark.master != chosen:
        logger.warning(
            "this process has a Spark already, on %s: it is used, and master=%s (%s) is not",
            spark.master,
            chosen,
            source,
            extra={"action": "session_taken"},
        )


def _work(
    pipeline: Pipeline,
    plan: Plan,
    settings: Settings,
    admin: Admin,
    spark: Spark,
    kafka: bytes,
    stopping: threading.Event,
) -> Records | Frames:
    """Return what makes the board and the lanes: of records, or of DataFrames. `stopping`: somebody asks to stop."""
    if pipeline.frames is not None:
        return Frames(pipeline.frames, plan, pipeline.source, settings, admin, spark, kafka, stopping)
    return Records(plan, pipeline.source, settings, admin, spark, kafka)


def _check_words(until: str, retries: str) -> None:
    if until not in ("stopped", "caught-up"):
        raise SettingsError(f"until={until!r} is unknown", 'choose "stopped" or "caught-up"')
    if retries not in ("wait", "leave"):
        raise SettingsError(f"retries={retries!r} is unknown", 'choose "wait" or "leave"')


def find_topics(admin: Admin, source: Source) -> Mapping[str, TopicInfo]:
    """Return the topics a source means; that there is none, or not a partition of `tg.at`, is an error."""
    if source.pattern is None:
        named = admin.describe(source.topics)
        for partition in () if source.at is None else source.at.places:
            named[partition.topic].partition(partition.number)  # one that does not exist is an error
        return named
    found = expand(source.pattern, admin.topics())
    if not found:
        raise TopicMissing(
            f"no topic matches the pattern {source.pattern.pattern}",
            "mend it (the whole name must match), or create the first topic before the start",
        )
    return found


def _partitions(topics: Mapping[str, TopicInfo], source: Source) -> list[Partition]:
    return [one for info in topics.values() for one in info.each_partition() if source.wants(one)]


def _guarantee(pipeline: Pipeline, plan: Plan, topics: Mapping[str, TopicInfo]) -> str:
    counts = {name: len(_partitions({name: info}, pipeline.source)) for name, info in topics.items()}
    names = ", ".join(f"{name} ({counted(count, 'partition')})" for name, count in counts.items())
    if pipeline.frames is not None:
        return frames_sentence(plan, names, pipeline.source.group)
    order = {"partition": ", in order per partition", "key": ", in order per key", "none": ", in no order"}[plan.order]
    but = " (but for records that failed)" if plan.policy.gives_up_order and plan.order != "none" else ""
    return (
        f"group {pipeline.source.group} reads {names}: every record {_how_often(plan)}"
        f"{order}{but}; {plan.policy.sentence()}"
    )


def _how_often(plan: Plan) -> str:
    if not keeps_progress(plan):
        return "reaches its sinks at least once"
    if len(plan.collecting) == len(plan.sinks):
        return "has its effect exactly once"
    return "has its effect exactly once in what is stored with the marks, and reaches the other sinks at least once"


def _say(sentence: str, level: int = logging.INFO, about: Mapping[str, object] | None = None) -> None:
    """Print for people: to stderr, since stdout is the program's own."""
    if not tell(sentence, level=level, fields=about):
        sys.stderr.write(f"tidegate: {sentence}\n")
        sys.stderr.flush()


class _Stop:
    """What the first signal does: what has not begun does not begin, and a driver that works is told."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._tell: Callable[[], None] = self.asked.set

    def ask(self) -> None:
        self.asked.set()
        self._tell()

    def also(self, tell: Callable[[], None]) -> None:
        """From now on call this, too: at once, where somebody has asked already."""
        self._tell = tell
        if self.asked.is_set():
            tell()


@contextlib.contextmanager
def _signals() -> Iterator[_Stop]:
    """SIGTERM and Ctrl-C end the run in good order; a second one ends it at once.

    From before Spark starts to after it has ended: otherwise a signal in between leaves Java's files behind.
    """
    stop = _Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if stop.asked.is_set():
            os._exit(128 + number)
        stop.ask()
        _say("stopping; work in flight is finished and committed (a second signal ends at once)")

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
