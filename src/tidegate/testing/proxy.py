"""A TCP proxy in front of Kafka, one node or several, which delays, refuses and cuts, and counts how often it did.

A broker tells its clients where to go on, so it has to name the proxy, which is therefore made first:

    with KafkaProxy() as proxy, Broker(settings={"advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}"}) as broker:
        proxy.forward_to(broker.bootstrap)
        with proxy.under(RefuseCommits(COORDINATOR_LOAD_IN_PROGRESS)) as refusal:
            ...
        assert refusal.struck
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Collection, Iterator
from typing import Self, TypeVar

from tidegate.testing.requests import METADATA, Request, is_commit, read_request, refused_commit, without_brokers

HOST = "127.0.0.1"


class Disturbance:
    """Something that happens to requests while it is on. Switched on and off by a proxy, as often as wanted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self.struck = 0
        """How many requests it has struck, those included that it still holds."""

    def begin(self) -> None:
        """It is on from here."""
        self._is_over.clear()

    def end(self) -> None:
        """It is off from here, also for what it still holds."""
        self._is_over.set()

    def meet(self, request: Request) -> bytes | None:  # noqa: ARG002  # for those that do something
        """Do it to a request: return the answer that the client gets, or None to pass the request on."""
        return None

    def amend(self, request: Request, answer: bytes) -> bytes:  # noqa: ARG002  # as above
        """Do it to a broker's answer: return the one that the client gets."""
        return answer

    def _strike(self) -> None:
        with self._lock:
            self.struck += 1


class _Holding(Disturbance):
    """Something that keeps requests of some kinds waiting, or their answers."""

    def __init__(self, api_keys: Collection[int], *, seconds: float) -> None:
        super().__init__()
        self._api_keys = frozenset(api_keys)
        self._seconds = seconds
        self._held = 0

    @property
    def is_holding(self) -> bool:
        """Whether one waits in this moment."""
        return self._held > 0

    def _hold(self, request: Request) -> None:
        if request.api_key not in self._api_keys or self._is_over.is_set():
            return
        with self._lock:
            self.struck += 1
            self._held += 1
        self._is_over.wait(self._seconds)
        with self._lock:
            self._held -= 1


class Delay(_Holding):
    """Requests of these api keys reach the broker so many seconds later; never, where they are cut off meanwhile.

    Those behind them on the same connection wait too, heartbeats included, as they do at a slow broker.
    """

    def meet(self, request: Request) -> bytes | None:
        """Hold the request back, then pass it on."""
        self._hold(request)
        return None


class DelayAnswers(_Holding):
    """The broker does what these api keys ask for; its answers come so many seconds later, or are lost in a cut."""

    def amend(self, request: Request, answer: bytes) -> bytes:
        """Hold the answer back, then pass it on."""
        self._hold(request)
        return answer


class RefuseCommits(Disturbance):
    """Commits, those in transactions too, are answered with this error of Kafka's; the broker never sees them."""

    def __init__(self, error: int) -> None:
        super().__init__()
        self._error = error

    def meet(self, request: Request) -> bytes | None:
        """Refuse a commit, pass everything else on."""
        if not is_commit(request) or self._is_over.is_set():
            return None
        self._strike()
        return refused_commit(request, self._error)


class HideBrokers(Disturbance):
    """Whoever asks who the brokers are hears that there are none, as from one that its controller has shut out."""

    def amend(self, request: Request, answer: bytes) -> bytes:
        """Take the brokers out of what a broker says of its cluster."""
        if request.api_key != METADATA or self._is_over.is_set():
            return answer
        self._strike()
        return without_brokers(request, answer)


AnyDisturbance = TypeVar("AnyDisturbance", bound=Disturbance)


