"""For tests of pipelines: a log that survives every crash, the laws checked against it, and a broker disturbed."""

from __future__ import annotations

from tidegate.testing.copies import CopySeen, read_copies
from tidegate.testing.laws import Breach, check_laws
from tidegate.testing.proxy import Delay, Disturbance, KafkaProxy, RefuseCommits
from tidegate.testing.record_log import Entries, Event, Fault, RecordLog

__all__ = [
    "Breach",
    "CopySeen",
    "Delay",
    "Disturbance",
    "Entries",
    "Event",
    "Fault",
    "KafkaProxy",
    "RecordLog",
    "RefuseCommits",
    "check_laws",
    "read_copies",
]
