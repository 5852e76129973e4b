"""The live channel: outcomes while a round runs, and "finish now" the other way.

Standard sockets, a token, plain JSON, never pickle. It carries no authority: a report is believed
exactly as far as an outcome is, and when the channel breaks the round stops reading at once and
nothing more is committed until it ends and answers through Spark. Where the driver cannot be reached
from the worker, plain rounds do the work.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import orjson

from tidegate.engine.wire import decode_outcome, encode_outcome
from tidegate.records import Limits, Outcome

logger = logging.getLogger("tidegate.live")

CONNECT_SECONDS = 1.0
"""One try of this length, beside the work."""
TRY_AGAIN_SECONDS = 60.0
"""A worker that could not reach the driver does not try again before."""
REPORT_SECONDS = 0.2
TICK_SECONDS = 1.0
SILENCE_SECONDS = 5.0
"""A driver that says nothing for this long is frozen or stuck: nobody would commit what is settled."""
MOST_BYTES = 4_000_000
SEND_SECONDS = 1.0
"""The driver's loop sends by itself: a worker that stands still for so long that its buffers are full is hung up on."""

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True)
class LiveAddress:
    """Where a round reaches its driver, and what bounds it while it does."""

    host: str
    port: int
    token: str
    limits: Limits


class LiveDesk:
    """The driver's side: takes reports from all rounds, tells rounds to finish."""

    def __init__(self, bind: str, advertise: str, limits: Limits, on_report: Callable[[Outcome], None]) -> None:
        self._on_report = on_report
        self._token = secrets.token_hex(16)
        self._listener = socket.create_server((bind, 0))
        self.address = LiveAddress(advertise, self._listener.getsockname()[1], self._token, limits)
        self._lock = threading.Lock()
        self._lines: dict[tuple[int, int], socket.socket] = {}
        self._finishing: set[tuple[int, int]] = set()
        self._permits: dict[int, int] = {}
        self._over: dict[int, int] = {}
        """The last round of each lane that has ended: the numbers of a lane's rounds grow."""
        self._ticked_at = 0.0
        threading.Thread(target=self._accept, name="live-desk", daemon=True).start()

    def finish(self, lane: int, round_number: int) -> None:
        """Tell a round to begin no more records. It may not have called yet: then it hears it when it does."""
        with self._lock:
            if (lane, round_number) in self._finishing or self._is_over(lane, round_number):
                return
            self._finishing.add((lane, round_number))
            line = self._lines.get((lane, round_number))
            if line is not None:
                _try_send(line, {"finish": True})

    def grant(self, permits: Mapping[int, int]) -> None:
        """Tell rounds, by their numbers, how many records they may have begun; one that calls later hears it then."""
        with self._lock:
            self._permits |= permits
            for (_, round_number), line in self._lines.items():
                if round_number in permits:
                    _try_send(line, {"permits": permits[round_number]})

    def tick(self, proofs: Callable[[int], Sequence[int]]) -> None:
        """Tell all rounds that the driver's loop turns, and what got through. Called as often as it likes."""
        now = time.monotonic()
        if now - self._ticked_at < TICK_SECONDS:
            return
        self._ticked_at = now
        with self._lock:
            for (_, round_number), line in self._lines.items():
                _try_send(line, {"tick": True, "proofs": list(proofs(round_number))})

    def hears(self, lane: int, round_number: int) -> bool:
        """Whether this round has called and is on the line."""
        with self._lock:
            return (lane, round_number) in self._lines

    def forget(self, lane: int, round_number: int) -> None:
        """The round has ended for Spark.

        A task of it that lives on all the same is hung up on, and reads no more; so is one that calls only now.
        """
        with self._lock:
            if (line := self._lines.get((lane, round_number))) is not None:
                _hang_up(line)
            self._finishing.discard((lane, round_number))
            self._permits.pop(round_number, None)
            self._over[lane] = max(round_number, self._over.get(lane, -1))

    def close(self) -> None:
        """Hang up on everybody."""
        _hang_up(self._listener)
        with self._lock:
            for line in self._lines.values():
                _hang_up(line)

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(line,), name="live-line", daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        caller = self._greet(line)
        if caller is None:
            _hang_up(line)
            return
        try:
            while (frame := _receive(line)) is not None:
                self._on_report(decode_outcome(frame))
        except (OSError, ValueError):
            logger.debug("a live line broke", extra={"action": "live_line_broken"})
        finally:
            with self._lock:
                if self._lines.get(caller) is line:
                    del self._lines[caller]
            _hang_up(line)

    def _greet(self, line: socket.socket) -> tuple[int, int] | None:
        """Let nobody in who does not know the token."""
        line.settimeout(CONNECT_SECONDS)
        try:
            hello = orjson.loads(_receive(line) or b"null")
            if not hmac.compare_digest(str(hello["token"]).encode(), self._token.encode()):
                return None
            caller = int(hello["lane"]), int(hello["round"])
            line.settimeout(None)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(SEND_SECONDS))
            with self._lock:
                is_over = self._is_over(*caller)
                finish = is_over or caller in self._finishing
                _send(line, {"finish": finish, "permits": self._permits.get(caller[1], 0)})
                if is_over:
                    return None
                self._lines[caller] = line  # only now: one that does not get this hears nothing
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return caller

    def _is_over(self, lane: int, round_number: int) -> bool:
        return round_number <= self._over.get(lane, -1)


