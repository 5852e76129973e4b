"""The logs that groups read, as they are now, and for how long they keep what."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.errors import BrokerRefused, BrokerUnreachable, TopicMissing
from tidegate.kafka import bulk
from tidegate.kafka.configs import TopicConfigs, broker_setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidegate.kafka.admin import Admin
    from tidegate.ops.cluster import Cluster
    from tidegate.records import Partition

_SETTINGS_SECONDS = 60.0
_TRIES, _NAP_SECONDS = 4, 0.2


@dataclass(frozen=True, slots=True)
class Log:
    """One partition as it is now."""

    topic_id: str
    beginning: int
    end_offset: int
    """As read_committed."""
    high: int
    """The end with open transactions, where a mark lies beyond the one without; else the same."""


class Logs:
    """Asks for the bounds of logs, and remembers settings for a minute."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._retention: dict[str, tuple[float, int | None]] = {}
        self._offsets_retention: tuple[float, float | None] | None = None

    def reconnect(self, cluster: Cluster) -> None:
        """Ask through another connection from now on."""
        self._cluster = cluster

    def read(self, highest: Mapping[Partition, int]) -> dict[Partition, Log]:
        """Return those of the partitions that exist and have a leader; `highest` is the largest mark in each."""
        admin = self._cluster.admin
        visible = set(admin.topic_names())
        topics = admin.existing(at.topic for at in highest if at.topic in visible)
        there = [at for at in highest if at.topic in topics and at.number < topics[at.topic].partitions]
        beginnings = self._patiently(bulk.beginnings, there)
        ends = self._patiently(bulk.ends, list(beginnings))
        highs = bulk.ends(admin, [at for at in ends if highest[at] > ends[at]], committed_only=False)
        return {at: Log(topics[at.topic].topic_id, beginnings[at], ends[at], highs.get(at, ends[at])) for at in ends}

    def _patiently(
        self, ask: Callable[[Admin, list[Partition]], dict[Partition, int]], partitions: list[Partition]
    ) -> dict[Partition, int]:
        """Ask again for what nobody answers for: a leader that moves is back in a moment, one that is lost is not."""
        found = ask(self._cluster.admin, partitions)
        for _ in range(_TRIES):
            missing = [at for at in partitions if at not in found]
            if not missing:
                break
            time.sleep(_NAP_SECONDS)
            found |= ask(self._cluster.admin, missing)
        if partitions and not found and self._cluster.admin.existing(at.topic for at in partitions):
            raise BrokerUnreachable(
                f"Kafka at {self._cluster.kafka.bootstrap} does not answer (no partition has a leader)",
                "wait until its brokers are up again",
            )
        return found

    def read_retention(self, topics: Iterable[str]) -> None:
        """Learn how long the topics keep a record, in ms; None: for ever, or not known."""
        now = time.monotonic()
        wanted = [topic for topic in topics if now - self._retention.get(topic, (-1e9, None))[0] > _SETTINGS_SECONDS]
        found = self._topic_settings(wanted)
        self._retention |= {topic: (now, kept_ms(found.get(topic, {}))) for topic in wanted}

    def _topic_settings(self, topics: list[str]) -> dict[str, dict[str, str]]:
        """Return the settings of those topics that may be read."""
        try:
            return TopicConfigs(self._cluster.admin).read(topics)
        except (BrokerRefused, TopicMissing):
            found: dict[str, dict[str, str]] = {}
            for topic in topics if len(topics) > 1 else ():
                found |= self._topic_settings([topic])
            return found

    def kept_ms(self, topic: str) -> int | None:
        """Return for how long at least a topic keeps a record; None: for ever, or nobody can say."""
        return self._retention.get(topic, (0.0, None))[1]

    def offsets_retention_minutes(self) -> float | None:
        """Return for how long Kafka keeps the offsets of a group without members; None where nobody may know."""
        now = time.monotonic()
        if self._offsets_retention is None or now - self._offsets_retention[0] > _SETTINGS_SECONDS:
            try:
                text = broker_setting(self._cluster.admin, "offsets.retention.minutes")
            except BrokerRefused:
                text = None  # not everybody may read a broker's settings
            self._offsets_retention = (now, None if text is None else float(text))
        return self._offsets_retention[1]


def kept_ms(settings: Mapping[str, str]) -> int | None:
    """Return for how long at least a topic keeps a record, by its settings; None: for ever, or nobody can say.

    With a limit of bytes the oldest records go when new ones come, and how many bytes there are a client cannot ask.
    """
    if "delete" not in settings.get("cleanup.policy", "") or int(settings.get("retention.bytes", "-1")) >= 0:
        return None
    kept = int(settings.get("retention.ms", "-1"))
    return kept if kept >= 0 else None
