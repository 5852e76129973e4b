"""The parts of a run, each made from the settings and the plan."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import pickle
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tidegate.engine.backing import Backer
from tidegate.engine.channel import LiveAddress, LiveDesk
from tidegate.engine.chronicle import Chronicle
from tidegate.engine.clock import BrokerClock
from tidegate.engine.control import Control, RunStatus
from tidegate.engine.events import Events, RoundReported
from tidegate.engine.own_topics import OwnTopics
from tidegate.engine.purse import Purse
from tidegate.engine.spark import Spark, pickled
from tidegate.engine.starting import Starting
from tidegate.engine.stores import kafka_sinks, rounds_commit
from tidegate.engine.task import Job
from tidegate.engine.topics import Topics
from tidegate.errors import SettingsError
from tidegate.history.rows import RunRow
from tidegate.kafka.admin import Admin, TopicInfo
from tidegate.kafka.connection import Kafka
from tidegate.kafka.member import Joining
from tidegate.kafka.writer import Writer
from tidegate.logs import WorkerLog
from tidegate.names import redrive_topic
from tidegate.records import Lease, Limits
from tidegate.settings import Settings
from tidegate.steps import Plan, name_of

QUIET_SECONDS = 1.0
IDLE_SECONDS = 3.0
LIVE_LOT_SECONDS = 0.25
PLAIN_LOT_SECONDS = 1.0
"""A round holds permits for this long at most. A plain one hears of no more: too few, and starting jobs would take
longer than working."""
LIVE_SECONDS = 60.0
"""A live round reads for this long: its marks are committed while it runs."""


ONE_REPLICA = (
    "has one replica: while its node is away, Kafka forgets whether transactions were committed or aborted, and what "
    "they wrote may be seen twice or never. Exactly once needs a topic with more"
)

logger = logging.getLogger("tidegate.transactions")

MakeJob = Callable[[Lease], bytes]


def open_desk(settings: Settings, spark: Spark, events: Events) -> LiveDesk | None:
    """Open the live channel, unless it is off, or workers cannot call, or every round waits for its commit anyway."""
    address = spark.driver_address
    if address is None or not settings.live or settings.commit_records is not None:
        return None
    bind, advertise = address
    limits = replace(
        limits_of(settings), read_seconds=LIVE_SECONDS, quiet_seconds=LIVE_SECONDS, idle_seconds=LIVE_SECONDS
    )
    return LiveDesk(bind, advertise, limits, lambda report: events.put(RoundReported(report)))


def jobs_of(
    plan: bytes,
    kafka: bytes,
    live: LiveAddress | None,
    own: OwnTopics,
    settings: Settings,
    run: RunRow,
    path: tuple[str, ...],
) -> MakeJob:
    """Return what turns a lease into the bytes of its task."""
    log = worker_log(settings, run)
    partitions, delays = own.partitions, dict(own.delays)

    def job(lease: Lease) -> bytes:
        return pickle.dumps(
            Job(
                plan,
                lease,
                kafka,
                run.group,
                path,
                log,
                live,
                partitions,
                delays,
                settings.rate or 0.0,
                settings.trace_headers,
            )
        )

    return job


def worker_log(settings: Settings, run: RunRow) -> WorkerLog:
    """Return how the lines of this run's workers look."""
    level = logging.getLogger().getEffectiveLevel()
    return WorkerLog(level, settings.log_format, {"group": run.group, "run": run.run_id})


def run_row(group: str, settings: Settings, topics: Topics) -> RunRow:
    """Return how this run enters the history."""
    now = datetime.now(UTC)
    names = tuple(topics.names)
    return RunRow(
        uuid.uuid4().hex,
        "",
        group,
        now,
        now,
        "starting",
        socket.gethostname(),
        os.getpid(),
        settings.instance,
        topics=names,
    )


@contextlib.contextmanager
def publisher(control: Control, chronicle: Chronicle | None, events: Events) -> Iterator[Callable[[RunStatus], None]]:
    """Let the control steer the run, and give to it and to the history what the run does."""

    def publish(status: RunStatus) -> None:
        control.publish(status)
        if chronicle is not None:
            chronicle.take(status)

    control.attach(events.put)
    try:
        yield publish
    finally:
        control.detach()
        if chronicle is not None:
            chronicle.close()


