"""Values to an HTTP server, and answers from one: connections kept, answers understood, repeats recognisable."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import orjson

from tidegate.context import current_id, current_ids, trace_headers
from tidegate.deadlines import Deadlines
from tidegate.durations import seconds
from tidegate.errors import Reject, SettingsError, Unavailable, Undecodable
from tidegate.secrets import Secret
from tidegate.sinks.http_requests import NoHttp, NotSendable, refuse_name
from tidegate.sinks.objects import AsyncSink
from tidegate.steps import refuse_async
from tidegate.tls import Tls

if TYPE_CHECKING:
    from tidegate.sinks.http_client import Answer, HttpClient

Text = str | Callable[[Any], str]
HeaderValues = Mapping[str, str | Secret | Callable[[Any], str]]

IDEMPOTENCY_KEY = "Idempotency-Key"
SHOWN_CHARACTERS = 300
CONNECT_SECONDS = 5.0
_AWAY = {429, 503}
_MAY_PASS = {408, 425}
_LONGEST_PAUSE_SECONDS = 86_400.0
"""A server that asks for longer has its clock wrong; a run that waits for ever looks like one that hangs."""
_MOST_TRACE_BYTES = 4096
"""Servers refuse requests with headers beyond 8 KB or so, and a trace is no reason to fail a record."""
_SENDABLE = re.compile(rb"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")


class HttpError(Exception):
    """The server answered with a status that may change: the row of `on_error` decides. `status` is the number."""

    def __init__(self, what: str, status: int) -> None:
        super().__init__(what)
        self.status = status


@dataclass
class Http:
    """One server as a sink: `tg.http(...)` makes it."""

    url: Text
    method: str = "POST"
    headers: HeaderValues = field(default_factory=dict)
    body: Callable[[Any], object] | None = None
    timeout: float = 10.0
    tls: Tls | None = None
    connections: int = 100
    key: Callable[[Any], str] | None = None

    @property
    def identity(self) -> str:
        """Tells this sink from others, in every run alike."""
        url = self.url if isinstance(self.url, str) else getattr(self.url, "__qualname__", "url")
        return f"http {self.method} {url}"

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_client", "_deadlines")}

    async def open(self) -> None:
        """Make the client, on the loop that uses it."""
        from tidegate.sinks.http_client import HttpClient  # noqa: PLC0415  # needs an extra: only who uses this sink has it

        self._client: HttpClient = HttpClient(
            connections=self.connections,
            tls=self.tls.context() if self.tls is not None else None,
            connect_seconds=min(self.timeout, CONNECT_SECONDS),
        )
        self._deadlines = Deadlines(self.timeout)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def write(self, value: Any) -> None:
        """Send one value; anything but a 2xx fails the record."""
        await self._send(value, self._repeat_key(value))

    async def call(self, value: Any) -> Any:
        """Send one value and return what the server answered: JSON decoded, anything else as bytes."""
        # Not the key of a sink's request: a server may serve both.
        return _decoded(await self._send(value, self._repeat_key(value) + "/step"))

    async def _send(self, value: Any, key: str) -> Answer:
        """Send one value; return the answer, which is a 2xx."""
        url = self.url if isinstance(self.url, str) else self.url(value)
        body, headers = self._body(value), self._headers(value, key)
        try:
            with self._deadlines.limit():
                answer = await self._client.request(self.method, url, body, headers)
        except TimeoutError as error:
            raise HttpTimeout(f"{url} gave no answer within {self.timeout:g}s") from error
        except OSError as error:  # no connection, no such name, a refused certificate, or it broke
            raise Unavailable(f"{url} cannot be reached: {str(error) or type(error).__name__}") from error
        except NotSendable as error:
            raise Reject(str(error)) from error
        except NoHttp as error:
            raise HttpError(f"{url} answered what is no HTTP: {error}", 0) from error
        _check(answer, url)
        return answer

    def _body(self, value: Any) -> bytes | None:
        made = value if self.body is None else self.body(value)
        if made is None or isinstance(made, bytes):
            return made
        return made.encode() if isinstance(made, str) else orjson.dumps(made)

    def _headers(self, value: Any, key: str) -> dict[str, str]:
        made = {IDEMPOTENCY_KEY: key}
        if self.body is None and not isinstance(value, bytes | str | None):
            made["Content-Type"] = "application/json"
        for name, given in self.headers.items():
            made[name] = (
                given.reveal() if isinstance(given, Secret) else given if isinstance(given, str) else given(value)
            )
        return self._with_traces(made)

    def _with_traces(self, made: dict[str, str]) -> dict[str, str]:
        """Add the record's trace headers, but for those that the user sets, and those that no server would take."""
        traces = trace_headers()
        if traces:
            given = {name.lower() for name in made}
            for name, value in traces.items():
                if name not in given and len(value) <= _MOST_TRACE_BYTES and _SENDABLE.fullmatch(value):
                    made[name] = value.decode("ascii")
        return made

    def _repeat_key(self, value: Any) -> str:
        """The same for every attempt at the same record, and for no other."""
        ids = current_ids()  # of a list's values
        stable = hashlib.blake2b("\n".join(ids).encode(), digest_size=16).hexdigest() if ids else current_id()
        return stable if self.key is None else f"{stable}:{self.key(value)}"


