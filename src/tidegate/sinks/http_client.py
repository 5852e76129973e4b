"""An HTTP/1.1 client for a worker's event loop: connections are kept, each carries one request at a time.

asyncio moves the bytes, httptools (the parser of Node.js) reads the answers. A client for every purpose costs four
times as much per request, which is most of what a record costs that goes to a server: docs/decisions says more.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import httptools

from tidegate.sinks.connecting import connected
from tidegate.sinks.http_requests import NoHttp, Place, place_of, written

KEPT_SECONDS = 30.0
"""An idle connection is closed after so long: servers close theirs after a minute or so."""


class NoConnection(OSError):
    """There was no connection in time."""


class Lost(OSError):
    """The connection broke before the answer was there. `has_begun`: a part of it was."""

    def __init__(self, why: str, *, has_begun: bool) -> None:
        super().__init__(why)
        self.has_begun = has_begun


@dataclass(frozen=True)
class Answer:
    """What a server said."""

    status: int
    headers: list[tuple[bytes, bytes]]
    content: bytes

    def header(self, wanted: bytes) -> str | None:
        """Return a header by its name in small letters."""
        return next((value.decode("latin-1") for name, value in self.headers if name.lower() == wanted), None)

    @property
    def content_type(self) -> str:
        """What the content is, without its parameters."""
        return (self.header(b"content-type") or "").split(";", 1)[0].strip().lower()

    def text(self, most: int) -> str:
        """Return the beginning of the content, for people."""
        return self.content[:most].decode("utf-8", "replace").strip()


class HttpClient:
    """Sends requests; at most `connections` are on their way at a time, the others wait."""

    def __init__(self, *, connections: int, tls: ssl.SSLContext | None, connect_seconds: float) -> None:
        self._tls = tls
        self._connect_seconds = connect_seconds
        self._room = _Room(connections)
        self._idle: defaultdict[tuple[str, int, bool], deque[_Connection]] = defaultdict(deque)
        self._sweeping: asyncio.TimerHandle | None = None

    async def request(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        """Send one request and return the whole answer. Whoever calls sets the time limit, by cancelling."""
        place = place_of(url)
        data = written(method, place, body, headers)
        if not self._room.take():
            await self._room.wait()
        try:
            kept = self._kept(place.server)
            if kept is not None:
                try:
                    return await self._ask(kept, place.server, data, method)
                except Lost as lost:
                    # A server may close a kept connection at the moment in which it is used: that says nothing
                    # about the server. Where the answer had begun it does.
                    if lost.has_begun:
                        raise
            return await self._ask(await self._connect(place), place.server, data, method)
        finally:
            self._room.leave()

    async def close(self) -> None:
        """Close the connections that nobody uses."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        closing = [one for idle in self._idle.values() for one in idle]
        self._idle.clear()
        for connection in closing:
            connection.close()
        await asyncio.gather(*(one.wait_closed() for one in closing))

    async def _ask(self, connection: _Connection, server: tuple[str, int, bool], data: bytes, method: str) -> Answer:
        try:
            answer = await connection.ask(data, is_head=method == "HEAD")
        except BaseException:
            connection.abort()  # its answer may still come: nobody else may get it
            raise
        if connection.is_reusable:
            self._keep(connection, server)
        else:
            connection.close()
        return answer

    async def _connect(self, place: Place) -> _Connection:
        loop = asyncio.get_running_loop()
        if place.is_tls and self._tls is None:
            self._tls = ssl.create_default_context()
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, connection = await loop.create_connection(
                    _Connection,
                    sock=await connected(place.host, place.port),
                    ssl=self._tls if place.is_tls else None,
                    server_hostname=place.host if place.is_tls else None,
                )
        except TimeoutError as error:
            raise NoConnection("no connection in time") from error
        return connection

    def _kept(self, server: tuple[str, int, bool]) -> _Connection | None:
        """Return the connection that was used last: its server has had the least time to close it."""
        idle = self._idle.get(server)
        while idle:
            connection = idle.pop()
            if connection.is_reusable:
                return connection
            connection.close()
        return None

    def _keep(self, connection: _Connection, server: tuple[str, int, bool]) -> None:
        self._idle[server].append(connection)
        connection.idle_since = connection.loop.time()
        if self._sweeping is None:
            self._sweeping = connection.loop.call_later(KEPT_SECONDS, self._sweep)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - KEPT_SECONDS
        for server, idle in list(self._idle.items()):
            while idle and (idle[0].idle_since <= oldest or not idle[0].is_reusable):
                idle.popleft().close()
            if not idle:
                del self._idle[server]
        self._sweeping = loop.call_later(KEPT_SECONDS / 3, self._sweep) if self._idle else None


