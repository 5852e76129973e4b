"""Bytes by which few of them would end a worker, or keep it busy for hours: no value, and nothing worse."""

from __future__ import annotations

import contextlib
from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.test_avro import EVERYTHING, FULL, ORDER
from tidegate.formats.avro_bounds import DECIMAL_BYTES, MOST_EMPTY_ITEMS, MOST_LEVELS, Bounds, bounds_of
from tidegate.formats.avro_json import MOST_SHOWN_LEVELS, as_json
from tidegate.formats.avro_schemas import own_schema
from tidegate.ops.plain import plain

Schema = dict[str, Any]


def record(name: str, **fields: Any) -> Schema:
    return {"type": "record", "name": name, "fields": [{"name": one, "type": of} for one, of in fields.items()]}


NODE = record("Node", next=["null", "Node"])
TREE = record("Tree", of={"type": "array", "items": "Tree"})
NAMES = record("Names", of={"type": "map", "values": "Names"})
BOTH = record("A", b=record("B", a=["null", "A"]))
ENDLESS = record("Endless", itself="Endless")
TURNING = record("Front", back=record("Back", front="Front"))
NULLS: Schema = {"type": "array", "items": "null"}
NOTHINGS: Schema = {
    "type": "array",
    "items": record("Nothing", none="null", zero={"type": "fixed", "name": "Z", "size": 0}),
}
PRICE: Schema = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
LONGEST = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
"""2**63 - 1, as Avro writes it."""
BELOW_ZERO = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
MEGABYTE = b"\xc0\x89\x7a"
"""1,000,000 as a length."""

HOSTILE: list[tuple[str, Any, bytes, str]] = [
    ("a list that holds itself", NODE, b"\x02" * 1_000_000, "nested deeper than"),
    ("a tree", TREE, b"\x02" * 1_000_000, "nested deeper than"),
    ("maps in maps", NAMES, b"\x02\x00" * 500_000, "nested deeper than"),
    ("two that hold each other", BOTH, b"\x02" * 1_000_000, "nested deeper than"),
    ("a value without an end", ENDLESS, b"", "nested deeper than"),
    ("two values without an end", TURNING, b"", "nested deeper than"),
    ("a list of those", {"type": "array", "items": ENDLESS}, b"\x02", "nested deeper than"),
    ("items that take no bytes", NULLS, LONGEST + b"\0", "items without content"),
    ("blocks of them", NULLS, (b"\xc0\x9a\x0c" * 10) + b"\0", "items without content"),
    ("a block counted backwards", NULLS, BELOW_ZERO + b"\0\0", "items without content"),
    ("records that take no bytes", NOTHINGS, LONGEST + b"\0", "items without content"),
    ("those within others", record("Outer", inner=[NOTHINGS]), b"\0" + LONGEST + b"\0", "items without content"),
    ("a decimal of a megabyte", PRICE, MEGABYTE + b"\x7f" * 1_000_000, "more digits than its precision"),
    ("one within a union", ["null", PRICE], b"\2" + MEGABYTE + b"\x7f" * 1_000_000, "more digits"),
    ("a text as long as all memory", {"type": "string"}, LONGEST, "they end too early"),
    ("a list as long as all memory", {"type": "array", "items": "long"}, LONGEST + b"\2", "they end too early"),
    ("a length below zero", record("R", a=NULLS, b="bytes"), b"\0\1", "a length is -1"),
    ("a number of a hundred bytes", record("R", a=NULLS, b="long"), b"\0" + b"\xff" * 100, "more than 64 bits"),
    ("a branch below zero", record("R", a=NULLS, b=["null"]), b"\0\1", "has no branch -1"),
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("schema", "content", "said"), [one[1:] for one in HOSTILE], ids=[one[0] for one in HOSTILE])
def test_bytes_that_would_end_their_worker_or_never_come_to_an_end_are_undecodable(
    schema: Any, content: bytes, said: str
) -> None:
    for reader in (None, schema):
        with pytest.raises(tg.Undecodable, match=said):
            tg.avro(schema, reader=reader)(content)


