"""What the driver's loop does not do itself: tell the time, wait, ask in threads beside it.

A run uses this machine's clock and threads. The simulation (`tests/simulation`) has its own, so that it runs the same
loop in virtual time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Asker(Protocol):
    """Runs what would block the loop, one after the other."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Begin to ask; the future has the answer."""
        ...

    def shutdown(self, wait: bool = True) -> None:  # noqa: FBT001, FBT002  # as executors have it
        """Ask no more."""
        ...


def _thread(name: str) -> Asker:
    return ThreadPoolExecutor(1, thread_name_prefix=name)


@dataclass(frozen=True)
class Beside:
    """A steady clock, a way to wait, and threads to ask in."""

    now: Callable[[], float] = time.monotonic
    """Seconds that only grow."""
    sleep: Callable[[float], None] = time.sleep
    open_asker: Callable[[str], Asker] = _thread
    wall: Callable[[], float] = time.time
    """Seconds since 1970."""


THIS_MACHINE = Beside()