class HttpTimeout(TimeoutError):
    """The server took longer than `timeout`: whether it did its work is not known."""


def http(
    url: Text,
    *,
    method: str = "POST",
    headers: HeaderValues | None = None,
    body: Callable[[Any], object] | None = None,
    timeout: str | float = "10s",
    tls: Tls | None = None,
    connections: int = 100,
    key: Callable[[Any], str] | None = None,
) -> Callable[[Any], Any]:
    """Send each value to an HTTP server: at least once, effectively once if it honours `Idempotency-Key`.

    `url` and each header may be a function of the value (`tg.current()` gives the record); a header may be a
    `tg.secret`. The body is the value: bytes and text as they are, anything else as JSON, or what `body(value)`
    returns. A 2xx settles. No connection, 429 and 503 are `tg.Unavailable` (Retry-After is honoured); 408, 425,
    any other 5xx and no answer within `timeout` go through the row of `on_error`; any other answer is a
    `tg.Reject`. The header `Idempotency-Key` is the record's stable id; `key` adds a part to it.
    """
    return AsyncSink(_made(url, method, headers, body, timeout, tls, connections, key))


def call_http(
    url: Text,
    *,
    method: str = "POST",
    headers: HeaderValues | None = None,
    body: Callable[[Any], object] | None = None,
    timeout: str | float = "10s",
    tls: Tls | None = None,
    connections: int = 100,
    key: Callable[[Any], str] | None = None,
) -> Callable[[Any], Any]:
    """Ask an HTTP server for each value, as a step: `map(tg.call_http(url))`. Its answer becomes the value.

    JSON is decoded, anything else comes as bytes. The rest is as for `tg.http`.
    """
    return AsyncCall(_made(url, method, headers, body, timeout, tls, connections, key))


class AsyncCall(AsyncSink):
    """A server as a step: like a sink, with an answer."""

    async def __call__(self, value: Any) -> Any:
        """Ask the server."""
        if not self._is_open:
            await self._open()
        sink: Any = self._sink
        return await sink.call(value)


def _made(  # the options of the two functions above
    url: Text,
    method: str,
    headers: HeaderValues | None,
    body: Callable[[Any], object] | None,
    timeout: str | float,
    tls: Tls | None,
    connections: int,
    key: Callable[[Any], str] | None,
) -> Http:
    try:
        import httptools  # noqa: F401, PLC0415  # only to see that it is there
    except ImportError:
        raise SettingsError("tg.http needs httptools", "install it: pip install 'tidegate[http]'") from None
    if isinstance(url, str) and not url.startswith(("http://", "https://")):
        raise SettingsError(f"http({url!r}) is no address", 'write it like "http://localhost:8080/orders"')
    for name, one in (("url", url), ("body", body), ("key", key), *(headers or {}).items()):
        refuse_async("http: {}", name, one)
    _refuse_names(headers or {})
    if connections < 1:
        raise SettingsError(f"http(connections={connections})", "at least 1")
    return Http(url, method.upper(), dict(headers or {}), body, seconds(timeout), tls, connections, key)


def _refuse_names(headers: HeaderValues) -> None:
    for name in headers:
        try:
            refuse_name(name)
        except NotSendable as error:
            raise SettingsError(f"http(headers=...): {error}", "write it like {'X-Source': 'billing'}") from None


def _check(answer: Answer, url: str) -> None:
    """Turn anything but a 2xx into the error that chooses the record's way."""
    status = answer.status
    if 200 <= status < 300:
        return
    shown = answer.text(SHOWN_CHARACTERS)
    what = f"{url} answered {status}" + (f": {shown}" if shown else "")
    if status in _AWAY:
        raise Unavailable(what, retry_after=_retry_after(answer.header(b"retry-after")))
    if status in _MAY_PASS or status >= 500:
        raise HttpError(what, status)
    raise Reject(what)


def _retry_after(given: str | None) -> float | None:
    """Return how long a server asks to be left alone: seconds, or a date."""
    if given is None:
        return None
    if given.strip().isdecimal() and given.isascii():
        return min(float(given), _LONGEST_PAUSE_SECONDS)
    try:
        until = parsedate_to_datetime(given)
    except ValueError:
        return None
    aware = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
    return min(max(0.0, (aware - datetime.now(UTC)).total_seconds()), _LONGEST_PAUSE_SECONDS)


def _decoded(answer: Answer) -> Any:
    if answer.content_type != "application/json" or not answer.content:
        return answer.content
    try:
        return orjson.loads(answer.content)
    except ValueError as error:
        raise Undecodable(f"the server's answer is no JSON: {error}") from error
