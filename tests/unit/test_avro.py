"""Avro by a schema of the program's own, and everything about a registry that needs no registry."""

from __future__ import annotations

import contextlib
import json
import math
import pickle
import sys
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.engine.spark import pickled
from tidegate.formats.avro_json import as_json, from_json
from tidegate.formats.avro_schemas import own_schema

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int", "default": 1},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
EVERYTHING: dict[str, Any] = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "raw", "type": "bytes"},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "wall", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "number", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "either", "type": ["null", "long", "string", {"type": "array", "items": "double"}, "Four"]},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "far", "type": "double"},
        {"name": "yes", "type": "boolean"},
    ],
}
FULL: dict[str, Any] = {
    "raw": b"\xff\x00",
    "four": b"abcd",
    "price": Decimal("12.50"),
    "at": datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC),
    "wall": datetime(2026, 1, 31, 12),  # noqa: DTZ001  # a time on a wall has no zone
    "day": date(2026, 1, 31),
    "clock": time(12, 30),
    "number": uuid.UUID(int=7),
    "colour": "BLUE",
    "either": [1.5, -0.25],
    "counts": {"a": 1},
    "far": -math.inf,
    "yes": True,
}


def test_what_is_encoded_is_decoded_again() -> None:
    assert tg.avro(ORDER)(tg.to_avro(ORDER)({"id": 7, "count": 2, "note": "now"})) == {
        "id": 7,
        "count": 2,
        "note": "now",
    }


def test_logical_types_and_unions_come_back_as_they_went() -> None:
    assert tg.avro(EVERYTHING)(tg.to_avro(EVERYTHING)(FULL)) == FULL


def test_the_bytes_are_avros_own() -> None:
    assert tg.to_avro(ORDER)({"id": 7, "count": 2, "note": "now"}) == b"\x0e\x04\x02\x06now"
    assert tg.to_avro({"type": "string"})("now") == b"\x06now"


def test_a_default_fills_what_a_value_leaves_out() -> None:
    assert tg.avro(ORDER)(tg.to_avro(ORDER)({"id": 7})) == {"id": 7, "count": 1, "note": None}


def test_a_null_passes() -> None:
    assert tg.avro(ORDER)(None) is None
    assert tg.to_avro(ORDER)(None) is None
    assert tg.avro(registry="http://127.0.0.1:1")(None) is None
    assert tg.to_avro(ORDER, registry="http://127.0.0.1:1", topic="t")(None) is None


GOOD = b"\x0e\x04\x02\x06now"

UNDECODABLE = [
    # bytes, what is said of them
    (b"", "they end too early"),
    (GOOD[:-1], "the bytes do not fit the schema shop.Order"),
    (GOOD + b"x", "1 bytes are left behind a value of the schema shop.Order"),
    (b"\x0e\x04\x06", "IndexError"),  # a branch that the union does not have
    (b"\x0e\x04\x02\x02\xff", "UnicodeDecodeError"),
    (b"\x0e\x04\x02\x01", "the bytes do not fit"),  # a length below zero
    (b"\0\0\0\0\7" + GOOD, "it begins like the wire format of a schema registry"),
    (b"\xff" * 40, "the bytes do not fit"),
    ("text", "a str is no Avro"),
    ({"id": 7}, "a dict is no Avro"),
]


@pytest.mark.parametrize(("content", "said"), UNDECODABLE)
def test_bytes_that_do_not_fit_are_undecodable(content: Any, said: str) -> None:
    with pytest.raises(tg.Undecodable, match=said):
        tg.avro(ORDER)(content)


@settings(deadline=None)  # a busy machine says nothing of it
@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_undecodable(content: bytes) -> None:
    decode = tg.avro(EVERYTHING)
    with contextlib.suppress(tg.Undecodable):
        decode(content)


