"""Runs one after the other in one process: each gives back the threads and descriptors that it took."""

from __future__ import annotations

import gc

import pytest

import tidegate as tg
from tests.hygiene import Holdings, own_holdings
from tests.spark.conftest import World
from tests.support import wait_until


@pytest.mark.timeout(180)
def test_a_run_gives_back_every_thread_and_descriptor(world: World) -> None:
    pipeline = world.pipeline().map(tg.json).sink(world.trail).on_error(tg.retry(1, wait="1ms"), tg.dead_letter())

    def run_once() -> Holdings:
        world.produce([b"1", b"no json", b"2"])
        assert world.run(pipeline).dead == 1
        gc.collect()
        return own_holdings()

    run_once()  # what a first run makes for good: Spark's connections, one per lane
    before = run_once()
    after: list[Holdings] = []

    def is_clean() -> bool:
        gc.collect()
        after.append(own_holdings())
        return not after[-1].beyond(before)

    run_once()
    run_once()
    # The client's own threads end a moment after it is closed.
    try:
        wait_until(is_clean, within=15, what="the end of what two more runs took")
    except AssertionError as error:
        raise AssertionError(f"{error}; left are {after[-1].beyond(before)}") from None
