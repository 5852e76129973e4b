"""Starts that fail, again and again in one process that lives on: each gives back what it took."""

from __future__ import annotations

import gc
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import tidegate as tg
from tests.hygiene import Holdings, files_in, own_holdings
from tests.spark.conftest import World
from tests.support import wait_until

Start = Callable[[World], object]


def plain(world: World) -> tg.Pipeline:
    return world.pipeline().map(tg.json).sink(world.trail)


def no_such_topic(world: World) -> object:
    return world.run(tg.from_kafka("no-such-topic", group=world.group, kafka=world.kafka).sink(print))


def no_broker(world: World) -> object:
    nobody = tg.Kafka("127.0.0.1:1")
    pipeline = tg.from_kafka(world.topic, group=world.group, kafka=nobody).sink(print)
    return pipeline.run(until="caught-up", spark=world.spark, settings={"broker_timeout": "1s"})


def a_setting_that_is_none(world: World) -> object:
    return plain(world).run(until="caught-up", spark=world.spark, settings={"stop_budget": "1s"})


def a_session_that_the_broker_refuses(world: World) -> object:
    more = {"session_timeout": "10h", "broker_timeout": "5s"}
    return plain(world).run(until="caught-up", spark=world.spark, settings=more)


def no_place_to_start(world: World) -> object:
    return world.run(world.pipeline(starting="none").sink(world.trail))


def no_database(world: World) -> object:
    return world.run(world.pipeline().sink(tg.postgres("postgresql://nobody@127.0.0.1:1/none", table="t")))


def no_output(world: World) -> object:
    return world.run(world.pipeline().sink(tg.kafka("no-such-output", exactly_once=True)))


def what_cannot_be_sent(world: World) -> object:
    lock = threading.Lock()
    return world.run(world.pipeline().map(lambda _: lock.locked()).sink(world.trail))


def what_cannot_be_unpickled(world: World) -> object:
    world.produce([b"1"])
    return world.run(world.pipeline().map(tg.json).sink(Unbuilt()))


class Unbuilt:
    """A sink that breaks where it is unpickled."""

    def write(self, _: object) -> None: ...

    def __reduce__(self) -> tuple[object, ...]:
        return (exec, ("raise ImportError('no such thing here')",))


STARTS: list[Start] = [
    no_such_topic,
    no_broker,
    a_setting_that_is_none,
    a_session_that_the_broker_refuses,
    no_place_to_start,
    no_database,
    no_output,
    what_cannot_be_sent,
    what_cannot_be_unpickled,
]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("start", STARTS, ids=lambda start: start.__name__)
def test_a_start_that_fails_gives_back_all_that_it_took(
    world: World, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))

    def fail_once() -> None:
        with pytest.raises(tg.TidegateError) as caught:
            start(world)
        assert caught.value.cure

    fail_once()  # what a first one makes for good: Spark's connections
    gc.collect()
    before = own_holdings()
    fail_once()
    fail_once()
    after: list[Holdings] = []

    def is_clean() -> bool:
        gc.collect()
        after.append(own_holdings())
        return not after[-1].beyond(before)

    try:
        wait_until(is_clean, within=15, what="the end of what two more took")
    except AssertionError as error:
        raise AssertionError(f"{error}; left are {after[-1].beyond(before)}") from None
    assert files_in(place) == []
