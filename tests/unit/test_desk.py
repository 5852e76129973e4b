"""Work for requests: bounded in number and in time."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tidegate.kafka.connection import Kafka
from tidegate.ops.cluster import Cluster
from tidegate.web.answers import Refused
from tidegate.web.desk import Desk

NOWHERE = Cluster(Kafka("localhost:1"), 1.0)


def test_each_thread_has_a_connection_of_its_own() -> None:
    desk = Desk(NOWHERE, workers=2)
    both = threading.Barrier(2, timeout=10)

    async def ask() -> tuple[int, int]:
        def own(cluster: Cluster) -> int:
            both.wait()
            return id(cluster)

        return await asyncio.gather(desk.ask(own), desk.ask(own))

    found = asyncio.run(ask())
    desk.close()
    assert len(set(found)) == 2


def test_what_takes_too_long_is_answered_and_its_place_is_free_when_it_ends() -> None:
    desk, go_on = Desk(NOWHERE, workers=1, most_waiting=0), threading.Event()

    async def ask() -> tuple[int, int, str]:
        with pytest.raises(Refused) as late:
            await desk.ask(lambda _: go_on.wait(10), seconds=0.05)
        with pytest.raises(Refused) as full:
            await desk.ask(lambda _: None)
        go_on.set()
        for _ in range(500):
            try:
                return late.value.status, full.value.status, await desk.ask(lambda _: "free")
            except Refused:
                await asyncio.sleep(0.01)
        raise AssertionError("the place was never free again")

    assert asyncio.run(ask()) == (504, 503, "free")
    desk.close()


def test_what_waits_too_long_is_never_begun() -> None:
    desk, go_on, begun = Desk(NOWHERE, workers=1), threading.Event(), list[str]()

    async def ask() -> None:
        first = asyncio.create_task(desk.ask(lambda _: go_on.wait(10)))
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="no answer"):
            await desk.ask(lambda _: begun.append("second"), seconds=0.05)
        go_on.set()
        await first
        await desk.ask(lambda _: begun.append("third"))

    asyncio.run(ask())
    desk.close()
    assert begun == ["third"]


def test_an_error_reaches_who_asked_even_if_it_is_a_timeout() -> None:
    desk = Desk(NOWHERE, workers=1)

    def fail(_: Cluster) -> None:
        raise TimeoutError("from below")

    with pytest.raises(TimeoutError, match="from below"):
        asyncio.run(desk.ask(fail))
    desk.close()


def test_after_its_end_it_takes_nothing() -> None:
    desk = Desk(NOWHERE, workers=1)
    desk.close()
    with pytest.raises(Refused, match="about to end"):
        asyncio.run(desk.ask(lambda _: None))
