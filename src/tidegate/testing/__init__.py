"""For tests of pipelines: a log that survives every crash, and the laws checked against it."""

from __future__ import annotations

from tidegate.testing.laws import Breach, check_laws
from tidegate.testing.record_log import Entries, Event, Fault, RecordLog

__all__ = ["Breach", "Entries", "Event", "Fault", "RecordLog", "check_laws"]
