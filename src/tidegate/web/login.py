"""Logging in with a token, for browsers: it becomes a cookie that scripts cannot read and other sites cannot use."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote

import orjson
from fastapi import APIRouter, Request, Response
from starlette.responses import HTMLResponse, RedirectResponse

from tidegate.web.answers import Refused, answer
from tidegate.web.auth import SESSION_SECONDS, Role, Tokens, cookie_name
from tidegate.web.guard import LOGIN

if TYPE_CHECKING:
    from starlette.responses import Response as AnyResponse

_AFTER = "/"
_WRONG = '<p class="wrong" role="alert">That is no token of this server.</p>'
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Tidegate</title>
<link rel="stylesheet" href="/style.css">
<main class="login">
<h1>Tidegate</h1>
<p>This server asks for a token: the operator's, or the one that may only read.</p>
WRONG
<form method="post" action="/login">
<input type="hidden" name="next" value="NEXT">
<p><label>Token <input type="password" name="token" autocomplete="current-password" required autofocus></label></p>
<p><button>Log in</button></p>
</form>
</main>
</html>
"""


def router(tokens: Tokens) -> APIRouter:
    """Return the addresses. A form is answered with a redirect, JSON with JSON."""
    routes = APIRouter(include_in_schema=False)

    @routes.get(LOGIN)
    async def show(request: Request) -> Response:
        """Show the form: plain, since what the other pages are made of is not given to strangers."""
        wrong = _WRONG if "wrong" in request.query_params else ""
        after = escape(local_path(request.query_params.get("next", "")), quote=True)
        return HTMLResponse(_PAGE.replace("WRONG", wrong).replace("NEXT", after))

    @routes.post(LOGIN)
    async def log_in(request: Request) -> Response:
        """Trade the field `token` for the cookie; the field `next` says where to go on."""
        is_form = _is_form(request)
        fields = _fields(await request.body(), is_form=is_form)
        role: Role | None = "operator" if not tokens.are_set else tokens.role_of(fields.get("token", ""))
        if role is None:
            if is_form:
                after = quote(local_path(fields.get("next", "")), safe="/")
                return RedirectResponse(f"{LOGIN}?wrong=1&next={after}", 303)
            raise Refused(401, "token_wrong", "that is no token of this server", "check it")
        response: AnyResponse = (
            RedirectResponse(local_path(fields.get("next", "")), 303) if is_form else answer({"role": role})
        )
        if tokens.are_set:
            _set_cookie(request, response, tokens.session(role), SESSION_SECONDS)
        return response

    @routes.post("/logout")
    async def log_out(request: Request) -> Response:
        """Take the cookie away."""
        response: AnyResponse = RedirectResponse(LOGIN, 303) if _is_form(request) else answer({"role": None})
        _set_cookie(request, response, "", 0)
        return response

    return routes


def local_path(wanted: str) -> str:
    """Return a path of this server; anything that could lead elsewhere becomes the first page."""
    is_path = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and wanted.isprintable()
    return wanted if is_path and "\\" not in wanted else _AFTER


def _set_cookie(request: Request, response: AnyResponse, content: str, seconds: int) -> None:
    response.set_cookie(
        cookie_name(request.headers.get("host", "")),
        content,
        max_age=seconds,
        path="/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


def _is_form(request: Request) -> bool:
    return request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded")


def _fields(body: bytes, *, is_form: bool) -> dict[str, str]:
    try:
        if is_form:
            return {name: values[0] for name, values in parse_qs(body.decode()).items()}
        found = orjson.loads(body)
    except ValueError:
        raise Refused(422, "invalid", "the body cannot be read", 'send {"token": "..."}') from None
    if not isinstance(found, dict):
        raise Refused(422, "invalid", "the body is no object", 'send {"token": "..."}')
    return {name: value for name, value in found.items() if isinstance(value, str)}
