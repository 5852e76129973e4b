"""The pages, added to the web application. NiceGUI is one per process, and so are its pages: each asks whose it is."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from nicegui import ui
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Mount

from tidegate.web.pages.dead import DeadPage
from tidegate.web.pages.frame import Frame, empty
from tidegate.web.pages.group import GroupPage
from tidegate.web.pages.letter import LetterPage
from tidegate.web.pages.overview import Overview
from tidegate.web.pages.rewind import RewindPage
from tidegate.web.pages.visit import DESK_KEY, SERVICES_KEY, visit_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from tidegate.web.desk import Desk
    from tidegate.web.services import Services

_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#0b6b86"/>'
    '<path d="M4 13q4-5 8 0t8 0t8 0M4 21q4-5 8 0t8 0t8 0" fill="none" stroke="#fff" stroke-width="3"/></svg>'
)
# These belong to REST, whether or not they are there: an unknown one is answered by REST, too.
_NOT_PAGES = ("/api", "/healthz", "/readyz", "/metrics", "/login", "/logout")


def add_pages(app: FastAPI) -> None:
    """Add the dashboard to an application made by `make_app`. The guard that it has stands before the pages as well."""
    services: Services = app.state.services
    desk: Desk = app.state.desk
    shell = _shell()
    app.router.routes.append(_Pages(_with({SERVICES_KEY: services, DESK_KEY: desk}, shell)))
    inner = app.router.lifespan_context

    @contextlib.asynccontextmanager
    async def lifespan(whole: FastAPI) -> AsyncIterator[None]:
        async with inner(whole), shell.router.lifespan_context(shell):
            yield

    app.router.lifespan_context = lifespan


class _Pages(Mount):
    """Everything that is not REST's."""

    def __init__(self, shell: ASGIApp) -> None:
        super().__init__("/", app=shell)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path: str = scope.get("path", "")
        if any(path == one or path.startswith(f"{one}/") for one in _NOT_PAGES):
            return Match.NONE, {}
        return super().matches(scope)


def _with(known: Mapping[str, object], shell: ASGIApp) -> ASGIApp:
    async def hand_over(scope: Scope, receive: Receive, send: Send) -> None:
        await shell({**scope, **known}, receive, send)

    return hand_over


@cache
def _shell() -> FastAPI:
    """Return the application that holds NiceGUI and our pages; one per process, as NiceGUI itself."""
    shell = FastAPI(openapi_url=None)
    ui.run_with(
        shell,
        root=_nowhere,
        title="Tidegate",
        favicon=_ICON,
        dark=None,
        language="en-US",
        binding_refresh_interval=None,
        reconnect_timeout=10.0,
        tailwind=False,
        show_welcome_message=False,
    )
    _register()
    return shell


def _nowhere(request: Request) -> None:
    """What is shown for every other address."""
    ui.status_code(404)
    Frame(visit_of(request), "Nothing here").watch()
    with ui.element("div").classes("card"):
        empty("There is nothing at this address.", "All groups are on the first page:")
        with ui.element("div").classes("empty"):
            ui.link("Consumer groups", "/")


def _register() -> None:
    @ui.page("/")
    def overview(request: Request) -> None:
        Overview(visit_of(request))

    @ui.page("/group")
    def group(request: Request, name: str = "") -> Response | None:
        if not name:
            return RedirectResponse("/")
        GroupPage(visit_of(request), name)
        return None

    @ui.page("/dead")
    def dead(request: Request, group: str = "") -> Response | None:
        if not group:
            return RedirectResponse("/")
        DeadPage(visit_of(request), group)
        return None

    @ui.page("/letter")
    def letter(request: Request, group: str = "", partition: int = -1, offset: int = -1) -> Response | None:
        if not group or partition < 0 or offset < 0:
            return RedirectResponse("/")
        LetterPage(visit_of(request), group, partition, offset)
        return None

    @ui.page("/rewind")
    def rewind(request: Request, group: str = "") -> Response | None:
        if not group:
            return RedirectResponse("/")
        RewindPage(visit_of(request), group)
        return None
