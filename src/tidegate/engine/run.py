"""From a pipeline to a finished run: check everything, start Spark, join, work, report."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import queue
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from tidegate.engine.backing import Backer
from tidegate.engine.board import Board
from tidegate.engine.channel import LiveAddress, LiveDesk
from tidegate.engine.clock import BrokerClock
from tidegate.engine.committer import Committer
from tidegate.engine.driver import Driver
from tidegate.engine.events import Events, Helpers, RoundReported
from tidegate.engine.finish import Finish
from tidegate.engine.lanes import Lanes
from tidegate.engine.lookout import Lookout
from tidegate.engine.marks import MarkFinder
from tidegate.engine.own_topics import OwnTopics, least_taken, prepare
from tidegate.engine.purse import Purse
from tidegate.engine.spark import Spark, open_spark, pickled
from tidegate.engine.starting import Starting
from tidegate.engine.stores import kafka_sinks, keeps_progress, rounds_commit, table_of
from tidegate.engine.tally import Tally
from tidegate.engine.task import Job, close_task
from tidegate.engine.topics import Topics, expand
from tidegate.engine.truth import Truth
from tidegate.errors import SettingsError, StoppedAtRecord, TopicMissing
from tidegate.kafka.admin import Admin, TopicInfo
from tidegate.kafka.connection import Kafka, kafka_of
from tidegate.kafka.member import Joining, open_member
from tidegate.kafka.writer import Writer
from tidegate.names import redrive_topic
from tidegate.records import Lease, Limits, Partition, Report, counted
from tidegate.settings import Settings, debug_asked
from tidegate.steps import Plan, name_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession  # noqa: TID251  # a type only

    from tidegate.pipeline import Pipeline, Retries, Source, Until

QUIET_SECONDS = 1.0
IDLE_SECONDS = 3.0
LIVE_LOT_SECONDS = 0.25
PLAIN_LOT_SECONDS = 1.0
"""A round holds permits for this long at most. A plain one hears of no more: too few, and starting jobs would take
longer than working."""
LIVE_SECONDS = 60.0
"""A live round reads for this long: its marks are committed while it runs."""


MakeJob = Callable[[Lease], bytes]


def run_pipeline(
    pipeline: Pipeline, *, until: Until, retries: Retries, session: SparkSession | None, more: Mapping[str, object]
) -> Report:
    """Run a pipeline; see `Pipeline.run`."""
    if until not in ("stopped", "caught-up"):
        raise SettingsError(f"until={until!r} is unknown", 'choose "stopped" or "caught-up"')
    if retries not in ("wait", "leave"):
        raise SettingsError(f"retries={retries!r} is unknown", 'choose "wait" or "leave"')
    resolved = pipeline.resolved(more)
    settings = resolved.values
    plan = pipeline.plan()
    plan_bytes = _pickle_plan(plan)
    source = pipeline.source
    kafka = kafka_of(resolved)
    kafka_bytes = _pickle_kafka(kafka)
    admin = Admin(kafka, settings.broker_timeout)
    sources = find_topics(admin, source)
    outputs = _check_outputs(plan, admin)
    spark = open_spark(session, master=settings.master, app_name=f"tidegate {source.group}", debug=debug_asked())
    closing = contextlib.ExitStack()
    try:
        most_lanes = _lane_limit(settings, spark)
        own = prepare(admin, source.group, plan.policy, settings, sources)
        clock = _open_clock(kafka, source.group, own, settings)
        topics = Topics(sources, own.read)
        truth = Truth(admin, source.group, table_of(plan, source.group), settings.trust)
        closing.callback(truth.close)
        starting = Starting(admin, truth, source, topics, plan.fingerprint)
        # From here on the group is touched: everything that can be refused has been.
        starting.before_joining()
        ends = admin.ends(_partitions(sources, source)) if until == "caught-up" else None
        board = Board(most_lanes, _limits(settings), ends, rounds_commit=rounds_commit(plan))
        events: Events = queue.SimpleQueue()
        desk = _open_desk(settings, spark, events)
        live = None if desk is None else desk.address
        job = _jobs(plan_bytes, kafka_bytes, source.group, live, own, settings.rate or 0.0)
        lanes = Lanes(spark, source.group, job, events.put, desk)
        tally = Tally(source.group, settings.idle_notice)
        driver = Driver(
            board,
            lanes,
            Helpers(
                MarkFinder(board, starting, events.put),
                Lookout(admin, topics, source.pattern, settings.stall_after, events.put),
                Finish(admin, lambda: list(own.delays) if retries == "wait" else [], events.put),
                clock,
                _open_purse(settings, is_live=desk is not None),
                _open_backer(
                    plan,
                    kafka,
                    source.group,
                    settings,
                    starting,
                    events,
                    lambda: least_taken(admin, [*outputs, *own.delays]),
                ),
            ),
            Committer(board, starting.metadata),
            tally,
            events,
            stop_seconds=settings.stop_budget,
        )
        _say(_guarantee(pipeline, plan, sources))
        with _signals(driver):
            report = driver.run(
                lambda callbacks: open_member(kafka, _joining(settings, source.group), callbacks), topics, source
            )
        if tally.holds_resources or spark.is_owned:
            spark.run_everywhere(close_task, b"")
    finally:
        closing.close()
        spark.stop()
    if report.failure is not None:
        _say(f"tidegate: {StoppedAtRecord(report.failure)}")
    return report


def _open_desk(settings: Settings, spark: Spark, events: Events) -> LiveDesk | None:
    """Open the live channel, unless it is switched off or every round waits for its own commit anyway."""
    if not settings.live or settings.commit_records is not None:
        return None
    bind, advertise = spark.driver_address
    limits = replace(
        _limits(settings), read_seconds=LIVE_SECONDS, quiet_seconds=LIVE_SECONDS, idle_seconds=LIVE_SECONDS
    )
    return LiveDesk(bind, advertise, limits, lambda report: events.put(RoundReported(report)))


def _jobs(plan: bytes, kafka: bytes, group: str, live: LiveAddress | None, own: OwnTopics, rate: float) -> MakeJob:
    """Return what turns a lease into the bytes of its task."""
    path = tuple(str(Path(entry).absolute()) if entry else str(Path.cwd()) for entry in sys.path)
    level = logging.getLogger().getEffectiveLevel()
    partitions, delays = own.partitions, dict(own.delays)

    def job(lease: Lease) -> bytes:
        return pickle.dumps(Job(plan, lease, kafka, group, path, level, live, partitions, delays, rate))

    return job


def _open_purse(settings: Settings, *, is_live: bool) -> Purse | None:
    """Make the permits of this process, where a rate was chosen."""
    if settings.rate is None:
        return None
    return Purse(settings.rate, LIVE_LOT_SECONDS if is_live else PLAIN_LOT_SECONDS, time.monotonic())


def _open_backer(
    plan: Plan,
    kafka: Kafka,
    group: str,
    settings: Settings,
    starting: Starting,
    events: Events,
    batch_bytes: Callable[[], int],
) -> Backer | None:
    """Back the rounds, where sinks write in bulk."""
    if not plan.collecting:
        return None
    # Of this copy of the program alone: two with one name would shut each other out for ever.
    family = f"tidegate.{group}.{settings.instance or uuid.uuid4().hex}"
    return Backer(
        kafka,
        family,
        starting.topic_id,
        events.put,
        in_transactions=rounds_commit(plan),
        batch_bytes=batch_bytes(),
    )


def _check_outputs(plan: Plan, admin: Admin) -> list[str]:
    """Return the topics that sinks name; that one is missing must not be found out by the first record."""
    names = [sink.topic for sink in kafka_sinks(plan) if isinstance(sink.topic, str)]
    admin.describe(names)
    return names


def _open_clock(kafka: Kafka, group: str, own: OwnTopics, settings: Settings) -> BrokerClock | None:
    """Read the broker's clock, where anything may be due; that also shows whether copies may be written."""
    if not any(own.delays.values()):
        return None
    seconds = settings.broker_timeout
    clock = BrokerClock(lambda: Writer(kafka, delivery_seconds=seconds), redrive_topic(group), seconds + 1)
    clock.read()
    return clock


