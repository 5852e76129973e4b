"""REST, the part that only looks."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from tidegate.durations import seconds
from tidegate.errors import BrokerUnreachable, GroupMissing
from tidegate.history.rows import CommitRow, FailureRow, OffsetRow, RunRow
from tidegate.ops.dead_letters import DeadLetter, make_filter
from tidegate.ops.model import GroupLag, LagPoint, Verdict
from tidegate.ops.offsets import GroupOffsets, load_offsets
from tidegate.records import Partition
from tidegate.web.answers import answer
from tidegate.web.desk import Desk
from tidegate.web.fields import (
    AfterQuery,
    GroupName,
    LettersQuery,
    LimitQuery,
    NameQuery,
    PartitionNumber,
    PartitionQuery,
    RecordOffset,
    TextQuery,
    TopicQuery,
    WhenQuery,
)
from tidegate.web.letters import LetterPage, load_letter, load_page
from tidegate.web.services import Services
from tidegate.web.shapes import shape_of

if TYPE_CHECKING:
    from tidegate.ops.cluster import Cluster

REFRESH_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group without its partitions."""

    group: str
    at: datetime
    state: str
    is_tidegate: bool
    """Whether its commits are ours."""
    member_count: int
    partition_count: int
    lag: int
    lag_seconds: float | None
    waiting_seconds: float | None
    expiry_days: float | None
    verdict: Verdict
    why: str


@dataclass(frozen=True, slots=True)
class GroupPage:
    """All groups, or some of them, by name; as they were seen last, and how old that is."""

    at: datetime | None
    age_seconds: float | None
    problem: str | None
    """Why there is nothing newer, where the last look failed."""
    groups: tuple[GroupSummary, ...]
    next: str | None
    """Give it as `after` to see the next page. None: that is all."""


@dataclass(frozen=True, slots=True)
class TableOffsets(GroupOffsets):
    """Where a group stands by Kafka, and what the offset table says: settled and requested."""

    table: tuple[OffsetRow, ...] | None
    """None where there is no history."""


@dataclass(frozen=True, slots=True)
class Commits:
    """Where a group stood over time, the oldest first."""

    group: str
    commits: tuple[CommitRow, ...]


