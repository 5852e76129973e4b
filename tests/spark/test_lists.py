"""Lists into sinks: full or in time, halved where they fail, in the order that was promised."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.spark.conftest import World


class Notes:
    """What a sink got, one line per call, in whichever worker."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, what: object) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(what) + "\n")

    def all(self) -> list[list[Any]]:
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("kind", ["threads", "loop"])
@pytest.mark.parametrize("order", ["partition", "none"])
def test_lists_go_to_the_sink_full_or_in_time_and_a_culprit_is_found(
    make_world: Callable[..., World], tmp_path: Path, kind: str, order: str
) -> None:
    world = make_world(2)
    path = tmp_path / "lists"
    for partition in range(2):
        world.produce([b"bad" if one == 17 else b"%d" % one for one in range(50)], partition)

    def write(values: list[tg.Record]) -> None:
        if any(record.value == b"bad" for record in values):
            raise ValueError("something in here")
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([(one.partition, one.offset) for one in values]) + "\n")

    async def write_async(values: list[tg.Record]) -> None:
        write(values)

    pipeline = world.pipeline().batch(16, "300ms", records=True).sink(write if kind == "threads" else write_async)
    report = world.run(pipeline.parallel(2, order=order).on_error(tg.dead_letter()))  # type: ignore[arg-type]
    lists = [[tuple(one) for one in json.loads(line)] for line in path.read_text(encoding="utf-8").splitlines()]
    everything = {(partition, one) for partition in range(2) for one in range(50)} - {(0, 17), (1, 17)}
    assert Counter(one for each in lists for one in each) == Counter(everything)
    assert max(map(len, lists)) == 16
    assert sorted(copy.origin.offset for copy, _ in world.copies("dead")) == [17, 17]
    assert (report.settled, report.dead, world.mark(0), world.mark(1)) == (98, 2, 50, 50)
    if order == "partition":
        for partition in range(2):
            came = [at for each in lists for number, at in each if number == partition]
            assert came == sorted(came)


@pytest.mark.parametrize("kind", ["threads", "loop"])
def test_a_list_that_found_its_sink_away_comes_again_in_its_order(world: World, tmp_path: Path, kind: str) -> None:
    notes, tries = Notes(tmp_path / "lists"), Notes(tmp_path / "tries")
    world.produce([b"%d" % one for one in range(40)])

    def write(values: list[bytes]) -> None:
        tries.note(len(values))
        if len(tries.all()) <= 3:
            raise tg.Unavailable("not there yet")
        notes.note([int(value) for value in values])

    async def write_async(values: list[bytes]) -> None:
        write(values)

    pipeline = world.pipeline().batch(10, "200ms").sink(write if kind == "threads" else write_async)
    report = world.run(pipeline.on_error(tg.hold("50ms", "100ms"), tg.dead_letter()))
    assert [one for each in notes.all() for one in each] == list(range(40))
    assert (report.settled, report.dead) == (40, 0)


def test_values_that_fail_for_themselves_come_again_in_their_order_and_the_others_do_not(
    world: World, tmp_path: Path
) -> None:
    notes = Notes(tmp_path / "lists")
    world.produce([b"%d" % one for one in range(20)])

    class Store:
        """Answers for each value; an object, so that its answer has one more way to go."""

        def write(self, values: list[tg.Record]) -> list[Exception | None]:
            numbers = [int(record.value or b"") for record in values]
            answer: list[Exception | None] = [
                ValueError("not yet") if number in (3, 5, 6) and record.attempt == 1 else None
                for number, record in zip(numbers, values, strict=True)
            ]
            notes.note([number for number, one in zip(numbers, answer, strict=True) if one is None])
            return answer

    pipeline = world.pipeline().batch(10, "200ms", records=True).sink(Store())
    report = world.run(pipeline.on_error(tg.retry(2, wait="20ms"), tg.stop()))
    came = [one for each in notes.all() for one in each]
    assert Counter(came) == Counter(range(20))
    assert [one for one in came if one in (3, 5, 6)] == [3, 5, 6]
    assert report.settled == 20


def test_a_sink_that_has_a_list_does_not_get_it_again_because_the_next_one_fails(world: World, tmp_path: Path) -> None:
    first, second = Notes(tmp_path / "first"), Notes(tmp_path / "second")
    tried = tmp_path / "tried"
    world.produce([b"%d" % one for one in range(8)])

    def write_first(values: list[bytes]) -> None:
        first.note([int(value) for value in values])

    def write_second(values: list[bytes]) -> None:
        if b"2" in values and not (len(values) == 1 and tried.exists()):
            if len(values) == 1:
                tried.touch()
            raise ValueError("something in here")
        second.note([int(value) for value in values])

    pipeline = world.pipeline().batch(8, "200ms").sink(write_first).sink(write_second)
    report = world.run(pipeline.on_error(tg.retry(2, wait="20ms"), tg.stop()))
    assert Counter(one for each in first.all() for one in each) == Counter(range(8))
    assert [one for each in second.all() for one in each] == list(range(8)), "in order: what follows waits for it"
    assert report.settled == 8


def test_children_in_lists_have_ids_of_their_own(world: World, tmp_path: Path) -> None:
    notes = Notes(tmp_path / "ids")

    def write(values: list[tg.Record]) -> None:
        notes.note([(record.stable_id.rsplit(":", 1)[1], record.value) for record in values])

    world.produce(["ab", "c"])
    world.run(world.pipeline().map(tg.text).flat_map(list).batch(10, "100ms", records=True).sink(write))
    assert [tuple(one) for each in notes.all() for one in each] == [("0/0", "a"), ("0/1", "b"), ("1/0", "c")]
