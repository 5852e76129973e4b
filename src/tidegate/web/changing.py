"""REST, the part that changes things: each shows its plan first, and does what was shown or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import APIRouter, Response

from tidegate.engine.control import Control, RunStatus
from tidegate.errors import SettingsError
from tidegate.ops.dead_letters import make_filter
from tidegate.ops.redrive import RedriveReport, Redriving
from tidegate.ops.rewind import RewindPlan
from tidegate.web.answers import Refused, answer
from tidegate.web.desk import CHANGE_SECONDS, Desk
from tidegate.web.fields import GroupName, RedriveBody, RewindBody
from tidegate.web.plans import Plans, changed
from tidegate.web.rewinding import carry_out_shown, plan
from tidegate.web.services import Services
from tidegate.web.shapes import shape_of

if TYPE_CHECKING:
    from tidegate.ops.cluster import Cluster
    from tidegate.records import Partition

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RewindAnswer(RewindPlan):
    """What a rewind would do, or has done."""

    fingerprint: str | None = None
    """Of the plan: send it to have this plan carried out. None where it is done."""


@dataclass(frozen=True, slots=True)
class RedriveAnswer(RedriveReport):
    """What a redrive would do, or has done."""

    fingerprint: str | None = None
    """Of the plan: send it to have this plan carried out. None where it is done."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """A redrive that was shown, and where the dead letters ended then: no later one is sent."""

    report: RedriveReport
    ends: Mapping[Partition, int]


def router(services: Services, desk: Desk) -> APIRouter:
    """Return the addresses below /api/v1 that change something."""
    routes = APIRouter(tags=["change"])
    plans = Plans()

    def is_of(kind: type) -> dict[int | str, dict[str, Any]]:
        return {200: {"model": shape_of(kind)}}

    @routes.put("/groups/{group:path}/offsets", responses=is_of(RewindAnswer))
    async def rewind(group: GroupName, body: RewindBody) -> Response:
        """Move a group to other offsets: with `dry_run` (the default) show the plan, else carry out the one shown."""
        asked = ("rewind", group, body.to, body.topic, body.partition)
        if body.dry_run:
            shown = await desk.ask(lambda cluster: plan(services, cluster, group, body.to, body.topic, body.partition))
            return answer(_extended(RewindAnswer, shown, plans.keep(asked, shown, shown)))
        kept = plans.take(body.fingerprint, asked)
        assert isinstance(kept, RewindPlan)  # noqa: S101  # what was kept for a rewind
        done = await desk.ask(
            lambda cluster: carry_out_shown(services, cluster, kept, body.topic, body.partition), seconds=CHANGE_SECONDS
        )
        return answer(_extended(RewindAnswer, done, None))

    @routes.post("/groups/{group:path}/redrive", responses=is_of(RedriveAnswer))
    async def redrive(group: GroupName, body: RedriveBody) -> Response:
        """Send dead letters back to their group: with `dry_run` (the default) show the plan, else carry it out."""
        asked = ("redrive", group, body.model_dump(exclude={"dry_run", "fingerprint"}))
        if body.dry_run:
            shown = await desk.ask(lambda cluster: _shown_redrive(cluster, group, body))
            fingerprint = plans.keep(asked, shown, [shown.report, shown.ends])
            return answer(_extended(RedriveAnswer, shown.report, fingerprint))
        kept = plans.take(body.fingerprint, asked)
        assert isinstance(kept, _Shown)  # noqa: S101  # what was kept for a redrive
        done = await desk.ask(lambda cluster: _redrive_shown(cluster, group, body, kept), seconds=CHANGE_SECONDS)
        return answer(_extended(RedriveAnswer, done, None))

    @routes.get("/run", responses=is_of(RunStatus))
    async def run() -> Response:
        """What the pipeline of this process does now."""
        return answer(_status(services.need_control()))

    @routes.post("/run/pause", responses=is_of(RunStatus))
    async def pause() -> Response:
        """Begin no more records; those in flight are finished. Partitions are kept."""
        return answer(_steered(services.need_control(), lambda control: control.pause()))

    @routes.post("/run/resume", responses=is_of(RunStatus))
    async def resume() -> Response:
        """Go on after a pause."""
        return answer(_steered(services.need_control(), lambda control: control.resume()))

    return routes


def _status(control: Control) -> RunStatus:
    status = control.status
    if status is None:
        raise Refused(503, "not_begun", "the pipeline has not begun", "ask again in a moment")
    return status


def _steered(control: Control, deed: Callable[[Control], None]) -> RunStatus:
    try:
        deed(control)
    except SettingsError as error:
        raise Refused(409, "not_running", error.happened, error.cure) from None
    return _status(control)


def _redriving(cluster: Cluster, group: str, body: RedriveBody, until: Mapping[Partition, int] | None) -> Redriving:
    if (body.partition is None) != (body.offset is None):
        raise SettingsError("a letter's place is its partition and its offset", "name both, or neither")
    place = None if body.partition is None or body.offset is None else (body.partition, body.offset)
    chosen = make_filter(
        origin=body.origin, error=body.error, since=body.since, until=body.until, key=body.key, place=place
    )
    return Redriving(
        cluster, group, chosen, again=body.again, most_redrives=body.most_redrives, limit=body.limit, until=until
    )


def _shown_redrive(cluster: Cluster, group: str, body: RedriveBody) -> _Shown:
    redriving = _redriving(cluster, group, body, None)
    return _Shown(redriving.plan(), redriving.ends)


def _redrive_shown(cluster: Cluster, group: str, body: RedriveBody, shown: _Shown) -> RedriveReport:
    redriving = _redriving(cluster, group, body, shown.ends)
    if redriving.plan() != shown.report:
        raise changed("other letters would be sent than were shown")
    return redriving.send()


def _extended(kind: Callable[..., T], found: object, fingerprint: str | None) -> T:
    of_found = {each.name: getattr(found, each.name) for each in fields(found)}  # type: ignore[arg-type]  # a dataclass
    return kind(**of_found, fingerprint=fingerprint)