WIRE_UNDECODABLE = [
    (b"", "0 bytes are too few"),
    (b"\0\0\0\1", "4 bytes are too few"),
    (b"\1\0\0\0\1" + GOOD, "the first byte is 1"),
    (b'{"id": 7}', "the first byte is 123"),
    (b"\xff" * 9, "the first byte is 255"),
    (b"\0\x80\0\0\0" + GOOD, "no schema of a registry has the number 2147483648"),
    (b"\0" + b"\xff" * 9, "no schema of a registry has the number 4294967295"),
]


@pytest.mark.parametrize(("content", "said"), WIRE_UNDECODABLE)
def test_what_is_no_wire_format_is_undecodable_without_asking_a_registry(content: bytes, said: str) -> None:
    with pytest.raises(tg.Undecodable, match=said):
        tg.avro(registry="http://127.0.0.1:1")(content)


REJECTED: list[tuple[Any, str]] = [
    ({"count": 1}, "Field id is specified in the schema but missing"),
    ({"id": 7, "more": 1}, "record contains more fields than the schema specifies: more"),
    ({"id": "7"}, "on field id"),
    ({"id": 1.7}, "shop.Order.id is 1.7, expected long"),
    ({"id": True}, "shop.Order.id is True, expected long"),
    ({"id": 7, "count": 2**40}, "shop.Order.count is 1099511627776, expected int"),
    ({"id": 2**70}, "OverflowError"),
    ({"id": 7, "note": b"x"}, "do not match"),
    ("text", "record contains more fields"),
    (7, "shop.Order"),
    ([], "shop.Order"),
]


@pytest.mark.parametrize(("value", "said"), REJECTED)
def test_a_value_that_does_not_fit_is_rejected(value: Any, said: str) -> None:
    with pytest.raises(tg.Reject, match=said):
        tg.to_avro(ORDER)(value)


def test_a_decimal_with_more_digits_than_its_schema_is_rejected() -> None:
    with pytest.raises(tg.Reject, match="Scale"):
        tg.to_avro(EVERYTHING)({**FULL, "price": Decimal("1.255")})


def test_the_text_of_a_rejection_does_not_repeat_the_whole_value() -> None:
    with pytest.raises(tg.Reject) as raised:
        tg.to_avro({"type": "array", "items": "string"})([{"secret": "x" * 1000}])
    assert "xxx" not in str(raised.value)


def test_a_reader_schema_adds_renames_and_drops_fields() -> None:
    newer = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "number", "aliases": ["id"], "type": "double"},
            {"name": "currency", "type": "string", "default": "EUR"},
        ],
    }
    assert tg.avro(ORDER, reader=newer)(GOOD) == {"number": 7.0, "currency": "EUR"}


def test_a_reader_schema_that_does_not_match_is_undecodable() -> None:
    with pytest.raises(tg.Undecodable, match="schema shop"):
        tg.avro(ORDER, reader={**ORDER, "fields": [{"name": "new", "type": "string"}]})(GOOD)


def test_values_nested_many_times_are_decoded() -> None:
    chain = {"type": "record", "name": "Link", "fields": [{"name": "next", "type": ["null", "Link"]}]}
    value = tg.avro(chain)(b"\x02" * 500 + b"\0")
    depth = 0
    while value["next"] is not None:
        value, depth = value["next"], depth + 1
    assert depth == 500


def test_a_union_of_records_is_told_apart_by_the_fields_or_by_a_name() -> None:
    def record(name: str, *fields: str) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [{"name": one, "type": "long"} for one in fields]}

    either = [record("Paid", "amount"), record("Refunded", "amount"), record("Sent", "parcel")]
    encode, decode = tg.to_avro(either), tg.avro(either)
    assert decode(encode({"parcel": 3})) == {"parcel": 3}
    assert (encode({"parcel": 3}) or b"")[0] == 4
    assert (encode(("Refunded", {"amount": 3})) or b"")[0] == 2


# Schemas from files.


def test_a_schema_is_read_from_its_file_when_the_pipeline_is_written(tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(ORDER), encoding="utf-8")
    by_text, by_path = tg.avro(str(path)), tg.avro(path)
    path.unlink()
    assert by_text(GOOD) == by_path(GOOD) == {"id": 7, "count": 2, "note": "now"}


