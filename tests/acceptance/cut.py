"""Between a program and a server: all connections end at once, as often as it is told to."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class Cut:
    """A port of this machine that leads to another; both directions are passed on by threads."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._listener)
        self.cut()

    def cut(self) -> int:
        """End all connections; return how many there were."""
        with self._lock:
            ended, self._open = self._open, []
        for one in ended:
            _end(one)
        return len(ended) // 2

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                with self._lock:
                    self._open += [near, far]
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(65536):
                target.sendall(part)
        _end(source)
        _end(target)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
