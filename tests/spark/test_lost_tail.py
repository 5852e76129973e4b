"""A log that loses its tail under a run until caught up, as a leader that knew less leaves it, or a power cut."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tidegate as tg
from tests.spark.conftest import Beside, Trail, World
from tests.support import wait_until
from tidegate.dev.broker import Broker
from tidegate.engine import finish, lookout
from tidegate.errors import TidegateError
from tidegate.kafka.admin import Admin
from tidegate.records import Partition

COUNT = 60
ABOUT = 2_000
"""Bytes of a record."""


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "broker") as own:
        yield own


@pytest.fixture
def world(own_broker: Broker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(lookout, "LOOK_SECONDS", 0.5)
    monkeypatch.setattr(finish, "SHORT_SECONDS", 2.0)
    name = uuid.uuid4().hex[:8]
    # A reader that holds few records at a time has not read the tail when it is cut off.
    kafka = tg.Kafka(own_broker.bootstrap, {"queued.max.messages.kbytes": 1, "fetch.message.max.bytes": ABOUT + 500})
    admin = Admin(kafka, 20.0)
    admin.create_topic(f"t-{name}", 1)
    return World(kafka, admin, f"t-{name}", f"g-{name}", spark, Trail(tmp_path / f"trail-{name}"))


def cut_off(broker: Broker, topic: str) -> None:
    """Let a broker find half of a log when it comes back."""
    broker.kill()
    [segment] = (broker.folder / "data" / f"{topic}-0").glob("*.log")
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size // 2)
    broker.start()


@pytest.mark.timeout(180)
def test_a_run_until_caught_up_ends_where_its_log_has_lost_its_tail_and_says_so(
    world: World, own_broker: Broker
) -> None:
    world.produce(["first"])
    for _ in range(COUNT - 1):
        world.produce(["x" * ABOUT])
    held, gate = world.trail.path.with_suffix(".held"), world.trail.path.with_suffix(".gate")

    def hold(value: str) -> int:
        if value == "first":
            held.touch()
            while not gate.exists():
                time.sleep(0.02)
        return len(value)

    def end() -> int:
        at = Partition(world.topic, 0)
        try:
            return world.admin.ends([at])[at]
        except TidegateError:
            return COUNT

    def cut() -> None:
        wait_until(held.exists, within=60, what="the first record is in work")
        cut_off(own_broker, world.topic)
        wait_until(lambda: end() < COUNT, within=60, what="the log is shorter")
        gate.touch()

    beside = Beside(cut, stops=False)
    pipeline = world.pipeline().map(tg.text).map(hold).sink(world.trail)
    with pytest.raises(tg.RecordsLost, match=f"ended at {COUNT} when the run began") as caught:
        world.run(pipeline)
    beside.check()
    left = end()
    assert 0 < left < COUNT
    assert f"{COUNT - left} records are lost" in str(caught.value)
    assert sorted(set(world.trail.offsets())) == list(range(left))
    assert world.mark() == left

    world.produce(["new"])
    assert world.run(pipeline).settled == 1