def test_a_name_that_a_file_does_not_define_is_found_beside_it(tmp_path: Path) -> None:
    basket = {
        "type": "record",
        "name": "Basket",
        "namespace": "shop",
        "fields": [{"name": "first", "type": "Order"}, {"name": "rest", "type": {"type": "array", "items": "Order"}}],
    }
    (tmp_path / "shop.Order.avsc").write_text(json.dumps(ORDER), encoding="utf-8")
    (tmp_path / "basket.avsc").write_text(json.dumps(basket), encoding="utf-8")
    whole = own_schema(tmp_path / "basket.avsc")
    value = {"first": {"id": 1, "count": 1, "note": None}, "rest": [{"id": 2, "count": 2, "note": "x"}]}

    assert tg.avro(tmp_path / "basket.avsc")(tg.to_avro(tmp_path / "basket.avsc")(value)) == value
    assert "__" not in whole.text
    assert tg.avro(json.loads(whole.text))(tg.to_avro(tmp_path / "basket.avsc")(value)) == value


def test_a_dict_of_the_program_is_not_changed() -> None:
    before = json.dumps(ORDER)
    tg.to_avro(ORDER)({"id": 1})
    assert json.dumps(ORDER) == before


# What cannot work is said when the pipeline is written.


def broken_file(folder: Path) -> Path:
    (folder / "broken.avsc").write_text("{", encoding="utf-8")
    return folder / "broken.avsc"


REFUSED: list[tuple[Any, str]] = [
    (lambda _: tg.avro(), "needs a schema or a registry"),
    (lambda _: tg.avro(ORDER, registry="http://x"), "and not both"),
    (lambda _: tg.avro(7), "a int is no Avro schema"),  # type: ignore[arg-type]
    (lambda _: tg.avro({"type": "recrd"}), "is no Avro schema"),
    (lambda _: tg.avro({"type": "record", "fields": []}), "is no Avro schema"),
    (lambda _: tg.avro({**ORDER, "fields": [{"name": "x", "type": "Unknown"}]}), "names shop.Unknown, which nothing"),
    (lambda folder: tg.avro(folder / "missing.avsc"), "cannot be read: No such file"),
    (lambda folder: tg.avro(broken_file(folder)), "is no JSON"),
    (lambda _: tg.to_avro(), "has no schema"),
    (lambda _: tg.to_avro(ORDER, topic="orders"), "without a registry"),
    (lambda _: tg.to_avro(ORDER, register=True), "without a registry"),
    (lambda _: tg.to_avro(ORDER, registry="http://x"), "needs a subject or a topic"),
    (lambda _: tg.to_avro(ORDER, registry="http://x", topic="t", subject="s"), "and not both"),
    (lambda _: tg.to_avro(ORDER, registry="http://x", subject="s", key=True), "goes with topic="),
    (lambda _: tg.to_avro(registry="http://x", topic="t", register=True), "has no schema to register"),
    (lambda _: tg.registry("localhost:8081"), "is no address"),
    (lambda _: tg.avro(registry="ftp://x"), "is no address"),
    (lambda _: tg.registry("http://a, b"), "is no address"),
    (lambda _: tg.registry("http://me:secret@x"), "holds a user"),
    (lambda _: tg.registry("http://x", user="me"), "only one of user and password"),
    (lambda _: tg.registry("http://x", user="me", password="p"), "is no secret"),  # type: ignore[arg-type]  # noqa: S106
    (lambda _: tg.registry("http://x", token="t"), "is no secret"),  # type: ignore[arg-type]  # noqa: S106
    (
        lambda _: tg.registry("http://x", user="me", password=tg.secret(lambda: "p"), token=tg.secret(lambda: "t")),
        "a user and a token",
    ),
]


