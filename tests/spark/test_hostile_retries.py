"""Records that nobody would write on purpose, by every way that copies take: each comes back byte for byte."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.hostile import NAMED
from tests.postgres_server import Server
from tests.spark.conftest import World
from tests.spark.test_hostile import cluster_of, hostile_world
from tests.spark.test_to_kafka import outputs
from tests.spark.test_to_postgres import Database
from tidegate.copies import Copy, record_headers
from tidegate.kafka.scan import SeenRecord
from tidegate.ops.dead_letters import make_filter
from tidegate.ops.redrive import Redriving


def digest(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> str:
    return hashlib.sha256(repr((key, value, list(headers))).encode("utf-8", "surrogatepass")).hexdigest()


CONTENTS = {at: digest(one.key, one.value, one.headers) for at, one in enumerate(NAMED)}


def contents(records: Sequence[tuple[Copy, SeenRecord]]) -> Counter[tuple[int, str]]:
    """Return what copies hold, by the offset of the record that each was made of."""
    return Counter(
        (copy.origin.offset, digest(one.key, one.value, record_headers(one.headers))) for copy, one in records
    )


@pytest.mark.timeout(240)
@pytest.mark.parametrize("store", ["none", "kafka", "postgres"])
def test_hostile_records_come_through_retry_topics_dead_letters_and_back_as_they_are(
    make_world: Callable[..., World], request: pytest.FixtureRequest, tmp_path: Path, store: str
) -> None:
    world = hostile_world(make_world, NAMED)
    mended, passes = tmp_path / "mended", tmp_path / "passes"

    def look(value: bytes | None) -> bytes | None:
        record = tg.current()
        seen = hashlib.sha256(repr((record.key, value, list(record.headers))).encode("utf-8", "surrogatepass"))
        with passes.open("a", encoding="utf-8") as file:
            file.write(f"{record.stable_id} {record.attempt} {seen.hexdigest()} {record.timestamp}\n")
        if not mended.exists():
            raise ValueError("no good")
        return value

    def as_row(value: bytes | None) -> dict[str, Any]:
        return {"id": tg.current().offset, "key": tg.current().key, "value": value}

    steps = world.pipeline().parallel(4, order="key").map(look)
    if store == "kafka":
        world.admin.create_topic(f"{world.topic}-out", 1, {"max.message.bytes": "2000000"})
        plan = steps.sink(tg.kafka(f"{world.topic}-out", exactly_once=True))
    elif store == "postgres":
        server: Server = request.getfixturevalue("postgres")
        database = Database(server)
        columns = {"id": "bigint primary key", "key": "bytea", "value": "bytea"}
        plan = steps.map(as_row).sink(tg.postgres(database.dsn, table="hostile", columns=columns))
    else:
        plan = steps.sink(world.trail)
    plan = plan.on_error(tg.retry_later("1s"), tg.dead_letter())
    count, all_of = len(NAMED), Counter(CONTENTS.items())

    report = world.run(plan)
    assert (report.dead, report.settled, world.mark()) == (count, 0, count)
    assert contents(world.copies("retry.1s")) == all_of
    assert contents(world.copies("dead")) == all_of
    for copy, _ in world.copies("dead"):
        written = NAMED[copy.origin.offset].timestamp
        assert not written or copy.origin.timestamp_ms == (None if written == -1 else written)

    mended.touch()
    assert Redriving(cluster_of(world), world.group, make_filter()).send().sent == count
    assert world.run(plan).settled == count
    assert contents(world.copies("redrive")) == all_of
    lines = [line.split(" ", 3) for line in passes.read_text(encoding="utf-8").splitlines()]
    ids = {at: f"{world.group}:{world.topic}:0:{at}" for at in CONTENTS}
    expected = [(ids[at], attempt, content) for at, content in CONTENTS.items() for attempt in ("1", "2", "1")]
    assert Counter((one, attempt, content) for one, attempt, content, _ in lines) == Counter(expected)
    assert len({(one, at) for one, _, _, at in lines}) == count, "each has one time in all its passes"
    if store == "kafka":
        got = Counter((one.key, one.value) for one in outputs(world))
        assert got == Counter((one.key, one.value) for one in NAMED)
    elif store == "postgres":
        rows = {row[0]: row[1:] for row in database.do("select id, key, value from hostile")}
        assert rows == {at: (one.key, one.value) for at, one in enumerate(NAMED)}
        assert database.do("select count(*) from tidegate_outbox") == [(0,)]
    else:
        assert Counter(world.trail.offsets()) == Counter(CONTENTS.keys())


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["threads", "loop"])
def test_hostile_records_in_lists_reach_the_sink_once_and_the_culprits_are_found_and_brought_back(
    make_world: Callable[..., World], tmp_path: Path, kind: str
) -> None:
    world = hostile_world(make_world, NAMED)
    mended, taken = tmp_path / "mended", tmp_path / "taken"

    def write(records: list[tg.Record]) -> None:
        if not mended.exists() and any(record.offset % 3 == 0 for record in records):
            raise ValueError("something in here")
        with taken.open("a", encoding="utf-8") as file:
            for one in records:
                seen = hashlib.sha256(repr((one.key, one.value, list(one.headers))).encode("utf-8", "surrogatepass"))
                file.write(f"{one.stable_id} {seen.hexdigest()}\n")

    async def write_async(records: list[tg.Record]) -> None:
        write(records)

    plan = (
        world.pipeline()
        .batch(5, "300ms", records=True)
        .sink(write if kind == "threads" else write_async)
        .parallel(4, order="key")
        .on_error(tg.dead_letter())
    )
    bad = {at for at in CONTENTS if at % 3 == 0}
    report = world.run(plan)
    assert (report.dead, report.settled, world.mark()) == (len(bad), len(NAMED) - len(bad), len(NAMED))
    assert contents(world.copies("dead")) == Counter({(at, CONTENTS[at]): 1 for at in bad})

    mended.touch()
    assert Redriving(cluster_of(world), world.group, make_filter()).send().sent == len(bad)
    assert world.run(plan).settled == len(bad)
    lines = [tuple(line.split(" ")) for line in taken.read_text(encoding="utf-8").splitlines()]
    assert Counter(lines) == Counter((f"{world.group}:{world.topic}:0:{at}", one) for at, one in CONTENTS.items())
