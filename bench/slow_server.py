"""An HTTP server that answers every POST after 5 ms. Usage: slow_server.py PORT_FILE

A GET is answered at once with how many POSTs have come since the last GET, and the seconds from the first to the last.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
DELAY_SECONDS = 0.005


class Seen:
    """What has come since somebody asked."""

    count = 0
    first = last = 0.0


class Slow(asyncio.Protocol):
    """Just enough HTTP for keep-alive connections with a Content-Length."""

    def __init__(self) -> None:
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end].lower()
            at = head.find(b"content-length:")
            length = 0 if at < 0 else int(head[at + 15 :].split(b"\r\n", 1)[0])
            if len(self._data) < end + 4 + length:
                return
            self._data = self._data[end + 4 + length :]
            if head.startswith(b"get"):
                self._tell()
                continue
            Seen.last = time.monotonic()
            Seen.first = Seen.first if Seen.count else Seen.last
            Seen.count += 1
            asyncio.get_running_loop().call_later(DELAY_SECONDS, self._answer)

    def _tell(self) -> None:
        body = f"{Seen.count} {Seen.last - Seen.first:.6f}".encode()
        Seen.count = 0
        if self._transport is not None:
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    def _answer(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(ANSWER)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Slow, "127.0.0.1", 0, backlog=1024)
    Path(sys.argv[1]).write_text(str(server.sockets[0].getsockname()[1]), encoding="utf-8")
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
