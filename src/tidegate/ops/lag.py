"""How far groups are behind: any client's, one or all of a cluster, in records and in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.ops.cluster import Cluster, chosen_cluster
from tidegate.ops.survey import Survey
from tidegate.ops.verdicts import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.kafka.connection import Kafka
    from tidegate.ops.model import GroupLag

_ONE_GROUP_SECONDS = 3.0
_ALL_GROUPS_SECONDS = 1.0


def lag(group: str, *, kafka: Kafka | None = None) -> GroupLag:
    """Return how far any consumer group is behind, whatever client it uses.

    A group that nobody has used is `dead`, without partitions, and its verdict is `unknown`.
    """
    return load_lag(chosen_cluster(kafka), group)


def load_lag(cluster: Cluster, group: str, before: GroupLag | None = None, *, limits: Limits | None = None) -> GroupLag:
    """Look at one group, in detail. With an earlier look, what has changed since counts too."""
    survey = Survey(cluster, limits, group=group)
    try:
        earlier = {} if before is None else {group: before}
        return survey.look(earlier, record_seconds=_ONE_GROUP_SECONDS)[0]
    finally:
        survey.close()


def load_groups(
    cluster: Cluster, before: Mapping[str, GroupLag] | None = None, *, limits: Limits | None = None
) -> tuple[GroupLag, ...]:
    """Look at all groups of the cluster, once. Where there are many, some times of records may be left out."""
    survey = Survey(cluster, limits)
    try:
        return survey.look(before or {}, record_seconds=_ALL_GROUPS_SECONDS)
    finally:
        survey.close()
