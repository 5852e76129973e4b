"""The marks of many groups: followed in Kafka's own topic where that can be read, asked of each group elsewhere."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.errors import BrokerRefused, RecordsLost
from tidegate.kafka.committed import CommittedReader
from tidegate.kafka.follow import CommitsFollower

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.ops.cluster import Cluster
    from tidegate.records import Partition

logger = logging.getLogger("tidegate.ops")

_FOLLOW_SECONDS, _FOLLOW_SECONDS_PER_GROUP = 2.0, 0.04
"""How long a look reads commits, before it asks the groups, which takes about as long.

A cluster with many millions of commits is caught up with over several looks.
"""
_ASKED_AT_ONCE = 8
"""Groups that are asked at the same time, each by a connection that ends with its answer."""
_REFUSED_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class KnownMark:
    """A mark as it was committed; the times are None where only the group itself could be asked."""

    mark: int
    metadata: str
    committed_at_ms: int | None = None
    moved_at_ms: int | None = None


class MarksReader:
    """Reads the marks of groups again and again. With a group, of that one alone."""

    def __init__(self, cluster: Cluster, group: str | None = None) -> None:
        self._cluster = cluster
        self._follower = CommitsFollower(cluster.kafka, cluster.admin, group)
        self._refused_until = 0.0

    def read(self, groups: Sequence[str]) -> dict[str, dict[Partition, KnownMark]]:
        """Return the marks of these groups."""
        self._follow(max(_FOLLOW_SECONDS, _FOLLOW_SECONDS_PER_GROUP * len(groups)))
        found: dict[str, dict[Partition, KnownMark]] = {}
        for group in groups:
            if self._follower.is_caught_up(group):
                found[group] = {
                    at: KnownMark(one.mark, one.metadata, one.committed_at_ms, one.moved_at_ms)
                    for at, one in self._follower.commits(group).items()
                }
        return found | self._ask([group for group in groups if group not in found])

    def empty_since_ms(self, group: str) -> int | None:
        """Return since when a group that once had members has none; None where that is not known."""
        return self._follower.empty_since_ms(group) if self._follower.is_caught_up(group) else None

    def reconnect(self, cluster: Cluster) -> None:
        """Ask through another connection from now on."""
        self._cluster = cluster
        self._follower.reconnect(cluster.admin)

    def close(self) -> None:
        """End the connection."""
        self._follower.close()

    def _follow(self, budget_seconds: float) -> None:
        if time.monotonic() < self._refused_until:
            return
        try:
            self._follower.catch_up(budget_seconds)
        except (BrokerRefused, RecordsLost) as problem:
            # Many clusters let nobody read this topic. The groups can still be asked.
            logger.debug("commits_not_followed %s", problem)
            self._follower.close()
            self._refused_until = time.monotonic() + _REFUSED_SECONDS

    def _ask(self, groups: Sequence[str]) -> dict[str, dict[Partition, KnownMark]]:
        if not groups:
            return {}
        places = [at for info in self._cluster.admin.topics() for at in info.each_partition()]

        def ask(group: str) -> dict[Partition, KnownMark]:
            reader = CommittedReader(self._cluster.kafka, group, self._cluster.timeout_seconds, require_stable=False)
            try:
                found = reader.read(places)
            finally:
                reader.close()
            return {at: KnownMark(commit.mark, commit.metadata) for at, commit in found.items()}

        with ThreadPoolExecutor(min(_ASKED_AT_ONCE, len(groups)), "tidegate-marks") as pool:
            return dict(zip(groups, pool.map(ask, groups), strict=True))
