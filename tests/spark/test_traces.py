"""Trace headers travel with a record: to servers, to topics, and through retries and dead letters."""

from __future__ import annotations

import json

import pytest

import tidegate as tg
from tests.http_server import Answer, Request, running
from tests.spark.conftest import World
from tests.support import visible

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACED = {"traceparent": PARENT, "tracestate": "vendor=1", "baggage": "user=ann", "kind": "order"}
PASSED = {name: value for name, value in TRACED.items() if name != "kind"}


def traces(request: Request) -> dict[str, str]:
    return {name: value for name, value in request.headers.items() if name in (*TRACED, "kind")}


def test_a_trace_goes_on_behind_servers_and_topics(world: World) -> None:
    out = f"{world.topic}-out"
    world.admin.create_topic(out, 1)
    world.produce([b'{"id": 1}'], headers=TRACED)
    world.produce([b'{"id": 2}'])
    world.produce([b'{"id": 3}'], headers={"traceparent": "a\r\nnonsense"})

    def answer(request: Request) -> Answer:
        return 200, {"Content-Type": "application/json"}, request.body

    with running(answer) as server:
        asked = world.pipeline().map(tg.json).map(tg.call_http(f"{server.url}/step"))
        report = world.run(asked.sink(tg.http(f"{server.url}/sink")).sink(tg.kafka(out)))
        seen = {(one.path, json.loads(one.body)["id"]): traces(one) for one in server.taken}
    assert report.settled == 3
    assert seen == {
        (path, number): PASSED if number == 1 else {} for path in ("/step", "/sink") for number in (1, 2, 3)
    }
    written = [dict(one.headers) for one in visible(world.admin, world.kafka, out)]
    assert written == [
        {name: value.encode() for name, value in PASSED.items()},
        {},
        {"traceparent": b"a\r\nnonsense"},
    ]


def test_the_setting_keeps_traces_here(world: World) -> None:
    world.settings["trace_headers"] = False
    world.produce([b"1"], headers=TRACED)
    with running() as server:
        world.run(world.pipeline().sink(tg.http(server.url)))
        assert [traces(one) for one in server.taken] == [{}]


@pytest.mark.parametrize("trace_headers", [True, False])
def test_a_trace_survives_retries_and_dead_letters(world: World, trace_headers: bool) -> None:
    world.settings["trace_headers"] = trace_headers
    world.produce([b"bad"], headers=TRACED)
    with running(lambda _: (500, {}, b"")) as server:
        pipeline = world.pipeline().parallel(order="none").sink(tg.http(server.url))
        report = world.run(pipeline.on_error(tg.retry_later("100ms"), tg.dead_letter()))
        seen = [traces(one) for one in server.seen]
    assert report.dead == 1
    assert seen == [PASSED if trace_headers else {}] * 2, "the second attempt came from the retry topic"
    for name in ("retry.100ms", "dead"):
        [(_, copy)] = world.copies(name)
        kept = {header: value for header, value in copy.headers if header in TRACED}
        assert kept == {header: value.encode() for header, value in TRACED.items()}, name
