"""For tests of pipelines: a broker to disturb, faults as data, a log that survives all crashes, the laws as judges."""

from __future__ import annotations

from tidegate.dev.broker import Broker
from tidegate.kafka.commits import CommitSeen, read_commits
from tidegate.testing.attack import Attack
from tidegate.testing.copies import CopySeen, read_copies
from tidegate.testing.evidence import Struck
from tidegate.testing.faults import (
    EVERY_FAULT,
    EVERY_FAULT_OF_NODES,
    CutConnections,
    CutPower,
    DelayRequests,
    DeleteSettled,
    DenyCommits,
    DropConnections,
    FailSink,
    FillDisk,
    FillMetadata,
    FreezeDriver,
    KillBroker,
    KillDriver,
    KillExecutor,
    KillWorker,
    LoseNode,
    PlannedFault,
    Rebalance,
    RedriveDead,
    RestartBroker,
    RewindGroup,
    SkewClock,
    SlowSink,
)
from tidegate.testing.laws import check_laws
from tidegate.testing.programs import Program
from tidegate.testing.proxy import Delay, DelayAnswers, Disturbance, HideBrokers, KafkaProxy, RefuseCommits
from tidegate.testing.record_log import Entries, Event, Fault, RecordLog, Rewind
from tidegate.testing.schedule import Due, Schedule
from tidegate.testing.stage import Stage
from tidegate.testing.story import Breach, InOrder, by_part
from tidegate.testing.switches import Switch
from tidegate.testing.trial import Subject, Trial

__all__ = [
    "EVERY_FAULT",
    "EVERY_FAULT_OF_NODES",
    "Attack",
    "Breach",
    "Broker",
    "CommitSeen",
    "CopySeen",
    "CutConnections",
    "CutPower",
    "Delay",
    "DelayAnswers",
    "DelayRequests",
    "DeleteSettled",
    "DenyCommits",
    "Disturbance",
    "DropConnections",
    "Due",
    "Entries",
    "Event",
    "FailSink",
    "Fault",
    "FillDisk",
    "FillMetadata",
    "FreezeDriver",
    "HideBrokers",
    "InOrder",
    "KafkaProxy",
    "KillBroker",
    "KillDriver",
    "KillExecutor",
    "KillWorker",
    "LoseNode",
    "PlannedFault",
    "Program",
    "Rebalance",
    "RecordLog",
    "RedriveDead",
    "RefuseCommits",
    "RestartBroker",
    "Rewind",
    "RewindGroup",
    "Schedule",
    "SkewClock",
    "SlowSink",
    "Stage",
    "Struck",
    "Subject",
    "Switch",
    "Trial",
    "by_part",
    "check_laws",
    "read_commits",
    "read_copies",
]
