"""Avro through a whole pipeline: what fails, fails alone, and what the registry is to blame for costs no record."""

from __future__ import annotations

import json
import threading
import urllib.request
from pathlib import Path
from typing import Any

import tidegate as tg
from tests.http_server import Answer, Request, running
from tests.registry_server import API, RegistryServer
from tests.spark.conftest import Beside, World
from tests.support import wait_until

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "amount", "type": "double"}],
}
INVOICE: dict[str, Any] = {
    "type": "record",
    "name": "Invoice",
    "fields": [{"name": "customer", "type": "string"}, {"name": "total", "type": "double"}],
}


class Kept:
    """A sink: the bytes as they come, one line each."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, value: bytes) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(value.hex() + "\n")

    def contents(self) -> list[bytes]:
        return [bytes.fromhex(line) for line in self.path.read_text(encoding="utf-8").split()]


def test_avro_in_and_out_with_an_undecodable_record_set_aside(
    world: World, schema_registry: RegistryServer, tmp_path: Path
) -> None:
    place = tg.registry(schema_registry.url)
    encode = tg.to_avro(ORDER, registry=place, topic=world.topic, register=True)
    encode_key = tg.to_avro({"type": "string"}, registry=place, topic=world.topic, key=True, register=True)
    good = [encode({"id": one, "amount": one / 2}) for one in range(3)]
    world.produce([good[0], b"no Avro at all", good[1], (good[2] or b"")[:-1], None], key=encode_key("ann"))

    decode_key = tg.avro(registry=place)

    def to_invoice(order: dict[str, Any]) -> dict[str, Any]:
        return {"customer": decode_key(tg.current().key), "total": order["amount"] * 2}

    kept = Kept(tmp_path / "invoices")
    pipeline = (
        world.pipeline()
        .map(tg.avro(registry=place))
        .filter(lambda order: order is not None)
        .map(to_invoice)
        .map(tg.to_avro(INVOICE, registry=place, subject=f"{world.topic}-invoices", register=True))
        .sink(kept)
        .on_error(tg.retry(3, wait="5ms"), tg.dead_letter())
    )
    report = world.run(pipeline)

    assert (report.settled, report.dead, report.exit_code) == (3, 2, 0)
    dead = world.copies("dead")
    assert [(copy.origin.offset, copy.error_type, copy.attempt) for copy, _ in dead] == [
        (1, "Undecodable", 1),
        (3, "Undecodable", 1),
    ], "nothing was tried again in place"
    assert [letter.value for _, letter in dead] == [b"no Avro at all", (good[2] or b"")[:-1]]
    decode = tg.avro(registry=place)
    assert [decode(one) for one in kept.contents()] == [
        {"customer": "ann", "total": 0.0},
        {"customer": "ann", "total": 1.0},
    ]


def test_plain_avro_with_a_value_that_does_not_fit_the_output(world: World, tmp_path: Path) -> None:
    encode = tg.to_avro(ORDER)
    world.produce([encode({"id": one, "amount": 1.5}) for one in range(3)])
    kept = Kept(tmp_path / "out")
    pipeline = (
        world.pipeline()
        .map(tg.avro(ORDER))
        .map(lambda order: {**order, "id": "one"} if order["id"] == 1 else order)
        .map(tg.to_avro(ORDER))
        .sink(kept)
        .on_error(tg.retry(3, wait="5ms"), tg.dead_letter())
    )
    report = world.run(pipeline)

    assert (report.settled, report.dead) == (2, 1)
    [(copy, _)] = world.copies("dead")
    assert (copy.origin.offset, copy.error_type, copy.attempt) == (1, "Reject", 1)
    assert [tg.avro(ORDER)(one)["id"] for one in kept.contents()] == [0, 2]


def test_a_registry_that_is_away_is_waited_for_and_costs_no_record(
    world: World, schema_registry: RegistryServer
) -> None:
    subject = f"{world.topic}-value"
    encode = tg.to_avro(ORDER, registry=schema_registry.url, subject=subject, register=True)
    world.produce([encode({"id": one, "amount": 1.5}) for one in range(20)])
    number = int.from_bytes((encode({"id": 1, "amount": 1.5}) or b"")[1:5], "big")
    with urllib.request.urlopen(f"{schema_registry.url}/schemas/ids/{number}") as found:  # noqa: S310  # our own
        schema = json.load(found)
    is_away = threading.Event()
    is_away.set()
    tries: list[str] = []

    def answer(request: Request) -> Answer:
        if is_away.is_set():
            tries.append(request.path)
            return 503, {}, b""
        return 200, {"Content-Type": "application/json"}, json.dumps(schema).encode()

    with running(answer) as server:

        def come_back() -> None:
            # Each attempt asks twice; so many are several attempts.
            wait_until(lambda: len(tries) >= 6, within=60, what="it was waited for")
            is_away.clear()

        beside = Beside(come_back, stops=False)
        pipeline = world.pipeline().map(tg.avro(registry=server.url + API)).sink(world.trail)
        report = world.run(pipeline.on_error(tg.hold("50ms", "200ms"), tg.dead_letter()))
        beside.check()
        asked = [one.path for one in server.taken]
    assert (report.settled, report.dead) == (20, 0)
    assert world.trail.offsets() == list(range(20))
    assert asked == [f"{API}/schemas/ids/{number}"], "the worker asked once and remembers"
