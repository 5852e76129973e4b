"""No contender: what the server and the cores allow. Connections that send the same request again and again.

Options: connections (per process), processes, count. It reads nothing from Kafka and decodes nothing.
"""

from __future__ import annotations

import asyncio
import os
from urllib.parse import urlsplit

from bench.contenders.common import read_job, say_ready


class Sender(asyncio.Protocol):
    """One connection: the next request goes out when the answer is in."""

    def __init__(self, ids: list[int], done: asyncio.Future[None]) -> None:
        self._ids = ids
        self._done = done
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        assert data.startswith(b"HTTP/1.1 200"), data
        self._send()

    def _send(self) -> None:
        assert self._transport is not None
        if not self._ids:
            self._transport.close()
            if not self._done.done():
                self._done.set_result(None)
            return
        body = b'{"id": %d, "amount": 12.5}' % self._ids.pop()
        self._transport.write(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


async def send(host: str, port: int, ids: list[int], connections: int) -> None:
    loop = asyncio.get_running_loop()
    ends = [loop.create_future() for _ in range(connections)]
    for end in ends:
        await loop.create_connection(lambda end=end: Sender(ids, end), host, port)  # type: ignore[misc]  # a default
    await asyncio.gather(*ends)


def main() -> None:
    job = read_job()
    address, count, processes = urlsplit(job.url), job.option("count"), job.option("processes", 2)
    say_ready()
    children = []
    for number in range(1, processes):
        if (child := os.fork()) == 0:
            run(address.hostname or "", address.port or 0, range(number, count, processes), job.option("connections"))
            os._exit(0)
        children.append(child)
    run(address.hostname or "", address.port or 0, range(0, count, processes), job.option("connections"))
    for child in children:
        os.waitpid(child, 0)


def run(host: str, port: int, ids: range, connections: int) -> None:
    asyncio.run(send(host, port, list(ids), connections))


if __name__ == "__main__":
    main()