@pytest.mark.parametrize(("make", "said"), REFUSED)
def test_what_cannot_work_is_refused_with_a_reason(make: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(tg.SettingsError, match=said):
        make(tmp_path)


@pytest.mark.parametrize("missing", ["fastavro", "authlib"])
def test_a_missing_extra_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith((f"{missing}.", "confluent_kafka.schema_registry", "tidegate.formats.avro_schemas")) or (
            name in (missing, "tidegate.formats.registry_client")
        ):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(tg.SettingsError, match=rf"tg.avro needs {missing}.*pip install 'tidegate\[avro\]'"):
        tg.avro(registry="http://127.0.0.1:8081")


# Pickled for the workers.


def test_decoders_and_encoders_travel_to_the_workers() -> None:
    place = tg.registry("http://127.0.0.1:1", user="me", password=tg.secret(lambda: "s3cret"))
    sent = pickled((tg.avro(ORDER), tg.to_avro(ORDER), tg.avro(registry=place), tg.avro(registry=place)))
    made = pickle.loads(sent)  # noqa: S301  # our own
    assert made[0](made[1]({"id": 7})) == {"id": 7, "count": 1, "note": None}
    assert made[2]._registry is made[3]._registry, "decoders of one registry share its client"
    assert made[2]._registry.password.reveal() == "s3cret"
    assert "s3cret" not in repr(made[2]._registry)


# As JSON, for people.


def test_every_value_is_shown_as_json_and_read_from_it() -> None:
    shown = as_json(FULL)
    assert (
        json.loads(json.dumps(shown))
        == shown
        == {
            "raw": {"base64": "/wA="},
            "four": "abcd",
            "price": "12.50",
            "at": "2026-01-31T12:00:00.000005+00:00",
            "wall": "2026-01-31T12:00:00",
            "day": "2026-01-31",
            "clock": "12:30:00",
            "number": "00000000-0000-0000-0000-000000000007",
            "colour": "BLUE",
            "either": [1.5, -0.25],
            "counts": {"a": 1},
            "far": "-Infinity",
            "yes": True,
        }
    )
    schema = own_schema(EVERYTHING).parsed
    assert {**from_json(shown, schema), "number": FULL["number"]} == FULL
    assert tg.avro(EVERYTHING)(tg.to_avro(EVERYTHING)(from_json(shown, schema))) == FULL


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}

READ = [
    # JSON, schema, value, because
    (5, "double", 5.0, "JSON has one kind of number"),
    ("2026-01-31T12:00", MILLIS, datetime(2026, 1, 31, 12, tzinfo=UTC), "UTC"),
    (17, MILLIS, 17, "the number itself will do"),
    (1.5, {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, Decimal("1.5"), "as it is written"),
    ("x", ["null", "long", "string"], "x", "the branch that fits"),
    (None, ["null", "string"], None, "null is a branch"),
    ({"next": {"next": None}}, {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]},
     {"next": {"next": None}}, "a schema may name itself"),
]  # fmt: skip


@pytest.mark.parametrize(("given_json", "schema", "value", "because"), READ)
def test_json_is_read_by_the_schema(given_json: Any, schema: Any, value: Any, because: str) -> None:
    parsed = own_schema(schema if isinstance(schema, dict | list) else {"type": schema}).parsed
    assert from_json(given_json, parsed) == value, because


UNREAD = [
    ({"id": "7"}, "id is '7', expected long"),
    ({}, "it lacks id, which shop.Order needs"),
    ({"id": 7, "more": 1}, "it has more, which shop.Order does not have"),
    ({"id": 7, "note": 5}, "note is 5, expected null and note is 5, expected string"),
    ({"id": True}, "id is True, expected long"),
    (["id"], "it is list, expected an object"),
]


@pytest.mark.parametrize(("given_json", "said"), UNREAD)
def test_json_that_does_not_fit_says_where(given_json: Any, said: str) -> None:
    with pytest.raises(tg.Reject, match=said):
        from_json(given_json, own_schema(ORDER).parsed)


def test_a_moment_that_is_none_says_so() -> None:
    with pytest.raises(tg.Reject, match="it is 'soon', expected a date in ISO form"):
        from_json("soon", {"type": "int", "logicalType": "date"})
