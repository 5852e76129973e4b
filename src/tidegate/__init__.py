"""Tidegate: a Kafka consumer group moves past a record only when that record is settled."""

from __future__ import annotations

from tidegate.context import Resource, current, resource
from tidegate.engine.control import Control
from tidegate.engine.spark_frames import bad
from tidegate.errors import (
    BatchFailed,
    BrokerRefused,
    BrokerUnreachable,
    CopyRefused,
    DatabaseRefused,
    DatabaseUnreachable,
    DeliveryFailed,
    HistoryBroken,
    JavaMissing,
    NoStartingOffset,
    OffsetsDiffer,
    RecordsLost,
    Reject,
    RewindRefused,
    SettingsError,
    SparkFailed,
    Stalled,
    StoppedAtRecord,
    TidegateError,
    TimedOut,
    TopicMissing,
    Unavailable,
    Undecodable,
    WorkerDied,
)
from tidegate.formats import Registry, avro, json, registry, text, to_avro
from tidegate.frames import FrameRound, RoundRange, write
from tidegate.kafka.connection import Kafka
from tidegate.ops.dead_letters import DeadLetter, dead_letters
from tidegate.ops.lag import lag
from tidegate.ops.model import GroupLag, PartitionLag
from tidegate.ops.offsets import GroupOffsets, offsets
from tidegate.ops.produce import Delivery, Message, produce
from tidegate.ops.redrive import RedriveReport, redrive
from tidegate.ops.rewind import RewindPlan, rewind
from tidegate.ops.track import Tracker, track
from tidegate.pipeline import Pipeline, from_kafka
from tidegate.places import at, from_table
from tidegate.policy import dead_letter, hold, retry, retry_later, skip, stop
from tidegate.records import Failure, Partition, Record, Report
from tidegate.secrets import Secret, secret
from tidegate.sinks.delta import delta
from tidegate.sinks.http import HttpError, HttpTimeout, call_http, http
from tidegate.sinks.jdbc import jdbc
from tidegate.sinks.kafka import kafka
from tidegate.sinks.parquet import parquet
from tidegate.sinks.postgres import postgres
from tidegate.tls import Tls

__version__ = "0.1.0"

__all__ = [
    "BatchFailed",
    "BrokerRefused",
    "BrokerUnreachable",
    "Control",
    "CopyRefused",
    "DatabaseRefused",
    "DatabaseUnreachable",
    "DeadLetter",
    "Delivery",
    "DeliveryFailed",
    "Failure",
    "FrameRound",
    "GroupLag",
    "GroupOffsets",
    "HistoryBroken",
    "HttpError",
    "HttpTimeout",
    "JavaMissing",
    "Kafka",
    "Message",
    "NoStartingOffset",
    "OffsetsDiffer",
    "Partition",
    "PartitionLag",
    "Pipeline",
    "Record",
    "RecordsLost",
    "RedriveReport",
    "Registry",
    "Reject",
    "Report",
    "Resource",
    "RewindPlan",
    "RewindRefused",
    "RoundRange",
    "Secret",
    "SettingsError",
    "SparkFailed",
    "Stalled",
    "StoppedAtRecord",
    "TidegateError",
    "TimedOut",
    "Tls",
    "TopicMissing",
    "Tracker",
    "Unavailable",
    "Undecodable",
    "WorkerDied",
    "at",
    "avro",
    "bad",
    "call_http",
    "current",
    "dead_letter",
    "dead_letters",
    "delta",
    "from_kafka",
    "from_table",
    "hold",
    "http",
    "jdbc",
    "json",
    "kafka",
    "lag",
    "offsets",
    "parquet",
    "postgres",
    "produce",
    "redrive",
    "registry",
    "resource",
    "retry",
    "retry_later",
    "rewind",
    "secret",
    "skip",
    "stop",
    "text",
    "to_avro",
    "track",
    "write",
]