@dataclass(frozen=True, slots=True)
class LagOverTime:
    """The lag of a group as it was seen, the oldest first; from the memory of this process."""

    group: str
    points: tuple[LagPoint, ...]


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of pipelines, the latest first."""

    runs: tuple[RunRow, ...]


@dataclass(frozen=True, slots=True)
class Failures:
    """Records that failed, the latest first."""

    group: str
    failures: tuple[FailureRow, ...]


def router(services: Services, desk: Desk) -> APIRouter:  # noqa: C901  # one function per address
    """Return the addresses below /api/v1 that change nothing."""
    routes = APIRouter(tags=["look"])
    sampler = services.sampler

    def is_of(kind: type) -> dict[int | str, dict[str, Any]]:
        return {200: {"model": shape_of(kind)}}

    @routes.get("/groups", responses=is_of(GroupPage))
    async def groups(
        name: NameQuery = None,
        verdict: Annotated[Verdict | None, Query(description="Only those with this verdict.")] = None,
        after: AfterQuery = None,
        limit: LimitQuery = 500,
    ) -> Response:
        """All consumer groups, any client's, with lag and verdict, from the last look."""
        view = sampler.view()
        found = sorted(
            (
                group
                for group in view.groups
                if (name is None or name in group.group)
                and (verdict is None or group.verdict == verdict)
                and (after is None or group.group > after)
            ),
            key=lambda group: group.group,
        )
        shown = tuple(summary(group) for group in found[:limit])
        following = shown[-1].group if len(found) > limit else None
        return answer(GroupPage(view.at, view.age_seconds, view.problem, shown, following))

    @routes.get("/runs", responses=is_of(Runs))
    async def runs(limit: LimitQuery = 100) -> Response:
        """Runs of pipelines that wrote into the history."""
        history = services.need_history()
        return answer(await desk.ask(lambda cluster: Runs(history.runs(cluster.cluster_id, limit=limit))))

    @routes.get("/groups/{group:path}/offsets", responses=is_of(TableOffsets))
    async def offsets(group: GroupName) -> Response:
        """A group's marks and the logs' ends, asked of Kafka now, and the offset table beside them."""

        def load(cluster: Cluster) -> TableOffsets:
            found = known(load_offsets(cluster.admin, group), cluster)
            table = None if services.history is None else services.history.offsets(cluster.cluster_id, group)
            return TableOffsets(**{each.name: getattr(found, each.name) for each in fields(found)}, table=table)

        return answer(await desk.ask(load))

    @routes.get("/groups/{group:path}/history", responses=is_of(Commits))
    async def commits(
        group: GroupName,
        topic: TopicQuery = None,
        partition: PartitionQuery = None,
        since: WhenQuery = None,
        limit: LimitQuery = 1000,
    ) -> Response:
        """Where the group stood over time, from the history."""
        history, begin = services.need_history(), make_filter(since=since).since
        place = None if topic is None or partition is None else Partition(topic, partition)
        found = await desk.ask(lambda cluster: history.commits(cluster.cluster_id, group, place, begin, limit))
        return answer(Commits(group, tuple(one for one in found if topic is None or one.partition.topic == topic)))

    @routes.get("/groups/{group:path}/lag", responses=is_of(LagOverTime))
    async def lag(group: GroupName, within: Annotated[str, Query(max_length=20)] = "1d") -> Response:
        """The group's lag over time, as this process has seen it."""
        since = datetime.now(UTC) - timedelta(seconds=min(seconds(within), 366 * 86400.0))
        points = tuple(point for point in sampler.lag_over_time(group) if point.at >= since)
        return answer(LagOverTime(group, points))

    @routes.get("/groups/{group:path}/runs", responses=is_of(Runs))
    async def group_runs(group: GroupName, limit: LimitQuery = 100) -> Response:
        """Runs of the group's pipeline."""
        history = services.need_history()
        return answer(await desk.ask(lambda cluster: Runs(history.runs(cluster.cluster_id, group, limit))))

    @routes.get("/groups/{group:path}/failures", responses=is_of(Failures))
    async def failures(group: GroupName, limit: LimitQuery = 100) -> Response:
        """Records of the group that failed, with the reason and what became of them."""
        history = services.need_history()
        return answer(
            await desk.ask(lambda cluster: Failures(group, history.failures(cluster.cluster_id, group, limit)))
        )

    @routes.get("/groups/{group:path}/dead-letters", responses=is_of(LetterPage))
    async def letters(
        group: GroupName,
        origin: TextQuery = None,
        error: TextQuery = None,
        since: WhenQuery = None,
        until: WhenQuery = None,
        key: TextQuery = None,
        after: AfterQuery = None,
        limit: LettersQuery = 50,
    ) -> Response:
        """A page of the group's dead letters, partition by partition, the oldest of each first."""
        chosen = make_filter(origin=origin, error=error, since=since, until=until, key=key)
        return answer(await desk.ask(lambda cluster: load_page(cluster, group, chosen, after, limit)))

    @routes.get("/groups/{group:path}/dead-letters/{partition}/{offset}", responses=is_of(DeadLetter))
    async def letter(
        group: GroupName, partition: Annotated[PartitionNumber, Path()], offset: Annotated[RecordOffset, Path()]
    ) -> Response:
        """One dead letter by its place: the number of its partition and its offset in `GROUP.dead`."""
        return answer(await desk.ask(lambda cluster: load_letter(cluster, group, (partition, offset))))

    @routes.get("/groups/{group:path}", responses=is_of(GroupLag))
    async def one_group(group: GroupName) -> Response:
        """One group: lag in records and seconds, members, each partition with its verdict."""
        found = sampler.group(group)
        if found is None:  # it may have come a moment ago
            await desk.ask(lambda _cluster: sampler.refresh(within=REFRESH_SECONDS))
            found = sampler.group(group)
        if found is not None:
            return answer(found)
        view = sampler.view()
        if view.problem is not None:
            raise BrokerUnreachable(view.problem, "it recovers by itself when Kafka is back")
        raise missing(group, [one.group for one in view.groups])

    return routes


def summary(group: GroupLag) -> GroupSummary:
    """Return a group without its partitions."""
    return GroupSummary(
        group=group.group,
        at=group.at,
        state=group.state,
        is_tidegate=group.is_tidegate,
        member_count=len(group.members),
        partition_count=len(group.partitions),
        lag=group.lag,
        lag_seconds=group.lag_seconds,
        waiting_seconds=group.waiting_seconds,
        expiry_days=group.expiry_days,
        verdict=group.verdict,
        why=group.why,
    )


def known(found: GroupOffsets, cluster: Cluster) -> GroupOffsets:
    """Return what was found; a group that nobody has ever used is an error."""
    if found.state == "dead" and not found.partitions:
        raise missing(found.group, cluster.admin.groups())
    return found


def missing(group: str, others: list[str]) -> GroupMissing:
    """Say that nobody has used a group."""
    close = difflib.get_close_matches(group, others, n=1)
    return GroupMissing(
        f"nobody has used the group {group}",
        f"did you mean {close[0]}?" if close else "check its name; it appears with its first member or commit",
    )
