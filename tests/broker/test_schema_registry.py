"""Avro by a real schema registry, also when it is away, hangs, talks nonsense, or wants to know who asks."""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.http_server import Answer, Request, running
from tests.registry_server import API, RegistryServer
from tests.secured import KEY_PASSWORD, make_certificates
from tests.support import is_alive, wait_until
from tidegate.context import close_resources
from tidegate.engine.spark import pickled

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": ""}],
}
VALUE = {"id": 7, "note": "now"}
PASSWORD = "correct-horse-7261"  # noqa: S105  # of a server that lives for one test


@pytest.fixture(autouse=True)
def _closed_clients() -> Iterator[None]:
    """A worker closes its clients when it ends; here each test is one."""
    yield
    close_resources()


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:10]}"


def asked(url: str, body: object = None) -> Any:
    """Ask a registry without any of our own code."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as answer:  # noqa: S310  # our own server
        return json.load(answer)


def register(registry: RegistryServer, subject: str, schema: object, references: list[Any] | None = None) -> int:
    body = {"schema": json.dumps(schema), "references": references or []}
    return int(asked(f"{registry.url}/subjects/{subject}/versions", body)["id"])


def wire(number: int, rest: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + rest


def passing_on(registry: RegistryServer) -> Callable[[Request], Answer]:
    """Answer as the real registry does: a server in front of it that can do more with a request."""
    origin = registry.url.removesuffix(API)

    def answer(request: Request) -> Answer:
        kept = {name: value for name, value in request.headers.items() if name in ("content-type", "accept")}
        made = urllib.request.Request(  # noqa: S310  # our own server
            origin + request.path, request.body or None, kept, method=request.method
        )
        try:
            with urllib.request.urlopen(made) as got:  # noqa: S310  # as above
                return got.status, {"Content-Type": "application/json"}, got.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, {"Content-Type": "application/json"}, error.read()

    return answer


# Values and keys.


def test_a_value_goes_to_the_wire_format_and_back(schema_registry: RegistryServer, topic: str) -> None:
    encode = tg.to_avro(ORDER, registry=schema_registry.url, topic=topic, register=True)
    content = encode(VALUE)
    number = asked(f"{schema_registry.url}/subjects/{topic}-value/versions/latest")["id"]

    assert content == wire(number, b"\x0e\x06now")
    assert tg.avro(registry=schema_registry.url)(content) == VALUE


def test_a_key_has_a_subject_of_its_own_and_the_same_decoder(schema_registry: RegistryServer, topic: str) -> None:
    encode_key = tg.to_avro({"type": "string"}, registry=schema_registry.url, topic=topic, key=True, register=True)
    encode = tg.to_avro(ORDER, registry=schema_registry.url, topic=topic, register=True)
    key, value = encode_key("ann"), encode(VALUE)
    decode = tg.avro(registry=schema_registry.url)

    assert (decode(key), decode(value)) == ("ann", VALUE)
    assert {f"{topic}-key", f"{topic}-value"} <= set(asked(f"{schema_registry.url}/subjects"))


def test_a_schema_that_is_not_registered_waits_until_it_is(schema_registry: RegistryServer, topic: str) -> None:
    encode = tg.to_avro(ORDER, registry=schema_registry.url, subject=topic)
    with pytest.raises(tg.Unavailable, match=rf"does not have the schema under {topic} .*register=True"):
        encode(VALUE)
    register(schema_registry, topic, {"type": "string"})
    with pytest.raises(tg.Unavailable, match=rf"does not have the schema under {topic}"):
        encode(VALUE)
    number = register(schema_registry, topic, ORDER)

    assert encode(VALUE) == wire(number, b"\x0e\x06now")


def test_without_a_schema_the_newest_of_the_subject_is_taken(schema_registry: RegistryServer, topic: str) -> None:
    with pytest.raises(tg.Unavailable, match=f"does not have the schema under {topic}-value"):
        tg.to_avro(registry=schema_registry.url, topic=topic)("x")
    register(schema_registry, f"{topic}-value", {"type": "string"})
    number = register(schema_registry, f"{topic}-value", ORDER)

    assert tg.to_avro(registry=schema_registry.url, topic=topic)(VALUE) == wire(number, b"\x0e\x06now")


def test_a_schema_that_the_registry_refuses_is_no_records_fault(schema_registry: RegistryServer, topic: str) -> None:
    register(schema_registry, topic, ORDER)
    rules = urllib.request.Request(  # noqa: S310  # our own server
        f"{schema_registry.url}/config/{topic}",
        b'{"compatibility": "BACKWARD"}',
        {"Content-Type": "application/json"},
        method="PUT",
    )
    urllib.request.urlopen(rules).close()  # noqa: S310  # as above
    other = {**ORDER, "fields": [{"name": "id", "type": "string"}]}
    with pytest.raises(tg.Unavailable, match=r"answered 409: .*ncompatible"):
        tg.to_avro(other, registry=schema_registry.url, subject=topic, register=True)({"id": "x"})


def test_a_value_that_does_not_fit_is_rejected(schema_registry: RegistryServer, topic: str) -> None:
    encode = tg.to_avro(ORDER, registry=schema_registry.url, topic=topic, register=True)
    with pytest.raises(tg.Reject, match="shop.Order"):  # noqa: RUF043  # the dot is one
        encode({"id": "seven"})
    assert encode(VALUE)


# Bytes that cannot be decoded.


def test_an_unknown_number_is_undecodable_until_the_registry_knows_it(
    schema_registry: RegistryServer, topic: str
) -> None:
    decode = tg.avro(registry=schema_registry.url)
    number = register(schema_registry, topic, {**ORDER, "doc": f"{topic} first"})
    with pytest.raises(tg.Undecodable, match=f"does not have schema {number + 1}"):
        decode(wire(number + 1, b"\x0e\x06now"))
    with pytest.raises(tg.Undecodable, match="does not have schema 2147483647"):
        decode(wire(2**31 - 1, b"x"))
    assert register(schema_registry, topic, {**ORDER, "doc": f"{topic} second"}) == number + 1
    assert decode(wire(number + 1, b"\x0e\x06now")) == VALUE


def test_bytes_that_do_not_fit_their_schema_are_undecodable_alone(schema_registry: RegistryServer, topic: str) -> None:
    decode = tg.avro(registry=schema_registry.url)
    number = register(schema_registry, topic, ORDER)
    for broken, said in [(b"", "too early"), (b"\x0e\x06no", "do not fit"), (b"\x0e\x06now!", "1 bytes are left")]:
        with pytest.raises(tg.Undecodable, match=said):
            decode(wire(number, broken))
    assert decode(wire(number, b"\x0e\x06now")) == VALUE


def test_a_schema_of_another_kind_is_undecodable(schema_registry: RegistryServer, topic: str) -> None:
    schema = '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}'
    body = {"schema": schema, "schemaType": "JSON"}
    number = asked(f"{schema_registry.url}/subjects/{topic}/versions", body)["id"]
    with pytest.raises(tg.Undecodable, match=f"schema {number} is JSON, not Avro"):
        tg.avro(registry=schema_registry.url)(wire(number, b'{"id": 7}'))


# Evolution and references.


def test_values_of_several_versions_are_read_as_one(schema_registry: RegistryServer, topic: str) -> None:
    newer = {**ORDER, "fields": [*ORDER["fields"], {"name": "currency", "type": "string", "default": "EUR"}]}
    old, new = register(schema_registry, topic, ORDER), register(schema_registry, topic, newer)
    contents = [wire(old, b"\x0e\x06now"), wire(new, b"\x10\x00\x06USD")]

    as_written = tg.avro(registry=schema_registry.url)
    assert [as_written(one) for one in contents] == [VALUE, {"id": 8, "note": "", "currency": "USD"}]
    as_new = tg.avro(registry=schema_registry.url, reader=newer)
    assert [as_new(one)["currency"] for one in contents] == ["EUR", "USD"]
    as_old = tg.avro(registry=schema_registry.url, reader=ORDER)
    assert [as_old(one) for one in contents] == [VALUE, {"id": 8, "note": ""}]


def reference(name: str, subject: str) -> dict[str, object]:
    return {"name": name, "subject": subject, "version": 1}


def test_references_are_followed_also_when_two_meet(schema_registry: RegistryServer, topic: str) -> None:
    def record(name: str, **fields: object) -> dict[str, object]:
        made = [{"name": field, "type": kind} for field, kind in fields.items()]
        return {"type": "record", "name": name, "namespace": "shop", "fields": made}

    register(schema_registry, f"{topic}-money", record("Money", cents="long"))
    money = [reference("shop.Money", f"{topic}-money")]
    register(schema_registry, f"{topic}-item", record("Item", price="shop.Money"), money)
    register(schema_registry, f"{topic}-fee", record("Fee", price="Money", tax=["null", "Money"]), money)
    both = [reference("shop.Item", f"{topic}-item"), reference("shop.Fee", f"{topic}-fee")]
    bill = record("Bill", items={"type": "array", "items": "shop.Item"}, fee="shop.Fee")
    register(schema_registry, f"{topic}-value", bill, both)
    value = {"items": [{"price": {"cents": 5}}], "fee": {"price": {"cents": 1}, "tax": {"cents": 2}}}

    encode = tg.to_avro(registry=schema_registry.url, topic=topic)
    assert tg.avro(registry=schema_registry.url)(encode(value)) == value


def test_a_union_of_references_is_decoded(schema_registry: RegistryServer, topic: str) -> None:
    sent = {"type": "record", "name": "shop.Sent", "fields": [{"name": "parcel", "type": "string"}]}
    register(schema_registry, f"{topic}-order", ORDER)
    register(schema_registry, f"{topic}-sent", sent)
    both = [reference("shop.Order", f"{topic}-order"), reference("shop.Sent", f"{topic}-sent")]
    register(schema_registry, f"{topic}-value", ["shop.Order", "shop.Sent"], both)
    encode, decode = tg.to_avro(registry=schema_registry.url, topic=topic), tg.avro(registry=schema_registry.url)

    assert decode(encode(VALUE)) == VALUE
    assert decode(encode({"parcel": "A1"})) == {"parcel": "A1"}


# A registry that is away.

AWAY: list[tuple[str, Answer | None, str]] = [
    ("500", (500, {}, b"oh"), "answered 500"),
    ("503", (503, {}, b""), "answered 503"),
    ("429", (429, {}, b'{"error_code": 42901, "message": "slower"}'), "answered 429: slower"),
    ("reset", None, "cannot be reached"),
    ("a page", (200, {"Content-Type": "text/html"}, b"<html>"), "cannot be reached"),
    ("another server", (404, {}, b"<html>no such page"), "not like a schema registry: check its address"),
    ("elsewhere", (302, {"Location": "/login"}, b""), "answered 302"),
    ("no number", (200, {"Content-Type": "application/json"}, b"{}"), "not like a schema registry"),
]


@pytest.mark.parametrize(("answer", "said"), [one[1:] for one in AWAY], ids=[one[0] for one in AWAY])
def test_a_registry_that_cannot_answer_is_unavailable(answer: Answer | None, said: str) -> None:
    with running(lambda _: answer) as server:
        for ask in (
            lambda: tg.avro(registry=server.url)(wire(1, b"x")),
            lambda: tg.to_avro(ORDER, registry=server.url, topic="t", register=True)(VALUE),
            lambda: tg.to_avro(ORDER, registry=server.url, topic="t")(VALUE),
            lambda: tg.to_avro(registry=server.url, topic="t")(VALUE),
        ):
            with pytest.raises(tg.Unavailable, match=said):
                ask()


def test_a_registry_that_is_down_or_hangs_is_unavailable_in_time() -> None:
    done = threading.Event()

    def hang(_: Request) -> Answer:
        done.wait(20)
        return 200, {}, b""

    with running(hang) as server:
        began = time.monotonic()
        with pytest.raises(tg.Unavailable, match="timed out"):
            tg.avro(registry=tg.registry(server.url, timeout="300ms"))(wire(1, b"x"))
        assert time.monotonic() - began < 5
        done.set()
    with pytest.raises(tg.Unavailable, match=r"registry http://127.0.0.1:\d+ cannot be reached: .*refused"):
        tg.avro(registry=server.url)(wire(1, b"x"))


def test_of_several_addresses_the_next_is_asked_where_one_fails(schema_registry: RegistryServer, topic: str) -> None:
    number = register(schema_registry, topic, ORDER)
    decode = tg.avro(registry=f"http://127.0.0.1:1, {schema_registry.url}")
    assert decode(wire(number, b"\x0e\x06now")) == VALUE


def test_what_is_known_is_not_asked_again_and_needs_no_registry(schema_registry: RegistryServer, topic: str) -> None:
    number = register(schema_registry, topic, ORDER)
    is_away = threading.Event()
    real = passing_on(schema_registry)
    with running(lambda request: (503, {}, b"") if is_away.is_set() else real(request)) as server:
        decode = tg.avro(registry=server.url + API)
        encode = tg.to_avro(ORDER, registry=server.url + API, subject=topic)
        is_away.set()
        with pytest.raises(tg.Unavailable):
            decode(wire(number, b"\x0e\x06now"))
        is_away.clear()
        contents = [encode(VALUE) for _ in range(3)]
        assert [decode(one) for one in contents] == [VALUE] * 3
        assert len(server.taken) == 2, "one question about the schema, one about its number"
        is_away.set()
        assert decode(encode(VALUE)) == VALUE
        fresh = pickle.loads(pickled(decode))  # noqa: S301  # our own
        with pytest.raises(tg.Unavailable):
            fresh(contents[0])
        is_away.clear()
        assert fresh(contents[0]) == VALUE


def test_threads_may_share_a_decoder(schema_registry: RegistryServer, topic: str) -> None:
    numbers = [register(schema_registry, f"{topic}-{one}", {**ORDER, "doc": str(one)}) for one in range(8)]
    decode = tg.avro(registry=schema_registry.url)
    with ThreadPoolExecutor(16) as threads:
        values = list(threads.map(lambda one: decode(wire(numbers[one % 8], b"\x0e\x06now")), range(400)))
    assert values == [VALUE] * 400


# Who may ask.


def guarded(registry: RegistryServer, word: str, status: int = 401) -> Callable[[Request], Answer]:
    real = passing_on(registry)

    def answer(request: Request) -> Answer:
        if request.headers.get("authorization") != word:
            return status, {}, b'{"error_code": %d, "message": "who are you?"}' % status
        return real(request)

    return answer


@pytest.mark.parametrize("status", [401, 403])
def test_a_registry_that_does_not_let_us_in_is_unavailable_and_says_why(
    schema_registry: RegistryServer, topic: str, status: int
) -> None:
    number = register(schema_registry, topic, ORDER)
    basic = "Basic " + base64.b64encode(f"carol:{PASSWORD}".encode()).decode()
    with running(guarded(schema_registry, basic, status)) as server:
        url = server.url + API
        with pytest.raises(tg.Unavailable, match=rf"refuses a request without a user \({status}\): who are you"):
            tg.avro(registry=url)(wire(number, b"\x0e\x06now"))
        wrong = tg.registry(url, user="carol", password=tg.secret(lambda: "guess-9143"))
        with pytest.raises(tg.Unavailable, match=rf"refuses carol \({status}\)") as raised:
            tg.to_avro(ORDER, registry=wrong, subject=topic)(VALUE)
        assert "guess-9143" not in str(raised.value)
        place = tg.registry(url, user="carol", password=tg.secret(lambda: PASSWORD))
        decode = pickle.loads(pickled(tg.avro(registry=place)))  # noqa: S301  # our own
        assert decode(wire(number, b"\x0e\x06now")) == VALUE


def test_a_token_is_asked_for_every_request_where_it_is_a_function(schema_registry: RegistryServer, topic: str) -> None:
    numbers = [register(schema_registry, f"{topic}-{one}", {**ORDER, "doc": str(one)}) for one in range(2)]
    tokens = iter(["first", "second"])
    with running(passing_on(schema_registry)) as server:
        decode = tg.avro(registry=tg.registry(server.url + API, token=lambda: next(tokens)))
        for number in numbers:
            assert decode(wire(number, b"\x0e\x06now")) == VALUE
        with pytest.raises(tg.Unavailable, match=r"the token for http.* failed: StopIteration"):
            decode(wire(2**31 - 1, b""))
        decode = tg.avro(registry=tg.registry(server.url + API, token=tg.secret(lambda: "third")))
        assert decode(wire(numbers[0], b"\x0e\x06now")) == VALUE
        assert [one.headers["authorization"] for one in server.seen] == [
            "Bearer first",
            "Bearer second",
            "Bearer third",
        ]


def test_a_registry_over_mutual_tls(schema_registry: RegistryServer, topic: str, tmp_path: Path) -> None:
    number = register(schema_registry, topic, ORDER)
    make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server-open.key")
    context.load_verify_locations(tmp_path / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    authority, password = str(tmp_path / "ca.pem"), tg.secret(lambda: KEY_PASSWORD)
    content = wire(number, b"\x0e\x06now")
    with running(passing_on(schema_registry), tls=context) as server:

        def decode(tls: tg.Tls | None) -> Any:
            return tg.avro(registry=tg.registry(server.url + API, tls=tls))(content)

        known = tg.Tls(authority, str(tmp_path / "client.pem"), str(tmp_path / "client.key"), password)
        assert decode(known) == VALUE
        with pytest.raises(tg.Unavailable, match="cannot be reached"):
            decode(None)
        with pytest.raises(tg.Unavailable, match="cannot be reached"):
            decode(tg.Tls(authority))
        with pytest.raises(tg.Unavailable, match=r"no client for the registry .* can be made: .*No such file"):
            decode(tg.Tls(str(tmp_path / "nowhere.pem")))


# The server of these tests itself.


@pytest.mark.timeout(240)
def test_the_registry_of_the_tests_ends_with_them_also_when_they_are_killed(schema_registry: RegistryServer) -> None:
    assert schema_registry.pid is not None
    program = """
from tests.registry_server import RegistryServer
with RegistryServer() as running:
    print(running.pid, running._folder, flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as tests:
        assert tests.stdout is not None
        pid, folder = tests.stdout.readline().split()
        os.kill(tests.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(int(pid)), within=30, what="the registry has ended")
    wait_until(lambda: not Path(folder).exists(), within=30, what="its folder is gone")
