"""Work that waits for Kafka or a database: in a few threads, with time limits, so that no request holds up another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from tidegate.errors import BrokerUnreachable
from tidegate.ops.cluster import Cluster
from tidegate.web.answers import Refused

if TYPE_CHECKING:
    from typing import Any

T = TypeVar("T")

WORKERS = 6
MOST_WAITING = 48
REQUEST_SECONDS = 30.0
CHANGE_SECONDS = 120.0


class Desk:
    """Takes work from the event loop, does it in threads, and hands the results back.

    Each thread has a connection of its own to the cluster: one that waits for a slow answer does not wait for others.
    """

    def __init__(self, cluster: Cluster, workers: int = WORKERS, most_waiting: int = MOST_WAITING) -> None:
        self._cluster = cluster
        self._own = threading.local()
        self._room = workers + most_waiting
        self._lock = threading.Lock()
        self._taken = 0
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="tidegate-desk")

    async def ask(self, work: Callable[[Cluster], T], *, seconds: float = REQUEST_SECONDS) -> T:
        """Do something that may block, and return what it brings.

        After `seconds` the request is answered that it took too long; the work itself ends by its own limits.
        """
        future = self._take(work)
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), seconds)
        except TimeoutError:
            if future.done():  # the work itself ran out of time somewhere
                raise
            future.cancel()
            raise Refused(
                504, "took_too_long", f"no answer after {seconds:g}s", "ask for less, or look whether Kafka is well"
            ) from None
        except asyncio.CancelledError:
            future.cancel()
            raise

    def close(self) -> None:
        """Begin nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _take(self, work: Callable[[Cluster], T]) -> Future[T]:
        with self._lock:
            if self._taken >= self._room:
                raise Refused(503, "busy", "too many requests wait already", "ask again in a few seconds")
            self._taken += 1
        try:
            future = self._pool.submit(self._do, work)
        except RuntimeError:
            self._done(None)
            raise Refused(503, "stopping", "the server is about to end", "ask again when it is back") from None
        future.add_done_callback(self._done)
        return future

    def _do(self, work: Callable[[Cluster], T]) -> T:
        if not hasattr(self._own, "cluster"):
            self._own.cluster = Cluster(self._cluster.kafka, self._cluster.timeout_seconds)
        cluster: Cluster = self._own.cluster
        try:
            return work(cluster)
        except BrokerUnreachable:
            # After an outage a connection may never find the coordinators of groups again: the next work gets another.
            del self._own.cluster
            raise

    def _done(self, _future: Future[Any] | None) -> None:
        with self._lock:
            self._taken -= 1
