"""Records that nobody would write on purpose, through each sink: it gets what lay in the log, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

import tidegate as tg
from tests.hostile import RECORDS
from tests.http_server import running
from tests.postgres_server import Server
from tests.spark.conftest import World
from tests.spark.test_hostile import hostile_world
from tests.spark.test_to_kafka import outputs
from tests.spark.test_to_postgres import Database

TRACED = [
    ("traceparent", b"00-1\r\nX-Evil: 1"),
    ("tracestate", b"\xff\xfe"),
    ("baggage", b"x" * 100_000),
]
"""What looks like a trace, and would be another request's header."""


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return hostile_world(make_world)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("exactly_once", [True, False])
def test_hostile_records_reach_a_topic_and_a_server_as_they_are(world: World, exactly_once: bool) -> None:
    world.produce([b"traced"], headers=TRACED)
    out = f"{world.topic}-out"
    world.admin.create_topic(out, 1, {"max.message.bytes": "2000000"})

    def headers(_: object) -> dict[str, Any]:
        return dict(tg.current().headers)

    with running() as server:
        to_kafka = tg.kafka(out, headers=headers, exactly_once=exactly_once)
        report = world.run(world.pipeline().sink(tg.http(server.url)).sink(to_kafka))
        asked = {one.id: one for one in server.taken}

    count = len(RECORDS) + 1
    assert (report.exit_code, report.settled, world.mark()) == (0, count, count)
    ids = [f"{world.group}:{world.topic}:0:{at}/0" for at in range(count)]
    assert sorted(asked) == sorted(ids), "one request each"
    written = outputs(world)
    assert len(written) == count
    for one, id_, seen in zip(RECORDS, ids, written, strict=False):
        assert asked[id_].body == (one.value or b""), one.name
        assert (seen.key, seen.value) == (one.key, one.value), one.name
        assert dict(seen.headers) == dict(one.headers), one.name
    assert not {"x-evil", "tracestate", "baggage"} & set(asked[ids[-1]].headers)
    assert dict(written[-1].headers) == dict(TRACED)


@pytest.mark.timeout(180)
def test_hostile_records_become_rows_as_they_are(world: World, postgres: Server) -> None:
    database = Database(postgres)
    columns = {"id": "bigint primary key", "key": "bytea", "value": "bytea", "at": "timestamptz", "headers": "int"}

    def as_row(value: bytes | None) -> dict[str, Any]:
        record = tg.current()
        at: datetime | None = record.timestamp
        return {"id": record.offset, "key": record.key, "value": value, "at": at, "headers": len(record.headers)}

    sink = tg.postgres(database.dsn, table="hostile", columns=columns)
    report = world.run(world.pipeline().map(as_row).sink(sink))
    assert (report.exit_code, report.settled, world.mark()) == (0, len(RECORDS), len(RECORDS))
    rows = {row[0]: row[1:] for row in database.do("select id, key, value, headers from hostile")}
    for at, one in enumerate(RECORDS):
        assert rows[at] == (one.key, one.value, len(one.headers)), one.name
