"""The worker's main thread watches the round, which runs in the worker's one work thread.

It ends the reading when the time is up and gives up on an attempt that takes longer than `timeout`,
so neither costs the hot path anything. The work thread stays the same for the worker's whole life:
users' connections may be bound to the thread that made them.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from tidegate.engine.round import Round


class WorkThread:
    """One thread that runs what it is given, one after the other."""

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[tuple[Callable[[], None], threading.Event]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="tidegate-work", daemon=True).start()

    def run(self, function: Callable[[], None]) -> threading.Event:
        """Run a function that never raises; the event is set when it has ended."""
        ended = threading.Event()
        self._given.put((function, ended))
        return ended

    def _serve(self) -> None:
        while True:
            function, ended = self._given.get()
            function()
            ended.set()


_thread: list[WorkThread] = []


def work_thread() -> WorkThread:
    """Return this worker's work thread, made after the fork."""
    if not _thread:
        _thread.append(WorkThread())
    return _thread[0]


def watch(round_: Round) -> bool:
    """Run a round to its end; False if a thread is stuck in it and the worker must go."""
    limits = round_.limits
    ended = work_thread().run(round_.work_through)
    read_until = time.monotonic() + limits.read_seconds
    look_every = min(0.5, limits.attempt_seconds / 4)
    seen, since = None, time.monotonic()
    while not ended.wait(min(look_every, max(0.01, read_until - time.monotonic()))):
        now = time.monotonic()
        if now >= read_until:
            round_.stop_reading = True
            read_until = now + 3600
        in_hand = round_.hand.message
        if in_hand is not seen:
            seen, since = in_hand, now
        elif in_hand is not None and now - since >= limits.attempt_seconds and round_.give_up(in_hand):
            return False
    return True
