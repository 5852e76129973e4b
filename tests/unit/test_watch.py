"""The worker's main thread waits for its work thread, whatever else the worker holds."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator

import pytest

from tidegate.engine import channel
from tidegate.engine.channel import LiveDesk, call_driver
from tidegate.engine.watch import WorkThread
from tidegate.records import Limits

MANY = 1100
"""More than `select` can watch."""


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """As a worker has that keeps many connections."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MANY
    if before[1] not in (resource.RLIM_INFINITY,) and before[1] < wanted:
        pytest.skip(f"this machine allows a process {before[1]} descriptors only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], wanted), before[1]))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(MANY)]
    yield
    for one in held:
        os.close(one)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("many_descriptors")
def test_a_round_is_watched_in_a_worker_that_holds_a_thousand_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_unreachable_until", 0.0)
    desk = LiveDesk("127.0.0.1", "127.0.0.1", Limits(60, 60, 60, 20), lambda _: None)
    line = call_driver(desk.address, 0, 1)
    assert line is not None
    assert line.fileno() > MANY
    thread, go_on = WorkThread(), threading.Event()
    thread.run(lambda: assert_true(go_on.wait(30)))
    assert thread.wait(0.01, line) == (False, False)
    desk.finish(0, 1)
    assert thread.wait(30, line) == (False, True)
    go_on.set()
    assert thread.wait(30) == (True, False)
    line.close()
    desk.close()


def assert_true(value: bool) -> None:
    assert value
