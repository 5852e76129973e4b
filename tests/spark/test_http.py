"""Kafka to HTTP with a real server: what it answers decides, what it got is its own word."""

from __future__ import annotations

import json
import random
import ssl
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

import tidegate as tg
from tests.http_server import Answer, Request, running
from tests.secured import KEY_PASSWORD, make_certificates
from tests.spark.conftest import Beside, World
from tests.support import wait_until

OK: Answer = (200, {}, b"")


def test_values_arrive_as_json_with_their_stable_ids_and_what_was_asked_for(world: World) -> None:
    world.produce([b'{"id": 1}', b'{"id": 2}'], key=b"k")
    with running() as server:
        url = server.url
        sink = tg.http(
            lambda order: f"{url}/orders/{order['id']}",
            method="PUT",
            headers={
                "X-Key": lambda _: (tg.current().key or b"").decode(),
                "Authorization": tg.secret(lambda: "s3cret"),
            },
        )
        report = world.run(world.pipeline().map(tg.json).sink(sink))
        got = sorted(server.taken, key=lambda one: one.path)
    assert report.settled == 2
    assert [(one.method, one.path) for one in got] == [("PUT", "/orders/1"), ("PUT", "/orders/2")]
    assert [json.loads(one.body) for one in got] == [{"id": 1}, {"id": 2}]
    assert [one.id for one in got] == [f"{world.group}:{world.topic}:0:{at}" for at in range(2)]
    assert {one.headers["x-key"] for one in got} == {"k"}
    assert {one.headers["authorization"] for one in got} == {"s3cret"}
    assert {one.headers["content-type"] for one in got} == {"application/json"}


@pytest.mark.parametrize(
    ("status", "kind", "calls"),
    [(400, "Reject", 1), (404, "Reject", 1), (301, "Reject", 1), (408, "HttpError", 3), (500, "HttpError", 3)],
)
def test_an_answer_chooses_the_records_way(world: World, status: int, kind: str, calls: int) -> None:
    world.produce([b"good", b"bad", b"good"])

    def answer(request: Request) -> Answer:
        return (status, {}, b"because") if request.body == b"bad" else OK

    with running(answer) as server:
        pipeline = world.pipeline().sink(tg.http(server.url))
        report = world.run(pipeline.on_error(tg.hold(), tg.retry(2, wait="5ms"), tg.dead_letter()))
        seen = Counter(one.body for one in server.seen)
    assert seen == {b"good": 2, b"bad": calls}
    [(copy, letter)] = world.copies("dead")
    assert (copy.error_type, letter.value, copy.attempt) == (kind, b"bad", calls)
    assert f"answered {status}: because" in copy.error_message
    assert (report.settled, report.dead) == (2, 1)


@pytest.mark.parametrize("how", ["503", "429 with Retry-After", "refused", "reset"])
def test_a_server_that_is_away_is_waited_for(world: World, how: str) -> None:
    world.produce([str(one) for one in range(20)])
    is_away = threading.Event()
    is_away.set()
    tries: list[float] = []

    def answer(_request: Request) -> Answer | None:
        if not is_away.is_set():
            return OK
        tries.append(time.monotonic())
        if how == "reset":
            return None
        return (503, {}, b"") if how == "503" else (429, {"Retry-After": "2"}, b"")

    with running(answer) as server:
        if how == "refused":
            server.stop()

        def come_back() -> None:
            if how == "refused":
                wait_until(lambda: world.mark() == 0, within=60, what="the run has begun")
                time.sleep(2)  # there is nothing to see of a connection that nobody takes
                server.start()
            else:
                wait_until(lambda: bool(tries) and tries[-1] - tries[0] > 0.1, within=60, what="a second try")
            is_away.clear()

        beside = Beside(come_back, stops=False)
        pipeline = world.pipeline().sink(tg.http(server.url)).parallel(4, order="none")
        report = world.run(pipeline.on_error(tg.hold("200ms", "1s"), tg.dead_letter()))
        beside.check()
        taken = Counter(one.id for one in server.taken)
    assert taken == Counter(f"{world.group}:{world.topic}:0:{at}" for at in range(20))
    assert (report.dead, report.settled) == (0, 20)
    if how.startswith("429"):
        assert max(later - earlier for earlier, later in pairwise(tries)) >= 1.9, "the server asked for two seconds"


