"""A real HTTP server that does as it is told, and keeps a log of its own."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], bytes]
"""Status, headers and body."""


@dataclass(frozen=True)
class Request:
    """One request as the server saw it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    began: float
    ended: float = 0.0

    @property
    def id(self) -> str:
        return self.headers.get("idempotency-key", "")


@dataclass
class Server:
    """Answers with `answer`, and remembers every request that it took."""

    answer: Callable[[Request], Answer | None] = lambda _: (200, {}, b"")
    """None: the connection is reset without an answer."""
    port: int = 0
    tls: ssl.SSLContext | None = None
    taken: list[Request] = field(default_factory=list)
    """Requests that got a 2xx."""
    seen: list[Request] = field(default_factory=list)
    _server: ThreadingHTTPServer | None = None
    _open: set[socket.socket] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http{'' if self.tls is None else 's'}://127.0.0.1:{self.port}"

    @property
    def connected(self) -> list[socket.socket]:
        """The connections that clients keep open."""
        return list(self._open)

    def start(self) -> None:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.command, self.path, headers, body, time.time())
                server.seen.append(request)
                answer = server.answer(request)
                if answer is None:
                    self.close_connection = True
                    with contextlib.suppress(OSError):
                        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                        self.connection.close()
                    return
                status, more, content = answer
                if 200 <= status < 300:
                    server.taken.append(Request(self.command, self.path, headers, body, request.began, time.time()))
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **more}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_PUT = do_GET = _serve  # noqa: N815  # the names of the standard library

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True
            request_queue_size = 128

            def process_request(self, request: Any, client_address: Any) -> None:
                server._open.add(request)
                super().process_request(request, client_address)

            def shutdown_request(self, request: Any) -> None:
                server._open.discard(request)
                super().shutdown_request(request)

            def handle_error(self, *_: object) -> None:
                """A client that hangs up is no news."""

        self._server = Quiet(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
            for kept in list(self._open):  # a server that is gone answers nobody, also not on kept connections
                with contextlib.suppress(OSError):
                    kept.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def running(
    answer: Callable[[Request], Answer | None] | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[Server]:
    server = Server(tls=tls) if answer is None else Server(answer, tls=tls)
    server.start()
    try:
        yield server
    finally:
        server.stop()
