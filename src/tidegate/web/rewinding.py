"""A rewind over HTTP: what was shown is what is done, or it is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.ops.rewind import RewindPlan, carry_out, plan_rewind
from tidegate.web.plans import changed

if TYPE_CHECKING:
    from tidegate.ops.cluster import Cluster
    from tidegate.web.services import Services


def plan(
    services: Services, cluster: Cluster, group: str, to: str, topic: str | None, partition: int | None
) -> RewindPlan:
    """Look what a rewind would do. Members are in its way, unless they can be asked to do it."""
    return plan_rewind(cluster.admin, group, to, topic, partition, services.reach)


def carry_out_shown(
    services: Services, cluster: Cluster, shown: RewindPlan, topic: str | None, partition: int | None
) -> RewindPlan:
    """Do what was shown, if it still is what would be done. A pipeline that runs has moved on meanwhile, of course."""
    now = plan(services, cluster, shown.group, shown.to, topic, partition)
    marks = {move.partition: move.mark for move in shown.moves}
    if {move.partition for move in now.moves} != set(marks) or bool(now.members) != bool(shown.members):
        raise changed("the group has other partitions or members than were shown")
    if not now.members and any(move.mark != marks[move.partition] for move in now.moves):
        raise changed("the group has moved since the plan was shown")
    places = list(marks)
    beginnings, ends = cluster.admin.beginnings(places), cluster.admin.ends(places)
    if any(not beginnings[move.partition] <= move.to <= ends[move.partition] for move in shown.moves):
        raise changed("the place that was shown is no longer in the log")
    return carry_out(cluster.admin, shown, services.reach)
