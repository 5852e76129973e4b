"""The worker's main thread watches the round, which runs in the worker's one work thread.

It ends the reading when the time is up, gives up on an attempt that takes longer than `timeout`, and
reports over the live channel, so none of these costs the hot path anything. The work thread stays the
same for the worker's whole life: users' connections may be bound to the thread that made them.
"""

from __future__ import annotations

import os
import queue
import select
import threading
import time
from collections.abc import Callable

from tidegate.engine.channel import REPORT_SECONDS, LiveLine
from tidegate.engine.round import Round
from tidegate.records import Limits


class WorkThread:
    """One thread that runs what it is given, one after the other."""

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._ended, self._ending = os.pipe()
        threading.Thread(target=self._serve, name="tidegate-work", daemon=True).start()

    def run(self, function: Callable[[], None]) -> None:
        """Begin a function that never raises. The last one must have ended."""
        self._given.put(function)

    def wait(self, seconds: float, line: LiveLine | None = None) -> tuple[bool, bool]:
        """Wait for its end, or for a word on the line: tell which of the two is there."""
        # Not `select`, which takes no descriptor above 1023: a worker may hold that many connections.
        watched = select.poll()
        watched.register(self._ended, select.POLLIN)
        if line is not None:
            watched.register(line, select.POLLIN)
        ready = {descriptor for descriptor, _ in watched.poll(max(0.0, seconds) * 1000)}
        has_ended = self._ended in ready
        if has_ended:
            os.read(self._ended, 1)
        return has_ended, line is not None and line.fileno() in ready

    def _serve(self) -> None:
        while True:
            function = self._given.get()
            function()
            os.write(self._ending, b".")


_thread: list[WorkThread] = []


def work_thread() -> WorkThread:
    """Return this worker's work thread, made after the fork."""
    if not _thread:
        _thread.append(WorkThread())
    return _thread[0]


def watch(round_: Round, call: Callable[[], LiveLine | None], live_limits: Limits | None) -> bool:
    """Run a round to its end; False if a thread is stuck in it and the worker must go."""
    thread = work_thread()
    round_.is_calling = live_limits is not None
    thread.run(round_.work_through)
    line = call()
    if line is not None and live_limits is not None:
        round_.go_live(live_limits)
    round_.is_calling = False
    began = time.monotonic()
    look_every = min(REPORT_SECONDS if line else 0.5, round_.limits.attempt_seconds / 4)
    try:
        while True:
            left = began + round_.limits.read_seconds - time.monotonic()
            has_ended, has_word = thread.wait(min(look_every, left) if left > 0 else look_every, line)
            if has_ended:
                return round_.is_healthy
            if time.monotonic() >= began + round_.limits.read_seconds:
                round_.stop_reading()
            if line is not None and not _talk(round_, line, has_word=has_word):
                line.close()
                line = None
            if round_.give_up_late():
                return False
    finally:
        if line is not None:
            line.close()


def _talk(round_: Round, line: LiveLine, *, has_word: bool) -> bool:
    """Report and listen; when the channel is broken or the driver is silent the round stops reading at once."""
    heard = line.listen() if has_word else not line.is_silent
    outcome = round_.report()
    alive = heard and (outcome is None or line.report(outcome))
    round_.learn(line.proofs, line.permits)
    if not alive or line.finish_asked:
        round_.stop_reading()
    return alive