def open_purse(settings: Settings, *, is_live: bool) -> Purse | None:
    """Make the permits of this process, where a rate was chosen."""
    if settings.rate is None:
        return None
    return Purse(settings.rate, LIVE_LOT_SECONDS if is_live else PLAIN_LOT_SECONDS, time.monotonic())


def open_backer(
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
        group,
        family,
        starting.topic_id,
        events.put,
        in_transactions=rounds_commit(plan),
        batch_bytes=batch_bytes(),
    )


def check_outputs(plan: Plan, admin: Admin) -> list[str]:
    """Return the outputs that are named; that one is missing must not be found out by the first record."""
    names = outputs_named(plan)
    infos = admin.describe(names)
    for name in with_one_replica(plan, infos.values(), admin):
        logger.warning("topic %s %s", name, ONE_REPLICA, extra={"action": "one_replica"})
    return names


def outputs_named(plan: Plan) -> list[str]:
    """Return the topics that sinks name; others choose theirs for each record."""
    return [sink.topic for sink in kafka_sinks(plan) if isinstance(sink.topic, str)]


def with_one_replica(plan: Plan, outputs: Iterable[TopicInfo], admin: Admin) -> list[str]:
    """Return the outputs of transactions that lie on one node of several.

    Kafka 4.3 takes a partition without a leader for deleted when a transaction ends: its records stay without an end,
    and the next transaction of the same producer ends them with its own, whichever way that goes.
    """
    lone = [info.name for info in outputs if rounds_commit(plan) and info.replication == 1]
    return lone if lone and admin.node_count() > 1 else []


def open_clock(kafka: Kafka, group: str, own: OwnTopics, settings: Settings) -> BrokerClock | None:
    """Read the broker's clock, where anything may be due; that also shows whether copies may be written."""
    if not any(own.delays.values()):
        return None
    seconds = settings.broker_timeout
    clock = BrokerClock(lambda: Writer(kafka, delivery_seconds=seconds), redrive_topic(group), seconds + 1)
    clock.read()
    return clock


def pickle_plan(plan: Plan) -> bytes:
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
                f"{kind}({name_of(function)}){_line_of(function)} cannot be sent to Spark's workers: "
                f"{_culprit(function)}{error}",
                "make what it needs (a connection, a lock, an open file) inside the worker with tg.resource(make)",
            ) from error
    return pickled(plan)


def _line_of(function: object) -> str:
    code = getattr(function, "__code__", None)
    return f" ({Path(code.co_filename).name} line {code.co_firstlineno})" if code is not None else ""


def _culprit(function: object) -> str:
    """Name the variable that a function holds on to and that cannot be pickled, where it can be told."""
    try:
        held = inspect.getclosurevars(function)  # type: ignore[arg-type]  # what is no function raises
    except (TypeError, ValueError):
        return ""
    for name, value in {**held.globals, **held.nonlocals}.items():
        try:
            pickled(value)
        except Exception:  # noqa: BLE001  # whatever it is: this is the one
            return f"its {name}: "
    return ""


def pickle_kafka(kafka: Kafka) -> bytes:
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


def lane_limit(settings: Settings, spark: Spark) -> int:
    """Return how many rounds may run at a time; more than Spark has room for is an error, unless more may come."""
    slots = spark.slots
    if spark.is_cluster:
        return slots if settings.lanes is None else min(settings.lanes, slots)
    if settings.lanes is not None and settings.lanes > slots:
        raise SettingsError(
            f"lanes={settings.lanes}, but Spark runs {slots} tasks at a time: some lanes would starve",
            f"set lanes to at most {slots}, or give Spark more (master=local[{settings.lanes}])",
        )
    return settings.lanes or slots


def limits_of(settings: Settings) -> Limits:
    """Return what bounds a plain round."""
    return Limits(
        read_seconds=settings.commit_every,
        quiet_seconds=min(QUIET_SECONDS, settings.commit_every),
        idle_seconds=min(IDLE_SECONDS, settings.commit_every),
        attempt_seconds=settings.timeout,
        records=settings.commit_records,
    )


def joining_of(settings: Settings, group: str) -> Joining:
    """Return how to be a member of the group."""
    is_broker_led = settings.group_protocol == "consumer"
    return Joining(group, settings.session_timeout, settings.instance, is_broker_led, settings.stop_budget)