def test_a_server_that_hangs_or_talks_nonsense_fails_the_record(world: World) -> None:
    world.produce([b"hang", b"good", b"garbage"])
    done = threading.Event()

    def answer(request: Request) -> Answer:
        if request.body == b"hang":
            done.wait(20)
        return (
            (200, {"Transfer-Encoding": "nonsense", "Content-Length": "x"}, b"?") if request.body == b"garbage" else OK
        )

    with running(answer) as server:
        pipeline = world.pipeline().sink(tg.http(server.url, timeout="500ms")).parallel(4, order="none")
        report = world.run(pipeline.on_error(tg.dead_letter()))
        done.set()
    kinds = {copy.origin.offset: copy.error_type for copy, _ in world.copies("dead")}
    assert kinds[0] == "HttpTimeout"
    assert set(kinds) == {0, 2}
    assert (report.settled, report.dead) == (1, 2)


def test_the_order_of_keys_holds_by_the_receivers_own_log_under_failures(make_world: Callable[..., World]) -> None:
    world = make_world(4)
    chance = random.Random(7)
    count = 400
    for one in range(count):
        key = b"k%d" % (one % 12)
        world.produce([str(one)], (one % 12) % 4, key=key)
    flaky = {str(one).encode() for one in range(count) if chance.random() < 0.05}
    failed: set[bytes] = set()

    def answer(request: Request) -> Answer:
        time.sleep(0.005)
        if request.body in flaky and request.body not in failed:
            failed.add(request.body)
            return (500, {}, b"once")
        return OK

    with running(answer) as server:
        pipeline = world.pipeline().sink(tg.http(server.url)).parallel(16, order="key")
        report = world.run(pipeline.on_error(tg.retry(3, wait="30ms"), tg.stop()))
        taken = sorted(server.taken, key=lambda one: one.ended)
    assert (report.settled, report.exit_code) == (count, 0)
    assert failed == flaky
    assert flaky
    lines = defaultdict(list)
    for request in taken:
        lines[int(request.body) % 12].append(request)
    assert sum(map(len, lines.values())) == count
    for line in lines.values():
        assert [int(one.body) for one in line] == sorted(int(one.body) for one in line)
        for earlier, later in pairwise(line):
            assert later.began >= earlier.began, "a key's records never overtake each other"
            assert later.began >= earlier.ended, "nor overlap"


def test_a_call_to_a_server_gives_the_value(world: World) -> None:
    world.produce([b'{"n": 1}', b'{"n": 2}'])

    def answer(request: Request) -> Answer:
        doubled = {"doubled": 2 * json.loads(request.body)["n"]}
        return 200, {"Content-Type": "application/json"}, json.dumps(doubled).encode()

    with running(answer) as server:
        world.run(world.pipeline().map(tg.json).map(tg.call_http(server.url)).sink(world.trail))
    assert world.trail.values() == ["{'doubled': 2}", "{'doubled': 4}"]


def test_a_server_that_wants_to_know_us_gets_our_certificate(world: World, tmp_path: Path) -> None:
    make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server-open.key")
    context.load_verify_locations(tmp_path / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    world.produce([b"one", b"two"])
    password = tg.secret(lambda: KEY_PASSWORD)
    known = tg.Tls(str(tmp_path / "ca.pem"), str(tmp_path / "client.pem"), str(tmp_path / "client.key"), password)
    with running(tls=context) as server:
        report = world.run(world.pipeline().sink(tg.http(server.url, tls=tg.Tls(str(tmp_path / "ca.pem")))))
        assert report.failure is not None, "without a certificate of its own it is not let in"
        assert report.failure.error_type == "Unavailable"
        assert KEY_PASSWORD not in repr(report)
        report = world.run(world.pipeline().sink(tg.http(server.url, tls=known)))
        assert [one.body for one in server.taken] == [b"one", b"two"]
    assert report.settled == 2


class Ledger:
    """A sink of a user's own: opened once per worker, closed at its end."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, word: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{word}\n")

    def open(self) -> None:
        self.note("open")

    def write(self, value: bytes) -> None:
        self.note(f"value {value.decode()}")

    def close(self) -> None:
        self.note("close")


class AsyncLedger(Ledger):
    async def open(self) -> None:  # type: ignore[override]  # plain or async, both will do
        self.note("open")

    async def write(self, value: bytes) -> None:  # type: ignore[override]  # as above
        self.note(f"value {value.decode()}")

    async def close(self) -> None:  # type: ignore[override]  # as above
        self.note("close")


@pytest.mark.parametrize("kind", [Ledger, AsyncLedger])
def test_a_sink_object_is_opened_once_per_worker_and_closed_at_the_end(
    world: World, tmp_path: Path, kind: type[Ledger]
) -> None:
    world.produce([b"1", b"2", b"3"])
    world.run(world.pipeline().sink(kind(tmp_path / "ledger")))
    lines = (tmp_path / "ledger").read_text(encoding="utf-8").splitlines()
    assert lines == ["open", "value 1", "value 2", "value 3", "close"]