class _Room:
    """So many at a time, the others in their order. As `asyncio.Semaphore`; it costs nothing where there is room."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> bool:
        """Take a place, if one is free: none is while others wait."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def wait(self) -> None:
        """Wait for a place and take it."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.leave()  # it was given its place in the same moment
            raise

    def leave(self) -> None:
        """Give a place back, to whoever has waited longest."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1


class _Connection(asyncio.Protocol):
    """One connection. httptools calls the methods that begin with `on_`."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.idle_since = 0.0
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._gone = self.loop.create_future()
        self._waiter: asyncio.Future[Answer] | None = None
        self._is_good = True
        self._is_head = self._has_begun = self._has_head = self._has_length = False
        self._headers: list[tuple[bytes, bytes]] = []
        self._content: list[bytes] = []

    # --- for the client

    @property
    def is_reusable(self) -> bool:
        """Whether another request may be sent."""
        return self._is_good and self._transport is not None and not self._transport.is_closing()

    def ask(self, data: bytes, *, is_head: bool) -> asyncio.Future[Answer]:
        """Send a request; the answer comes later."""
        self._waiter = self.loop.create_future()
        self._is_head, self._has_begun, self._has_head = is_head, False, False
        if self._transport is None or self._transport.is_closing():
            self._fail(Lost("the server closed the connection", has_begun=False))
        else:
            self._transport.write(data)
        return self._waiter

    def close(self) -> None:
        """Close it in good order."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close it at once."""
        self._is_good = False
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until it is closed."""
        await asyncio.wait([self._gone], timeout=1.0)

    # --- for asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._waiter is None:  # nobody has asked: this server and we do not speak of the same request
            self.abort()
            return
        self._has_begun = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._is_good = False
        except httptools.HttpParserError as error:
            self._fail(NoHttp(str(error)))
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_good = False
        if not self._gone.done():
            self._gone.set_result(None)
        if self._has_head and not self._has_length and error is None:
            self.on_message_complete()  # an answer without a length ends with its connection
        else:
            why = str(error) if error is not None and str(error) else "the server closed the connection"
            self._fail(Lost(why, has_begun=self._has_begun))

    # --- for httptools

    def on_message_begin(self) -> None:
        if self._waiter is None:
            self._is_good = False  # a second answer to one request
        self._headers, self._content = [], []
        self._has_head = self._has_length = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._has_length = True

    def on_headers_complete(self) -> None:
        self._has_head = True
        if self._is_head:
            self._is_good = False  # the parser waits for a content that a HEAD never brings
            self._finish()

    def on_body(self, content: bytes) -> None:
        self._content.append(content)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            self._has_head = False
            return  # only a notice: the answer follows
        self._finish()

    def _finish(self) -> None:
        waiter, self._waiter = self._waiter, None
        if not self._parser.should_keep_alive():
            self._is_good = False
        if waiter is not None and not waiter.done():
            try:
                content = _plain(b"".join(self._content), self._headers)
            except zlib.error as error:
                waiter.set_exception(NoHttp(f"its content is not encoded as it says: {error}"))
            else:
                waiter.set_result(Answer(self._parser.get_status_code(), self._headers, content))

    def _fail(self, error: Exception) -> None:
        waiter, self._waiter = self._waiter, None
        self._is_good = False
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)


def _plain(content: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Undo an encoding that nobody asked for: some servers always have one."""
    for name, value in headers:
        if name.lower() == b"content-encoding" and value.strip().lower() in (b"gzip", b"x-gzip", b"deflate"):
            return zlib.decompress(content, wbits=47)
    return content