SCHEMAS = [EVERYTHING, ORDER, NODE, TREE, NAMES, BOTH, ENDLESS, NULLS, NOTHINGS, PRICE, record("R", a=NULLS, b=TREE)]
ALL_KINDS = [*SCHEMAS, *({"type": kind} for kind in ("null", "boolean", "int", "long", "float", "double", "string"))]
many = st.sampled_from([b"\x02", b"\x02\x00", b"\xff", LONGEST, BELOW_ZERO, MEGABYTE])
contents = st.lists(st.binary(max_size=8) | st.builds(bytes.__mul__, many, st.integers(0, 3000)), max_size=5).map(
    b"".join
)


@settings(deadline=None)  # a busy machine says nothing of it
@given(st.sampled_from(ALL_KINDS), contents)
def test_any_bytes_are_a_value_that_can_be_shown_or_undecodable(schema: Any, content: bytes) -> None:
    with contextlib.suppress(tg.Undecodable):
        orjson.dumps(plain(as_json(tg.avro(schema)(content))))


def nested(levels: int) -> Any:
    value: Any = {"next": None}
    for _ in range(levels - 1):
        value = {"next": value}
    return value


def test_values_may_be_nested_deeply_and_no_deeper_ones_than_can_be_decoded_safely() -> None:
    value, levels = tg.avro(NODE)(b"\x02" * (MOST_LEVELS - 1) + b"\0"), 0
    while value is not None:
        value, levels = value["next"], levels + 1
    assert levels == MOST_LEVELS
    with pytest.raises(tg.Undecodable, match="nested deeper than 1000 levels"):
        tg.avro(NODE)(b"\x02" * MOST_LEVELS + b"\0")


def test_what_is_nested_too_deep_for_json_is_not_shown_as_such() -> None:
    assert orjson.dumps(plain([as_json(nested(MOST_SHOWN_LEVELS))]))
    with pytest.raises(tg.Undecodable, match="too deep to be shown"):
        as_json(nested(MOST_SHOWN_LEVELS + 1))


def test_items_without_content_and_long_decimals_are_values_within_bounds() -> None:
    nulls = [None] * MOST_EMPTY_ITEMS
    assert tg.avro(NULLS)(tg.to_avro(NULLS)(nulls)) == nulls
    exact = {"type": "bytes", "logicalType": "decimal", "precision": 2000, "scale": 0}
    number = Decimal(10**1999 + 7)
    written = tg.to_avro(exact)(number)
    assert written is not None
    assert len(written) > DECIMAL_BYTES * 2
    assert tg.avro(exact)(written) == number


ANYTHING = record(
    "Anything",
    every=EVERYTHING,
    more={"type": "map", "values": {"type": "array", "items": ["Anything", "null"]}},
    none="null",
    far={"type": "float"},
)
anythings = st.recursive(
    st.just({"every": FULL, "more": {}, "none": None, "far": 0.5}),
    lambda of: st.dictionaries(st.text(max_size=3), st.lists(st.none() | of, max_size=3), max_size=3).map(
        lambda more: {"every": FULL, "more": more, "none": None, "far": -1.0}
    ),
    max_leaves=8,
)


def walked(schema: Any) -> Bounds:
    """Return the bounds of a schema, as those that look at every byte."""
    parsed = own_schema(schema).parsed
    found = bounds_of(parsed)
    assert found is not None
    return Bounds(parsed, found.named, -1)


@settings(deadline=None)  # a busy machine says nothing of it
@given(anythings)
def test_whatever_was_written_by_a_schema_passes(value: Any) -> None:
    content = tg.to_avro(ANYTHING)(value)
    assert content is not None
    walked(ANYTHING).check(content)
    assert tg.avro(ANYTHING)(content) == value


def test_lists_in_blocks_with_their_size_pass() -> None:
    blocks = b"\x03\x04\x00\x00\x02\x00\x00"  # two items and their size in bytes, then one, then the end
    assert tg.avro(TREE)(blocks) == {"of": [{"of": []}] * 3}
    walked(TREE).check(blocks)


def test_schemas_in_which_nothing_can_go_wrong_are_not_walked() -> None:
    plain_ones = [ORDER, {"type": "array", "items": "long"}, {"type": "map", "values": "null"}, ["null", "string"]]
    assert [bounds_of(own_schema(one).parsed) for one in plain_ones] == [None] * 4
    found = bounds_of(own_schema(EVERYTHING).parsed)
    assert found is not None
    assert found.free_bytes == DECIMAL_BYTES
