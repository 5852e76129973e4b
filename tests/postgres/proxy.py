"""Between a client and the server: it loses the answer to a commit, or falls silent, when it is told to."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Literal

_COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"


class Proxy:
    """A socket in a folder of its own, as libpq looks for it; both directions are passed on by threads.

    Without a folder: a port of this machine, since Java knows no other sockets.
    """

    def __init__(self, folder: Path | None, server: Path) -> None:
        self.folder = folder
        self._server = str(server / ".s.PGSQL.5432")
        self.at_commit: Literal["pass", "lose the answer", "hang up", "fall silent"] = "pass"
        self.silent = threading.Event()
        self.is_away = False
        self.hits = self.turned_away = 0
        self._listening = socket.socket(socket.AF_INET if folder is None else socket.AF_UNIX)
        self._listening.bind(("127.0.0.1", 0) if folder is None else str(folder / ".s.PGSQL.5432"))
        self._listening.listen()
        self._open: list[socket.socket] = [self._listening]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    def go_away(self) -> None:
        """Hang up on everybody, and on who comes, until `is_away` is taken back."""
        self.is_away = True
        for one in self._open[1:]:
            _hang_up(one)

    def close(self) -> None:
        self.silent.clear()
        for one in self._open:
            _hang_up(one)
        for thread in self._threads:
            thread.join(10)
        for one in self._open:
            one.close()

    def _start(self, run: object, *words: object) -> None:
        thread = threading.Thread(target=run, args=words, daemon=True)  # type: ignore[arg-type]  # a method of ours
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                self._open += [client, server]
                try:
                    server.connect(self._server)
                except OSError:  # the server is down: so say we, and go on
                    _hang_up(client)
                    continue
                if self.is_away:
                    self.turned_away += 1
                    _hang_up(client)
                    continue
                self._start(self._requests, client, server)
                self._start(self._answers, client, server)

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while part := client.recv(65536):
                if part == _COMMIT and self.at_commit != "pass":
                    self.hits += 1
                    if self.at_commit == "hang up":
                        break
                    if self.at_commit == "fall silent":
                        continue
                    _hang_up(client, socket.SHUT_WR)  # before the server can answer
                if self.silent.is_set():
                    self.hits += 1
                    continue  # swallowed: nobody will ever answer
                server.sendall(part)
        _hang_up(server)
        _hang_up(client)

    def _answers(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while part := server.recv(65536):
                client.sendall(part)
        _hang_up(client)


def _hang_up(one: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    with suppress(OSError):
        one.shutdown(how)
