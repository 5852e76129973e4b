"""Calls of the client that may never return, whatever time limit they were given."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")


class NeverReturned(Exception):
    """The call is still going on; its thread, and the client that it belongs to, are left behind."""


def within(seconds: float, name: str, call: Callable[[], T]) -> T:
    """Make a call in a thread of its own; raise `NeverReturned` where it takes longer than this.

    A thread cannot be ended from outside: whoever called must let go of the client, and in a worker end that soon.
    """
    answer: Future[T] = Future()

    def ask() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001  # raised where it was asked for
            answer.set_exception(error)

    threading.Thread(target=ask, name=name, daemon=True).start()
    if not wait([answer], seconds).done:
        raise NeverReturned(f"{name} did not return within {seconds:g} s")
    return answer.result()
