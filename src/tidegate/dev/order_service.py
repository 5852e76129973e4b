"""The order service of the demo: a real HTTP server that takes orders, refuses some, and can go away."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson


class OrderService:
    """Takes orders by POST and remembers which. What it has taken is what the demo counts as delivered.

    An order without an address is refused for good (422); one that is marked `slow` is refused once, with a 500.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: Counter[int] = Counter()
        self._refused_once: set[int] = set()
        self._open: set[socket.socket] = set()
        self._server: ThreadingHTTPServer | None = None
        self._most: int | None = None
        self.port = 0
        self.is_up = False

    @property
    def url(self) -> str:
        """Where orders go."""
        return f"http://127.0.0.1:{self.port}/orders"

    @property
    def taken(self) -> Counter[int]:
        """How often each order was taken."""
        with self._lock:
            return Counter(self._taken)

    def start(self, *, most: int | None = None) -> None:
        """Listen: at a free port the first time, at the same one ever after.

        Once it has taken `most` different orders it hangs up on everybody: it goes away while there is work left,
        however late whoever watches hears of it.
        """
        service = self
        self._most = most

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # connections are kept
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                service._connected(self.connection)

            def finish(self) -> None:
                with contextlib.suppress(OSError):
                    super().finish()
                service._left(self.connection)

            def do_POST(self) -> None:  # the name that http.server calls
                order = orjson.loads(self.rfile.read(int(self.headers["content-length"])))
                code, text = service._take(order)
                if code is None:
                    self.close_connection = True
                    return
                self.send_response(code)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def handle(self) -> None:
                with contextlib.suppress(OSError, ValueError):  # we hang up on callers when we go away
                    super().handle()

            def log_message(self, *_words: Any) -> None:
                """Say nothing: the demo tells the story."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="orders", daemon=True).start()
        self.is_up = True

    def stop(self) -> None:
        """Go away, and hang up on everybody."""
        if self._server is None:
            return
        self.is_up = False
        self._server.shutdown()
        self._server.server_close()
        self._server = None
        with self._lock:
            still_open = list(self._open)
        for connection in still_open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _take(self, order: dict[str, Any]) -> tuple[int | None, bytes]:
        """Return the answer; without a code: there is none."""
        number = int(order["id"])
        with self._lock:
            if self._most is not None and len(self._taken) >= self._most:
                return None, b""
            if order.get("address") is None:
                return 422, b"an order needs an address"
            if order.get("slow") and number not in self._refused_once:
                self._refused_once.add(number)
                return 500, b"the warehouse does not answer"
            self._taken[number] += 1
        return 200, b"taken"

    def _connected(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.add(connection)

    def _left(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)
