"""Pure: what the progress of a Structured Streaming query says about Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.records import Partition

_KAFKA = ("KafkaV2[", "KafkaSource[")


@dataclass(frozen=True)
class BatchEnd:
    """One finished batch: how far the query has read, and with which it is done."""

    query: str
    """Spark's id of the query, the same after each restart from its checkpoint."""
    batch: int
    ends: Mapping[Partition, int]

    @property
    def metadata(self) -> str:
        """What goes with the commit: who says so."""
        return json.dumps({"streaming_query": self.query, "batch": self.batch}, separators=(",", ":"))


def read_progress(text: str) -> BatchEnd | None:
    """Return what a finished batch has read from Kafka; None if it has no source there.

    A partition that two sources of the query read counts up to where both are.
    """
    progress = json.loads(text)
    ends: dict[Partition, int] = {}
    for source in progress.get("sources") or []:
        if str(source.get("description", "")).startswith(_KAFKA):
            for partition, end in _offsets(source.get("endOffset")).items():
                ends[partition] = min(end, ends.get(partition, end))
    return BatchEnd(str(progress["id"]), int(progress["batchId"]), ends) if ends else None


def _offsets(found: Any) -> dict[Partition, int]:
    """Read offsets as Spark writes them: {"topic": {"0": 17}}, as an object or as its text."""
    topics = json.loads(found) if isinstance(found, str) else found
    if not isinstance(topics, dict):
        return {}
    return {
        Partition(topic, int(number)): int(end)
        for topic, partitions in topics.items()
        for number, end in partitions.items()
        if int(end) >= 0
    }