class LiveLine:
    """A round's side of the channel. Used by the worker's main thread only."""

    def __init__(self, line: socket.socket, *, finish: bool, permits: int = 0) -> None:
        self._line = line
        self._heard_at = time.monotonic()
        self.finish_asked = finish
        self.permits = permits
        """How many records the round may have begun, where a rate was chosen."""
        self.proofs: list[int] = []
        """How many records got through the sinks, in all lanes, as far as the driver knows."""

    def fileno(self) -> int:
        """For waiting until the driver says something."""
        return self._line.fileno()

    def report(self, outcome: Outcome) -> bool:
        """Send what is settled so far; False if the channel is broken."""
        try:
            _send_bytes(self._line, encode_outcome(outcome))
        except OSError:
            return False
        return True

    def listen(self) -> bool:
        """Take what the driver said; False if it hung up."""
        try:
            frame = _receive(self._line)
            word = {} if frame is None else orjson.loads(frame)
            self.finish_asked |= bool(word.get("finish"))
            self.proofs = word.get("proofs", self.proofs)
            self.permits = word.get("permits", self.permits)
        except (OSError, ValueError):
            return False
        self._heard_at = time.monotonic()
        return frame is not None

    @property
    def is_silent(self) -> bool:
        """Whether the driver has said nothing for too long."""
        return time.monotonic() - self._heard_at > SILENCE_SECONDS

    def close(self) -> None:
        """Hang up."""
        _hang_up(self._line)


_unreachable_until = 0.0


def call_driver(address: LiveAddress | None, lane: int, round_number: int) -> LiveLine | None:
    """Reach the driver, or return None: then the round is a plain one."""
    global _unreachable_until  # noqa: PLW0603  # known per worker, for all its rounds
    if address is None or time.monotonic() < _unreachable_until:
        return None
    try:
        line = socket.create_connection((address.host, address.port), CONNECT_SECONDS)
    except OSError:
        _unreachable_until = time.monotonic() + TRY_AGAIN_SECONDS
        return None
    try:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _send(line, {"token": address.token, "lane": lane, "round": round_number})
        welcome = _receive(line)
        if welcome is not None:
            # A driver that does not read for this long is gone for the round's purposes.
            line.settimeout(CONNECT_SECONDS * 5)
            word = orjson.loads(welcome)
            return LiveLine(line, finish=bool(word.get("finish")), permits=word.get("permits", 0))
    except (OSError, ValueError):
        pass
    _hang_up(line)
    return None


def _send(line: socket.socket, what: dict[str, object]) -> None:
    _send_bytes(line, orjson.dumps(what))


def _try_send(line: socket.socket, what: dict[str, object]) -> None:
    """Send, or hang up: a worker that takes nothing stands still, and half a frame is worse than none."""
    try:
        _send(line, what)
    except OSError:
        _hang_up(line)


def _timeval(seconds: float) -> bytes:
    """Return a time as the system wants it for a socket."""
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))


def _send_bytes(line: socket.socket, frame: bytes) -> None:
    line.sendall(_LENGTH.pack(len(frame)) + frame)


def _receive(line: socket.socket) -> bytes | None:
    """Return one frame; None when the other side hung up."""
    head = _receive_exactly(line, _LENGTH.size)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > MOST_BYTES:
        raise ValueError(f"a frame of {length} bytes")
    return _receive_exactly(line, length)


def _receive_exactly(line: socket.socket, count: int) -> bytes | None:
    parts = b""
    while len(parts) < count:
        part = line.recv(count - len(parts))
        if not part:
            return None
        parts += part
    return parts


def _hang_up(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
    line.close()
