"""An HTTP server that answers every POST after 5 ms. Usage: python -m bench.works.slow_server PORT_FILE

A GET is answered at once with what has come: the number of POSTs, of different ids, their sum, and the seconds from
the first to the last.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import ClassVar

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
DELAY_SECONDS = 0.005


class Seen:
    """What has come."""

    ids: ClassVar[set[int]] = set()
    count = 0
    first = last = 0.0


class Slow(asyncio.Protocol):
    """Just enough HTTP for keep-alive connections with a Content-Length."""

    def __init__(self) -> None:
        self._data = b""
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()

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
            body, self._data = self._data[end + 4 : end + 4 + length], self._data[end + 4 + length :]
            if head.startswith(b"get"):
                self._tell()
                continue
            Seen.last = time.monotonic()
            Seen.first = Seen.first or Seen.last
            Seen.count += 1
            Seen.ids.add(json.loads(body)["id"])
            self._loop.call_later(DELAY_SECONDS, self._answer)

    def _tell(self) -> None:
        facts = {"count": Seen.count, "ids": len(Seen.ids), "sum": sum(Seen.ids), "seconds": Seen.last - Seen.first}
        body = json.dumps(facts).encode()
        if self._transport is not None:
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    def _answer(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(ANSWER)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Slow, "127.0.0.1", 0, backlog=1024)
    port = Path(sys.argv[1])
    port.with_suffix(".new").write_text(str(server.sockets[0].getsockname()[1]), encoding="utf-8")
    port.with_suffix(".new").rename(port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