class KafkaProxy:
    """Carries connections to a broker, or to each of several nodes, in threads of this process.

    Each connection has one request at a time on its way, as inside a broker: answers keep their order.
    Not for producers that want no answer (`acks=0`).
    """

    def __init__(self, nodes: int = 1) -> None:
        self._listeners = [socket.create_server((HOST, 0)) for _ in range(nodes)]
        self._brokers: list[tuple[str, int]] = []
        self._disturbances: list[Disturbance] = []
        self._is_unplugged = False
        self._connections: dict[socket.socket, socket.socket] = {}
        self._lock = threading.Lock()
        for number in range(nodes):
            threading.Thread(target=self._accept, args=(number,), name="kafka-proxy", daemon=True).start()

    @property
    def addresses(self) -> list[str]:
        """The address of each node for clients, which the node must advertise."""
        return [f"{HOST}:{one.getsockname()[1]}" for one in self._listeners]

    @property
    def bootstrap(self) -> str:
        """The address for clients, and the one that the broker must advertise; of several nodes, all."""
        return ",".join(self.addresses)

    def forward_to(self, bootstrap: str) -> None:
        """Name the broker, or all nodes in order; until then every connection is closed at once."""
        places = [one.rpartition(":") for one in bootstrap.split(",")]
        self._brokers = [(host, int(port)) for host, _, port in places]

    @contextlib.contextmanager
    def under(self, disturbance: AnyDisturbance) -> Iterator[AnyDisturbance]:
        """Disturb every request from here on, until the block ends."""
        disturbance.begin()
        self._disturbances = [*self._disturbances, disturbance]
        try:
            yield disturbance
        finally:
            self._disturbances = [one for one in self._disturbances if one is not disturbance]
            disturbance.end()

    def cut(self) -> int:
        """End every connection, whatever is on its way; clients may connect again. Return how many there were."""
        with self._lock:
            cut = list(self._connections.items())
        for pair in cut:
            for end in pair:
                # One of the two may be gone already.
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        return len(cut)

    def unplug(self) -> int:
        """End every connection and take no new one until `plug`. Return how many there were."""
        self._is_unplugged = True
        return self.cut()

    def plug(self) -> None:
        """Take connections again."""
        self._is_unplugged = False

    def close(self) -> None:
        """Take no more connections, and end those that there are."""
        # Closing alone leaves the thread in its accept.
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for disturbance in self._disturbances:
            disturbance.end()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self, number: int) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listeners[number].accept()
                line = threading.Thread(target=self._serve, args=(client, number), name="kafka-proxy-line", daemon=True)
                line.start()

    def _serve(self, client: socket.socket, number: int) -> None:
        # Either side may hang up at any time: the other is hung up on, too.
        with client, contextlib.suppress(OSError):
            if not self._brokers or self._is_unplugged:
                return
            with socket.create_connection(self._brokers[number]) as broker:
                with self._lock:
                    self._connections[client] = broker
                if self._is_unplugged:  # since we looked
                    self.cut()
                try:
                    self._carry(client, broker)
                finally:
                    with self._lock:
                        del self._connections[client]

    def _carry(self, client: socket.socket, broker: socket.socket) -> None:
        while (frame := _read_frame(client)) is not None:
            request = read_request(frame)
            answer = self._disturb(request)
            if answer is None:
                _write_frame(broker, frame)
                answer = _read_frame(broker)
            if answer is None:
                return
            for disturbance in self._disturbances:
                answer = disturbance.amend(request, answer)
            _write_frame(client, answer)

    def _disturb(self, request: Request) -> bytes | None:
        for disturbance in self._disturbances:
            answer = disturbance.meet(request)
            if answer is not None:
                return answer
        return None


def _read_frame(end: socket.socket) -> bytes | None:
    """Return what stands behind the next length; None where the connection ends."""
    length = _read(end, 4)
    return None if length is None else _read(end, int.from_bytes(length))


def _read(end: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = end.recv(min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


def _write_frame(end: socket.socket, frame: bytes) -> None:
    end.sendall(len(frame).to_bytes(4) + frame)
