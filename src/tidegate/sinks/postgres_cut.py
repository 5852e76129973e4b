"""Cutting a connection to PostgreSQL from this side, when its server takes longer than our patience.

No step here may wait for the server: it may be the server that is stopped. And a call of libpq that blocks holds
the interpreter's lock meanwhile, so that the whole worker would stand with it.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.pq import PollingStatus
from psycopg.pq.abc import PGcancelConn

CANCEL_SECONDS = 5.0
"""How long we try to tell a server that nobody waits for its answer any more."""
_POLLED = {PollingStatus.READING: select.POLLIN, PollingStatus.WRITING: select.POLLOUT}


@contextmanager
def cut_when_silent(connection: psycopg.Connection[Any], seconds: float, tell: Callable[[], None]) -> Iterator[None]:
    """End any wait of the connection after this time, by losing it; tell that it was done from here."""
    # Keepalives and the server's timeouts do not help against a server process that is stopped or swapped out:
    # its machine still answers. So the socket is shut from here, which ends any wait with a lost connection.
    end = socket.socket(fileno=os.dup(connection.fileno()))  # of its own: the client may close the other meanwhile
    cancel = _cancelling(connection)

    def cut() -> None:
        tell()
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        # The server would work on, through all that it was sent, and hold its locks against whoever comes next.
        if cancel is not None:
            with suppress(psycopg.Error, OSError):
                ask_to_stop(cancel)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        end.close()


def _cancelling(connection: psycopg.Connection[Any]) -> PGcancelConn | None:
    """Return the means to end what the server works on, taken while the connection is nobody else's.

    Before libpq 17 the only means is a call that waits for the server: there its own time limits must do.
    """
    try:
        return connection.pgconn.cancel_conn()
    except psycopg.NotSupportedError:
        return None


def ask_to_stop(cancel: PGcancelConn, within: float = CANCEL_SECONDS) -> bool:
    """Ask the server to end what it works on, over a connection of its own; tell whether it has heard."""
    until = time.monotonic() + within
    try:
        cancel.start()
        while (wanted := PollingStatus(cancel.poll())) in _POLLED:
            waiting = select.poll()  # not select.select: a worker may hold more than a thousand descriptors
            waiting.register(cancel.socket, _POLLED[wanted])
            if not waiting.poll(max(0.0, until - time.monotonic()) * 1000):
                return False
        return wanted == PollingStatus.OK
    finally:
        cancel.finish()
