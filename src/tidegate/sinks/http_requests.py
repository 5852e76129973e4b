"""Pure: an HTTP request as bytes: where it goes, what it begins with, what no server may be sent."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from urllib.parse import SplitResult, quote, unquote, urlsplit

_AGENT = "tidegate"


class NotSendable(ValueError):
    """An address that is none, or a header that no server may be sent."""


class NoHttp(Exception):
    """What answered speaks no HTTP."""


@dataclass(frozen=True, eq=False)
class Place:
    """Where a request goes. Compared by identity: it is a key for every request."""

    host: str
    port: int
    is_tls: bool
    target: str
    """Path and query, as the request's first line has them."""
    name: str
    """What the header Host says."""
    authorization: str | None
    """From a user and a password in the address."""

    @cached_property
    def server(self) -> tuple[str, int, bool]:
        """Requests with the same one may share a connection."""
        return self.host, self.port, self.is_tls


_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LONE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NOT_QUOTED = "/%:@!$&'()*+,;=~[]?"


@lru_cache(maxsize=1024)
def place_of(url: str) -> Place:
    """Understand an address; what has no place in one is quoted, what is quoted stays."""
    try:
        parts = urlsplit(url.strip())
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise NotSendable(f"{url!r} is no address: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise NotSendable(f"{url!r} is no address")
    is_tls = parts.scheme == "https"
    name = _host_name(url, host)
    shown = f"[{name}]" if ":" in name else name
    return Place(
        name,
        port or (443 if is_tls else 80),
        is_tls,
        _quoted(parts.path or "/") + (f"?{_quoted(parts.query)}" if parts.query else ""),
        shown if port is None else f"{shown}:{port}",
        _authorization(parts),
    )


def _host_name(url: str, host: str) -> str:
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise NotSendable(f"{url!r} is no address: {error}") from error


def _quoted(text: str) -> str:
    return quote(_LONE_PERCENT.sub("%25", text), safe=_NOT_QUOTED)


def _authorization(parts: SplitResult) -> str | None:
    if parts.username is None:
        return None
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(user.encode()).decode("ascii")


def written(method: str, place: Place, body: bytes | None, headers: Mapping[str, str]) -> bytes:
    """Return a request as bytes."""
    head = _beginning(method, place, tuple(headers)) + str(0 if body is None else len(body))
    for name, value in headers.items():
        # A line break inside a value would be a header, or a request, that nobody wrote.
        if "\r" in value or "\n" in value or "\0" in value:
            raise NotSendable("a header's value holds a line break or a zero byte")
        head += f"\r\n{name}: {value}"
    return head.encode() + b"\r\n\r\n" + (body or b"")


@lru_cache(maxsize=256)
def _beginning(method: str, place: Place, names: tuple[str, ...]) -> str:
    """Return how all requests to a place begin whose headers have these names, up to the length of the content."""
    lines = [f"{method} {place.target} HTTP/1.1"]
    for name in names:
        refuse_name(name)
    given = {name.lower() for name in names}
    for name, value in (("Host", place.name), ("User-Agent", _AGENT), ("Accept", "*/*")):
        if name.lower() not in given:
            lines.append(f"{name}: {value}")
    if place.authorization is not None and "authorization" not in given:
        lines.append(f"Authorization: {place.authorization}")
    beginning = "\r\n".join([*lines, "Content-Length: "])
    if beginning.count("\r") != len(lines) or beginning.count("\n") != len(lines) or "\0" in beginning:
        raise NotSendable("the method or the address holds a line break or a zero byte")
    return beginning


def refuse_name(name: str) -> None:
    """Refuse what is no header's name, and those that the client writes itself."""
    if _NAME.fullmatch(name) is None:
        raise NotSendable(f"{name!r} is no name of a header")
    if name.lower() in ("content-length", "transfer-encoding", "connection"):
        raise NotSendable(f"the header {name} is written by Tidegate itself")
