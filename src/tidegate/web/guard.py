"""Stands before every request, pages and sockets included: whose it is, where it comes from, how large it is."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response

from tidegate.web.answers import Refused, refusal
from tidegate.web.auth import Role, Tokens, cookie_name, remember_role

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

API = "/api/"
LOGIN = "/login"
PUBLIC = frozenset({"/healthz", "/readyz", LOGIN, "/logout", "/style.css"})
"""Answered to anybody: probes carry no token, and who logs in has none yet."""
SOCKET = "/_nicegui"
"""Below it the pages talk to the server, by posts too where a socket cannot be had. No change is made there unless the
page's own code has asked for the operator's role."""

MOST_BODY = 64 * 1024
MOST_SOCKET_BODY = 1024 * 1024
_BODY_SECONDS = 10.0
_READING = frozenset({"GET", "HEAD", "OPTIONS"})

_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not "no-referrer": a browser then hides from us, too, that our own login form was sent by our own page.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_STRICT = "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
# Vue compiles templates in the browser, and NiceGUI puts a page's content into a script of that page.
_PAGES = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; object-src 'none'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'self'"
)


class Guard:
    """Lets a request through to the app, or answers it."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or one socket."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            role = self._admit(scope, headers)
            if scope["type"] == "http" and scope["method"] not in _READING:
                most = MOST_SOCKET_BODY if _is_below(scope["path"], SOCKET) else MOST_BODY
                receive = await _read(receive, headers, most)
        except Refused as refused:
            await self._turn_away(refused, scope, receive, send)
            return
        if role is not None:
            remember_role(scope, role)
        await self._app(scope, receive, _with_headers(send, scope["path"]) if scope["type"] == "http" else send)

    def _admit(self, scope: Scope, headers: Headers) -> Role | None:
        path: str = scope["path"]
        is_change = scope["type"] == "http" and scope["method"] not in _READING
        if not self._tokens.are_set and not is_loopback(_name_of(headers.get("host", ""))):
            # Another site's name may be made to lead to this machine (DNS rebinding): its pages would be ours.
            raise Refused(421, "foreign_host", "this server is not known by that name", "use http://127.0.0.1:PORT")
        _check_site(scope, headers, is_change=is_change)
        role = self._role(headers)
        if role is None and path not in PUBLIC:
            raise Refused(
                401, "token_missing", "a valid token is required", "send the header Authorization: Bearer TOKEN"
            )
        if is_change and path not in PUBLIC and not _is_below(path, SOCKET):
            if role != "operator":
                raise Refused(403, "read_only", "this token may only read", "use the operator's token")
            if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                raise Refused(415, "not_json", "the body is not JSON", "send it with Content-Type: application/json")
        return role

    def _role(self, headers: Headers) -> Role | None:
        if not self._tokens.are_set:
            return "operator"
        if (given := headers.get("authorization")) is not None:
            scheme, _, token = given.partition(" ")
            return self._tokens.role_of(token.strip()) if scheme.lower() == "bearer" else None
        jar: SimpleCookie = SimpleCookie()
        try:
            jar.load(headers.get("cookie", ""))
        except CookieError:
            return None
        found = jar.get(cookie_name(headers.get("host", "")))
        return None if found is None else self._tokens.role_of_session(found.value)

    async def _turn_away(self, refused: Refused, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": refused.code})
            return
        response: Response = refusal(refused)
        if refused.status == 401:
            response.headers["www-authenticate"] = 'Bearer realm="tidegate"'
            wants_page = "text/html" in Headers(scope=scope).get("accept", "")
            if wants_page and scope["method"] == "GET" and not _is_below(scope["path"], API):
                asked = scope["path"] + (f"?{query}" if (query := scope["query_string"].decode("latin-1")) else "")
                response = RedirectResponse(f"{LOGIN}?next={quote(asked, safe='/')}", 303)
        await response(scope, receive, _with_headers(send, scope["path"]))


def is_loopback(host: str) -> bool:
    """Whether a name or address of a host leads to this machine and to nobody else."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_site(scope: Scope, headers: Headers, *, is_change: bool) -> None:
    """Refuse what a page of another site sends: the browser says so, in one of these headers."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    is_socket = scope["type"] == "websocket"
    is_link = headers.get("sec-fetch-mode") == "navigate" and not is_change and not is_socket
    is_foreign = site is not None and site not in ("same-origin", "none") and not is_link
    if (is_change or is_socket) and origin is not None:
        is_foreign = is_foreign or urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    if is_foreign:
        raise Refused(403, "cross_site", "the request comes from a page of another site", "use this server's own pages")


async def _read(receive: Receive, headers: Headers, most: int) -> Receive:
    """Take the whole body, as far as it is bounded, before anything is done; return what hands it on."""
    length = headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length) > most:
        raise Refused(413, "too_large", f"the body has more than {most} bytes", "send less")
    body = b""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            while True:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > most:
                    raise Refused(413, "too_large", f"the body has more than {most} bytes", "send less")
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    break
    except TimeoutError:
        raise Refused(408, "too_slow", f"the body took longer than {_BODY_SECONDS:g}s", "send it at once") from None
    handed_on = False

    async def hand_on() -> Message:
        nonlocal handed_on
        if handed_on:
            return await receive()
        handed_on = True
        return {"type": "http.request", "body": body, "more_body": False}

    return hand_on


def _with_headers(send: Send, path: str) -> Send:
    is_data = _is_below(f"{path}/", API) or path in PUBLIC or path == "/metrics"
    own: Mapping[str, str] = {
        **_HEADERS,
        "content-security-policy": _STRICT if is_data else _PAGES,
        **({"cache-control": "no-store"} if is_data else {}),
    }

    async def send_with_headers(message: Any) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in own.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder)


def _name_of(host: str) -> str:
    """Return the name in a Host header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