def _pickle_plan(plan: Plan) -> bytes:
    """Pickle what the workers run; name the function that cannot go there."""
    parts = [*((step.kind, step.function) for step in plan.steps), *(("sink", sink.write) for sink in plan.sinks)]
    parts += [("when", sink.when) for sink in plan.sinks if sink.when is not None]
    for kind, function in parts:
        try:
            pickled(function)
        except SettingsError:  # a secret that cannot be read
            raise
        except Exception as error:
            raise SettingsError(
                f"{kind}({name_of(function)}) cannot be sent to Spark's workers: {error}",
                "make what it needs (a connection, a lock, an open file) inside the worker with tg.resource(make)",
            ) from error
    return pickled(plan)


def _pickle_kafka(kafka: Kafka) -> bytes:
    """Pickle how workers reach Kafka, secrets read: they may have neither the variables nor the files."""
    try:
        return pickled(kafka)
    except SettingsError:
        raise
    except Exception as error:  # noqa: BLE001  # its text may show what must not be shown
        raise SettingsError(
            f"a function in the settings of {kafka} cannot be sent to Spark's workers: {type(error).__name__}",
            "make what it needs (a connection, a lock) inside of it",
        ) from None


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


def _lane_limit(settings: Settings, spark: Spark) -> int:
    slots = spark.slots
    if settings.lanes is not None and settings.lanes > slots:
        raise SettingsError(
            f"lanes={settings.lanes}, but Spark runs {slots} tasks at a time: some lanes would starve",
            f"set lanes to at most {slots}, or give Spark more (master=local[{settings.lanes}])",
        )
    return settings.lanes or slots


