"""A record that ends its worker is found wherever it lies, and no other is blamed for it."""

from __future__ import annotations

import os

import pytest

import tidegate as tg
from tests.spark.conftest import World
from tests.spark.test_gaps import transaction
from tests.spark.test_to_kafka import make_out, values

POISON = 5


def ends_its_worker(value: int) -> int:
    if value == POISON:
        os._exit(7)
    return value


@pytest.mark.timeout(120)
def test_where_a_store_keeps_the_marks_too_the_poison_alone_is_set_aside(world: World) -> None:
    """A store takes a moment to begin: the round is live by then, and must still run one record alone."""
    out = make_out(world)
    world.produce(range(9))
    sink = tg.kafka(out, exactly_once=True)
    pipeline = world.pipeline().map(tg.json).map(ends_its_worker).sink(sink).on_error(tg.dead_letter())
    report = world.run(pipeline)
    assert [(copy.origin.offset, copy.error_type) for copy, _ in world.copies("dead")] == [(POISON, "WorkerDied")]
    assert sorted(map(int, values(world))) == [value for value in range(9) if value != POISON]
    assert (report.dead, world.mark()) == (1, 9)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("live", [True, False], ids=["live", "plain"])
def test_poison_behind_a_gap_is_found(world: World, live: bool) -> None:
    """The mark stands at the marker of a transaction, which is no record that could be blamed."""
    world.settings["live"] = live
    transaction(world, [1, 2], end="commit")
    transaction(world, [POISON, 6], end="commit")
    transaction(world, [7], end="commit")
    pipeline = world.pipeline().map(tg.json).map(ends_its_worker).sink(world.trail).on_error(tg.dead_letter())
    world.run(pipeline)
    assert [(copy.origin.offset, copy.error_type) for copy, _ in world.copies("dead")] == [(3, "WorkerDied")]
    assert sorted(set(world.trail.values())) == ["1", "2", "6", "7"]
    assert world.mark() == 8, "markers lie at 2, 5 and 7"
