"""Records in a group's own topics that somebody else wrote, with headers of our names: they end nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Producer

import tidegate as tg
from tests.spark.conftest import World
from tidegate.copies import Copy, Origin, write_headers
from tidegate.ops.cluster import Cluster
from tidegate.ops.dead_letters import make_filter
from tidegate.ops.redrive import Redriving
from tidegate.records import Partition

PAST = {"at_ms": 1, "place": "orders[0]:1", "attempt": 1, "error_type": "E", "message": "m"}
ODD: dict[str, dict[str, bytes | None]] = {
    "a moment beyond all clocks": {"history": orjson.dumps([PAST | {"at_ms": 1e30}])},
    "a history of other things": {"history": b'{"at_ms": NaN}'},
    "a child below zero": {"done": b"[[-1, 0]]"},
    "a sink beyond 64 bits": {"done": b"[[0, 1e30]]"},
    "more attempts than can be written": {"attempt": b"9" * 4300},
    "as many attempts as can be counted": {"attempt": b"%d" % (2**31 - 1)},
    "a long history": {"history": orjson.dumps([PAST | {"message": "x" * 1000}] * 300)},
    "a partition below zero": {"partition": b"-1"},
    "a partition beyond 32 bits": {"partition": b"2147483648"},
    "an offset beyond 64 bits": {"offset": b"9" * 30},
    "no UTF-8": {"topic": b"\xff\xfe"},
    "a part without a value": {"id": None},
    "an id as long as a book": {"id": b"x" * 100_000},
    "brackets": {"history": b"[" * 5000},
    "redriven from nowhere": {"redriven-from": b"-1:x"},
}
Header = tuple[str, str | bytes | None]


def hostile(world: World, sinks: str, odd: dict[str, bytes | None]) -> list[Header]:
    """Return the headers of a true copy of record 0, but for what is odd."""
    true = Copy(Origin(world.topic, 0, 0, 1_700_000_000_000), f"{world.group}:{world.topic}:0:0", sinks=sinks)
    said = dict(write_headers(true, [("own", b"1")]))
    return [
        *(said | {"tidegate-sinks": sinks.encode()} | {f"tidegate-{name}": one for name, one in odd.items()}).items()
    ]


def write(world: World, topic: str, copies: Sequence[tuple[bytes, list[Header]]]) -> None:
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap})
    for value, headers in copies:
        producer.produce(topic, value, b"k", partition=0, headers=[*headers])
    assert producer.flush(30) == 0


def end(world: World, topic: str) -> int:
    at = Partition(topic, 0)
    return world.admin.ends([at])[at]


def mark(world: World, topic: str) -> int | None:
    found = world.admin.committed(world.group).get(Partition(topic, 0))
    return None if found is None else found.mark


def test_copies_that_nobody_of_ours_wrote_are_settled_and_the_run_goes_on(world: World, tmp_path: Path) -> None:
    mended = tmp_path / "mended"

    def look(value: bytes) -> bytes:
        assert tg.current().value == value
        if not mended.exists():
            raise ValueError("no good")
        return value

    pipeline = (
        world.pipeline()
        .map(look)
        .sink(world.trail)
        .sink(lambda _: None)
        .on_error(tg.retry(1, wait="1ms"), tg.retry_later("1s"), tg.dead_letter())
        .parallel(order="key")
    )
    assert world.run(pipeline).settled == 0  # makes the group's own topics
    retry = f"{world.group}.retry.1s"
    sinks = pipeline.plan().fingerprint
    values = [name.encode() for name in ODD]
    write(world, retry, [(name.encode(), hostile(world, sinks, odd)) for name, odd in ODD.items()])
    world.produce([b"a record of ours"])
    values.append(b"a record of ours")

    report = world.run(pipeline)
    assert (report.exit_code, report.dead, world.mark(), mark(world, retry)) == (0, len(values), 1, end(world, retry))
    letters = world.copies("dead")
    assert Counter(letter.value for _, letter in letters) == Counter(values)
    assert {letter.value: copy.stable_id for copy, letter in letters}[b"a part without a value"].startswith(
        f"{world.group}:{retry}:0:"
    ), "what is no copy of ours is a record of that topic"

    mended.touch()
    redriving = Redriving(Cluster(world.kafka, 20.0), world.group, make_filter())
    assert redriving.send().sent == len(values)
    assert world.run(pipeline).settled == len(values)
    assert Counter(world.trail.values()) == Counter(map(repr, values))


def test_copies_that_nobody_of_ours_wrote_are_rows_of_a_dataframe(world: World, tmp_path: Path) -> None:
    def refuse(df: Any) -> Any:
        return tg.bad(df, "true", "no good")

    pipeline = world.pipeline().dataframe(refuse, undecodable=tg.dead_letter()).sink(tg.parquet(str(tmp_path / "out")))
    world.run(pipeline)
    redrive = f"{world.group}.redrive"
    write(world, redrive, [(name.encode(), hostile(world, "", odd)) for name, odd in ODD.items()])
    world.produce([b"a record of ours"])

    report = world.run(pipeline)
    assert (report.exit_code, world.mark(), mark(world, redrive)) == (0, 1, end(world, redrive))
    letters = Counter(letter.value for _, letter in world.copies("dead"))
    assert letters == Counter([*(name.encode() for name in ODD), b"a record of ours"])