def _limits(settings: Settings) -> Limits:
    return Limits(
        read_seconds=settings.commit_every,
        quiet_seconds=min(QUIET_SECONDS, settings.commit_every),
        idle_seconds=min(IDLE_SECONDS, settings.commit_every),
        attempt_seconds=settings.timeout,
        records=settings.commit_records,
    )


def _joining(settings: Settings, group: str) -> Joining:
    return Joining(group, settings.session_timeout, settings.instance, settings.group_protocol == "consumer")


def _guarantee(pipeline: Pipeline, plan: Plan, topics: Mapping[str, TopicInfo]) -> str:
    counts = {name: len(_partitions({name: info}, pipeline.source)) for name, info in topics.items()}
    names = ", ".join(f"{name} ({counted(count, 'partition')})" for name, count in counts.items())
    order = {"partition": ", in order per partition", "key": ", in order per key", "none": ", in no order"}[plan.order]
    but = " (but for records that failed)" if plan.policy.gives_up_order and plan.order != "none" else ""
    return (
        f"tidegate: group {pipeline.source.group} reads {names}: every record {_how_often(plan)}"
        f"{order}{but}; {plan.policy.sentence()}"
    )


def _how_often(plan: Plan) -> str:
    if not keeps_progress(plan):
        return "reaches its sinks at least once"
    if len(plan.collecting) == len(plan.sinks):
        return "has its effect exactly once"
    return "has its effect exactly once in what is stored with the marks, and reaches the other sinks at least once"


def _say(sentence: str) -> None:
    """Print for people: to stderr, since stdout is the program's own."""
    sys.stderr.write(sentence + "\n")
    sys.stderr.flush()


@contextlib.contextmanager
def _signals(driver: Driver) -> Iterator[None]:
    """SIGTERM and Ctrl-C end the run in good order; a second one ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os._exit(128 + number)
        asked = True
        driver.ask_to_stop()
        _say("tidegate: stopping; work in flight is finished and committed (a second signal ends at once)")

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
