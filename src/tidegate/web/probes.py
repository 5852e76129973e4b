"""For those who watch the process: does it live, can it work, what are its figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from tidegate.web.answers import Refused, answer
from tidegate.web.auth import role_in
from tidegate.web.desk import Desk
from tidegate.web.metrics import render
from tidegate.web.services import Services
from tidegate.web.shapes import shape_of

if TYPE_CHECKING:
    from tidegate.engine.control import RunStatus
    from tidegate.ops.model import View

OLDEST_LOOK_SECONDS = 120.0
STALLED_SECONDS = 90.0
"""As the setting `stall_after` by default."""


@dataclass(frozen=True, slots=True)
class Health:
    """That all is well: what is not well is an error."""

    status: str


def router(services: Services, desk: Desk) -> APIRouter:
    """Return the addresses for probes and for Prometheus."""
    routes = APIRouter(tags=["watch"])

    def is_of(kind: type) -> dict[int | str, dict[str, Any]]:
        return {200: {"model": shape_of(kind)}}

    @routes.get("/healthz", responses=is_of(Health))
    async def alive() -> Response:
        """Whether the process lives."""
        return answer(Health("alive"))

    @routes.get("/readyz", responses=is_of(Health))
    async def ready(request: Request) -> Response:
        """Whether Kafka can be reached, and the pipeline of this process has joined and is not stalled."""
        has_run = services.control is not None
        status = None if services.control is None else services.control.status
        reason = unready(services.sampler.view(), status, has_run=has_run)
        if reason is not None:
            # A probe needs no token, so a stranger may ask: names and addresses are not for them.
            told = reason if role_in(request.scope) is not None else "it cannot work now"
            raise Refused(503, "not_ready", told, "look into the log, or at this address with a token")
        return answer(Health("ready"))

    @routes.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics() -> Response:
        """All figures in Prometheus' text format."""
        status = None if services.control is None else services.control.status
        figures = await desk.ask(lambda _cluster: render(services.sampler.view(), status))
        return Response(figures, media_type=CONTENT_TYPE_LATEST)

    return routes


def unready(view: View, status: RunStatus | None, *, has_run: bool) -> str | None:
    """Pure: return why nothing can be done now; None where it can."""
    if view.problem is not None:
        return view.problem
    if view.at is None or view.age_seconds is None:
        return "the cluster has not been looked at yet"
    if view.age_seconds > OLDEST_LOOK_SECONDS:
        return f"the last look at the cluster was {view.age_seconds:.0f}s ago"
    return _unready_run(status) if has_run else None


def _unready_run(status: RunStatus | None) -> str | None:
    if status is None or status.state not in ("running", "paused"):
        return f"the pipeline is {'waiting' if status is None else status.state}"
    if not status.member:
        return "the pipeline has not joined its group"
    for one in status.partitions:
        if one.stalled_seconds > STALLED_SECONDS:
            return f"{one.partition} has stood still for {one.stalled_seconds:.0f}s"
    return None
