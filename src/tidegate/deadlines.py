"""One time limit for many waits on an event loop.

`asyncio.timeout` sets a timer for each wait and drops it again: for records that go to a server that is a good part
of what each of them costs. Limits that all last equally long need one timer between them, for whichever began first.
"""

from __future__ import annotations

import asyncio
from types import TracebackType


class Deadlines:
    """Makes limits of one length. Used on one event loop."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._running: dict[Limit, None] = {}
        """An ordered set: who began first is over first."""
        self._timer: asyncio.TimerHandle | None = None

    def limit(self) -> Limit:
        """Limit what is awaited in a `with` block; beyond it, the block raises `TimeoutError`."""
        return Limit(self)

    def begin(self, limit: Limit, loop: asyncio.AbstractEventLoop) -> None:
        """For a limit: its time begins."""
        limit.ends_at = loop.time() + self.seconds
        self._running[limit] = None
        if self._timer is None:
            self._timer = loop.call_at(limit.ends_at, self._look, loop)

    def end(self, limit: Limit) -> None:
        """For a limit: its block is left."""
        self._running.pop(limit, None)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        while self._running:
            first = next(iter(self._running))
            if first.ends_at > loop.time():
                self._timer = loop.call_at(first.ends_at, self._look, loop)
                return
            del self._running[first]
            first.expire()


class Limit:
    """One wait. As `asyncio.timeout`: also where limits are nested, or the task is cancelled from outside."""

    __slots__ = ("_before", "_deadlines", "_task", "ends_at", "has_expired")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._task: asyncio.Task[object] | None = None
        self._before = 0
        self.ends_at = 0.0
        self.has_expired = False

    def expire(self) -> None:
        """Its time is up."""
        if self._task is not None:
            self.has_expired = True
            self._task.cancel()

    def __enter__(self) -> Limit:
        """Let its time begin."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a limit belongs into a task")
        self._task, self._before = task, task.cancelling()
        self._deadlines.begin(self, loop)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Let its time end; a cancellation that was ours becomes a `TimeoutError`."""
        task, self._task = self._task, None
        if not self.has_expired:
            self._deadlines.end(self)
        elif task is not None and task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError from error
