"""A connection to a name that may have several addresses, of which some may not answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

SECOND_ADDRESS_SECONDS = 0.25
"""So long an address may be silent before the next is tried beside it."""

Info = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]


async def connected(host: str, port: int) -> socket.socket:
    """Return a socket that is connected to whichever address answers first; raise what the first one said.

    asyncio can do this by itself, uvloop cannot: there a name whose first address is silent would be out of reach.
    """
    loop = asyncio.get_running_loop()
    infos = in_turn(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    if len(infos) == 1:
        return await _open(infos[0])
    tries: list[asyncio.Task[socket.socket]] = []
    try:
        for number, info in enumerate(infos, 1):
            tries.append(loop.create_task(_open(info)))
            if (found := await _first(tries, SECOND_ADDRESS_SECONDS if number < len(infos) else None)) is not None:
                return found
        raise tries[0].exception() or OSError(f"{host} has no address")
    finally:
        for one in tries:
            one.add_done_callback(_close_unused)
            one.cancel()


def in_turn(infos: Sequence[Info]) -> list[Info]:
    """Return addresses with the kinds of the internet taking turns, the preferred one first."""
    first = [info for info in infos if info[0] == infos[0][0]]
    others = [info for info in infos if info[0] != infos[0][0]]
    return [one for pair in zip_longest(first, others) for one in pair if one is not None]


async def _first(tries: list[asyncio.Task[socket.socket]], seconds: float | None) -> socket.socket | None:
    """Wait until one of these is connected, all have failed, or the time is up."""
    loop = asyncio.get_running_loop()
    deadline = None if seconds is None else loop.time() + seconds
    while waiting := [one for one in tries if not one.done()]:
        left = None if deadline is None else max(0.0, deadline - loop.time())
        done, _ = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            if one.exception() is None:
                tries.remove(one)
                return one.result()
        if not done:
            return None
    return None


async def _open(info: Info) -> socket.socket:
    family, kind, protocol, _, address = info
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setblocking(False)  # noqa: FBT003  # the socket has it so
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await asyncio.get_running_loop().sock_connect(opened, address)
    except BaseException:
        opened.close()
        raise
    return opened


def _close_unused(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()
