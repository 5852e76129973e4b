"""Several records of a lane at a time: in threads, on an event loop, in the order that was promised."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.spark.conftest import World, channel
from tests.support import PROOF


class Spans:
    """When each record was in work, in whichever thread: one line at its end."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, began: float) -> None:
        record = tg.current()
        key = (record.key or b"").decode()
        with self.path.open("a", encoding="utf-8") as file:
            file.write(
                f"{record.partition} {record.offset} {key or '-'} {began} {time.time()} {threading.get_ident()}\n"
            )

    def all(self) -> list[tuple[int, int, str, float, float, str]]:
        rows = [line.split() for line in self.path.read_text(encoding="utf-8").splitlines()]
        return [(int(one[0]), int(one[1]), one[2], float(one[3]), float(one[4]), one[5]) for one in rows]

    def most_at_once(self) -> int:
        spans = self.all()
        return max(sum(1 for other in spans if other[3] <= one[3] < other[4]) for one in spans)


@pytest.fixture
def spans(tmp_path: Path) -> Spans:
    return Spans(tmp_path / "spans")


def slow_sink(spans: Spans, kind: str, seconds: float) -> Callable[[Any], Any]:
    """A sink that takes its time, as a plain function or as an async one."""

    def write(_value: object) -> None:
        began = time.time()
        time.sleep(seconds)
        spans.note(began)

    async def write_async(_value: object) -> None:
        began = time.time()
        await asyncio.sleep(seconds)
        spans.note(began)

    return write if kind == "threads" else write_async


@pytest.mark.parametrize(
    ("kind", "live"), [("threads", True), ("loop", False), *([("threads", False), ("loop", True)] if PROOF else ())]
)
def test_records_are_worked_on_side_by_side_and_all_are_settled_once(
    make_world: Callable[..., World], spans: Spans, kind: str, live: bool
) -> None:
    world = make_world(2)
    world.settings = {"live": live}
    for partition in range(2):
        world.produce([b"x"] * 100, partition)
    report = world.run(world.pipeline().sink(slow_sink(spans, kind, 0.05)).parallel(8, order="none"))
    assert Counter((one[0], one[1]) for one in spans.all()) == Counter((p, at) for p in range(2) for at in range(100))
    assert 4 <= spans.most_at_once() <= 16, "two lanes of eight"
    assert (report.settled, world.mark(0), world.mark(1)) == (200, 100, 100)


@pytest.mark.parametrize("kind", ["threads", "loop"])
@pytest.mark.parametrize("order", ["partition", "key"])
def test_what_must_not_overlap_does_not_retries_included(
    make_world: Callable[..., World], spans: Spans, kind: str, order: str
) -> None:
    world = make_world(2)
    count = 60
    for one in range(count):
        world.produce([str(one).encode()], one % 2, key=b"k%d" % (one % 6))

    def flaky(value: bytes) -> bytes:
        if int(value) % 5 == 0 and tg.current().attempt == 1:
            raise ValueError("not yet")
        return value

    pipeline = world.pipeline().map(flaky).sink(slow_sink(spans, kind, 0.01)).parallel(8, order=order)  # type: ignore[arg-type]
    report = world.run(pipeline.on_error(tg.retry(2, wait="20ms"), tg.stop()))
    assert (report.settled, report.exit_code) == (count, 0)
    lines = defaultdict(list)
    for partition, at, key, began, ended, _ in spans.all():
        lines[(partition, key if order == "key" else "")].append((at, began, ended))
    assert sum(map(len, lines.values())) == count
    for line in lines.values():
        assert line == sorted(line), "in order"
        for (_, _, ended), (_, began, _) in pairwise(line):
            assert began >= ended, "one after the other"


@channel("live")
def test_a_slow_record_holds_no_other_and_stays_open_until_it_is_through(
    world: World, spans: Spans, live: bool
) -> None:
    world.settings = {"live": live}

    async def write(value: bytes) -> None:
        began = time.time()
        await asyncio.sleep(3 if value == b"slow" else 0.001)
        spans.note(began)

    world.produce([b"slow"] + [b"quick"] * 300)
    report = world.run(world.pipeline().sink(write).parallel(16, order="none"))
    assert report.settled == 301
    assert [one[1] for one in spans.all()][-1] == 0, "the slow one was the last to end"
    if live:
        assert 0 in world.commits()[1:] or world.commits()[-1] == 301
    assert world.mark() == 301


def test_a_record_that_waited_does_not_stand_behind_all_that_was_read(world: World, spans: Spans) -> None:
    async def write(_value: bytes) -> None:
        began = time.time()
        await asyncio.sleep(0.01)
        if tg.current().offset < 10 and tg.current().attempt == 1:
            raise ValueError("not yet")
        spans.note(began)

    world.produce([b"x"] * 400)
    pipeline = world.pipeline().sink(write).parallel(2, order="none").on_error(tg.retry(1, wait="1ms"), tg.stop())
    assert world.run(pipeline).settled == 400
    ends = [one[1] for one in spans.all()]
    assert sorted(ends) == list(range(400))
    assert max(ends.index(late) for late in range(10)) < 200, "they hold the mark: older ones first"


@pytest.mark.parametrize("kind", ["threads", "loop"])
def test_an_attempt_that_takes_too_long_fails_alone(world: World, spans: Spans, kind: str) -> None:
    quick, slow = slow_sink(spans, kind, 0.001), slow_sink(spans, kind, 60)
    world.produce([b"x", b"stuck", b"x", b"x"] + [b"x"] * 20)

    def write(value: bytes) -> None:
        (slow if value == b"stuck" else quick)(value)

    async def write_async(value: bytes) -> None:
        await (slow if value == b"stuck" else quick)(value)

    pipeline = world.pipeline().sink(write if kind == "threads" else write_async)
    pipeline = pipeline.parallel(4, order="none", timeout="1s")
    report = world.run(pipeline.on_error(tg.dead_letter()))
    assert sorted({one[1] for one in spans.all()}) == [0, *range(2, 24)]
    assert [(copy.origin.offset, copy.error_type) for copy, _ in world.copies("dead")] == [(1, "TimedOut")]
    assert (report.dead, world.mark()) == (1, 24)


def test_plain_and_async_functions_may_be_mixed(world: World) -> None:
    async def enrich(value: str) -> str:
        await asyncio.sleep(0.001)
        return value + "!"

    async def wanted(value: str) -> bool:
        return not value.startswith("no")

    async def children(value: str) -> list[str]:
        return [value, value.upper()]

    trail = world.trail
    world.produce(["a", "no", "b"])
    pipeline = world.pipeline().map(tg.text).filter(wanted).map(enrich).flat_map(children).sink(trail)
    report = world.run(pipeline.parallel(4, order="none"))
    assert sorted(trail.values()) == ["'A!'", "'B!'", "'a!'", "'b!'"]
    assert sorted(line.split()[3].rsplit(":", 1)[1] for line in trail.lines()) == ["0/0", "0/1", "2/0", "2/1"]
    assert report.settled == 3
