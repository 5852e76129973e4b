"""An application behind an address: in a thread of its own, until it is stopped."""

from __future__ import annotations

import errno
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import uvicorn

from tidegate.errors import SettingsError
from tidegate.web.guard import is_loopback

if TYPE_CHECKING:
    from fastapi import FastAPI

_START_SECONDS = 30.0
_LAST_REQUESTS_SECONDS = 5


@dataclass(frozen=True)
class Running:
    """A server that answers."""

    host: str
    port: int
    _server: uvicorn.Server
    _thread: threading.Thread

    @property
    def address(self) -> str:
        """The URL to open."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def stop(self, within_seconds: float = 10.0) -> None:
        """Take no more requests, and let those that run come to their end."""
        self._server.should_exit = True
        self._thread.join(within_seconds)


def start_in_thread(app: FastAPI, host: str = "127.0.0.1", port: int = 0) -> Running:
    """Serve, and return when the server answers. Port 0: any that is free.

    Beyond this machine only with an operator's token.
    """
    if not is_loopback(host) and not app.state.services.tokens.are_set:
        raise SettingsError(
            f"{host} can be reached from other machines, and there is no token",
            "set token (TIDEGATE_TOKEN), or leave the host out to serve this machine alone",
        )
    listening = _listen(host, port)
    config = uvicorn.Config(
        app,
        lifespan="on",
        # Whatever else is installed: by default the server would choose other parts where it finds them.
        http="h11",
        loop="asyncio",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_LAST_REQUESTS_SECONDS,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), name="tidegate-web", daemon=True)
    thread.start()
    _wait_for(server, thread)
    return Running(host, listening.getsockname()[1], server, thread)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise SettingsError(f"port {port} of {host} is taken", "choose another one, or end who has it") from None
        if error.errno == errno.EACCES:
            raise SettingsError(f"port {port} may not be used by this user", "choose one above 1023") from None
        raise SettingsError(f"{host}:{port} cannot be served: {error.strerror or error}", "mend host or port") from None
    listening.set_inheritable(False)
    return listening


def _wait_for(server: uvicorn.Server, thread: threading.Thread) -> None:
    waited = threading.Event()
    rounds = int(_START_SECONDS / 0.02)
    for _ in range(rounds):
        if server.started:
            return
        if not thread.is_alive():
            break
        waited.wait(0.02)
    raise SettingsError("the server did not start", "see its log")
