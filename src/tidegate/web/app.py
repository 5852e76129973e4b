"""The web application: REST, metrics, health, login, behind one guard."""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from tidegate.errors import TidegateError
from tidegate.web import changing, login, probes, reading, reference
from tidegate.web.answers import ErrorAnswer, Refused, refusal
from tidegate.web.desk import Desk
from tidegate.web.guard import Guard
from tidegate.web.shapes import shape_of

if TYPE_CHECKING:
    from starlette.responses import Response

    from tidegate.web.services import Services

log = logging.getLogger("tidegate")

_MOST_TOLD = 3


def make_app(services: Services) -> FastAPI:
    """Return the application over these services.

    For pages that are added, `app.state.services` has them, and `app.state.desk` does what may block.
    """
    desk = Desk(services.cluster)
    app = FastAPI(
        title="Tidegate",
        version=importlib.metadata.version("tidegate"),
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        redirect_slashes=False,
        lifespan=partial(_lifespan, desk),
    )
    app.state.services, app.state.desk = services, desk
    error = {"model": shape_of(ErrorAnswer), "description": "What went wrong, and what helps."}
    described: dict[int | str, dict[str, Any]] = {422: error, "default": error}
    # Named in the document, so that programs know; the guard is what asks for it.
    bearer = [Depends(HTTPBearer(auto_error=False, description="The setting token, or read_token."))]
    app.include_router(probes.router(services, desk), responses={"default": error})
    for part in (reading.router(services, desk), changing.router(services, desk)):
        app.include_router(part, prefix="/api/v1", responses=described, dependencies=bearer)
    app.include_router(reference.router(app))
    app.include_router(login.router(services.tokens))
    app.add_exception_handler(TidegateError, _on_ours)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(Exception, _on_anything)
    app.add_middleware(Guard, tokens=services.tokens)
    return app


@asynccontextmanager
async def _lifespan(desk: Desk, _app: FastAPI) -> AsyncIterator[None]:
    yield
    desk.close()


async def _on_ours(_request: Request, error: Exception) -> Response:
    assert isinstance(error, TidegateError)  # noqa: S101  # it is registered for these
    return refusal(error)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  # it is registered for these
    if error.status_code == 404:
        refused = Refused(404, "no_such_page", f"nothing is at {request.url.path}", "see /api/v1 for what there is")
    elif error.status_code == 405:
        refused = Refused(405, "wrong_method", f"{request.method} is not for this address", "see /api/v1 for what is")
    else:
        refused = Refused(error.status_code, "refused", str(error.detail), "see /api/v1 for what is expected")
    response = refusal(refused)
    response.headers.update(error.headers or {})
    return response


async def _on_invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101  # it is registered for these
    # Not what was sent: it may be anything, a token by mistake.
    told = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:_MOST_TOLD]]
    return refusal(Refused(422, "invalid", "; ".join(told), "mend it; /api/v1 says what is expected"))


async def _on_anything(request: Request, error: Exception) -> Response:
    log.error("request failed", exc_info=error, extra={"action": "request_failed", "path": request.url.path})
    return refusal(Refused(500, "internal", "an unexpected error; it is in the server's log", "report it"))
