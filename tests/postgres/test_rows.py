"""What a value becomes in its table, and what happens to rows that are there already."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pytest
from pydantic import BaseModel

import tidegate as tg
from tests.postgres.support import P0, Database, bulk, effect, made, mark, store_of
from tidegate.sinks.postgres import PostgresSink
from tidegate.store import Poisoned


@dataclasses.dataclass
class Order:
    id: int
    note: str


class OrderTuple(NamedTuple):
    id: int
    note: str


class Line(BaseModel):
    sku: str


class OrderModel(BaseModel):
    id: int
    note: str
    lines: list[Line] = []


class Colour(Enum):
    RED = 1


def written(sink: PostgresSink, *values: object) -> None:
    store = store_of(sink)
    store.begin([P0], b"")
    assert store.seal(bulk(sink, *values), mark(len(values))) == {}


def notes(database: Database) -> list[tuple[Any, ...]]:
    return database.ask("select * from orders order by id")


VALUES = [
    # given, column type, what is read back, because
    (7, "bigint", 7, "a number is a number"),
    ("7", "bigint", 7, "text is read by the server"),
    (7, "text", "7", "and so is a number in a column of text"),
    (None, "bigint", None, "nothing is null"),
    (True, "boolean", True, ""),
    (1.5, "double precision", 1.5, ""),
    (Decimal("1.10"), "numeric", Decimal("1.10"), "no digit is lost"),
    ("1.10", "numeric", Decimal("1.10"), ""),
    ("2026-01-31", "date", date(2026, 1, 31), "a date may come as text, as JSON has it"),
    ("2026-01-31T10:00:00Z", "timestamptz", datetime(2026, 1, 31, 10, tzinfo=UTC), ""),
    (datetime(2026, 1, 31, 10, tzinfo=UTC), "timestamptz", datetime(2026, 1, 31, 10, tzinfo=UTC), ""),
    (timedelta(hours=1), "interval", timedelta(hours=1), ""),
    (UUID(int=1), "uuid", UUID(int=1), ""),
    (b"\x00\xff", "bytea", b"\x00\xff", ""),
    ("tab\tnew\nline \\N \\.", "text", "tab\tnew\nline \\N \\.", "what COPY itself writes so is only text here"),
    ({"a": [1, None]}, "jsonb", {"a": [1, None]}, "a dict goes as JSON"),
    ([1, "x"], "jsonb", [1, "x"], "a list goes as JSON"),
    ([1, 2], "integer[]", [1, 2], "but into an array as an array"),
    (["a,b", None, '"'], "text[]", ["a,b", None, '"'], ""),
    ((1, 2), "integer[]", [1, 2], "a tuple is a list"),
    ({"price": Decimal("1.10")}, "jsonb", {"price": "1.10"}, "in JSON a decimal is text: a float would lose digits"),
    (Order(1, "x"), "jsonb", {"id": 1, "note": "x"}, "a dataclass inside is JSON"),
    ([Line(sku="a")], "jsonb", [{"sku": "a"}], "a model inside is JSON"),
    (OrderTuple(1, "x"), "jsonb", {"id": 1, "note": "x"}, "a named tuple inside has names"),
    (Colour.RED, "text", "RED", "what psycopg adapts goes as it does it"),
    ({}, "text", "{}", ""),
]


@pytest.mark.parametrize(("given", "column", "read", "because"), VALUES)
def test_values_arrive_as_they_should(database: Database, given: Any, column: str, read: Any, because: str) -> None:
    database.do(f"create table orders (id integer primary key, part {column})")

    written(tg.postgres(database.dsn, table="orders"), {"id": 1, "part": given})
    written(tg.postgres(database.dsn, table="orders", key="id"), {"id": 2, "part": given})

    assert notes(database) == [(1, read), (2, read)], because


WHOLE = [Order(1, "x"), OrderTuple(1, "x"), OrderModel(id=1, note="x"), {"note": "x", "id": 1}]


@pytest.mark.parametrize("value", WHOLE, ids=lambda value: type(value).__name__)
def test_whatever_has_names_is_a_row(database: Database, value: object) -> None:
    sink = tg.postgres(database.dsn, table="orders", columns={"id": "int", "note": "text", "lines": "jsonb"})

    written(sink, value)

    assert database.ask("select id, note from orders") == [(1, "x")]


WRONG = [
    # value, error, because
    ({"id": "seven"}, tg.Reject, "no number will come of it"),
    ({"id": 2**63}, tg.Reject, "it is out of range"),
    ({"id": None}, tg.Reject, "it must not be null"),
    ({"id": 1, "note": "a\0b"}, tg.Reject, "text in PostgreSQL holds no NUL"),
    ({"id": 1, "note": "\ud800"}, tg.Reject, "half a character is no text"),
    ({"id": 1, "nope": 1}, psycopg.errors.UndefinedColumn, "somebody may add the column"),
    ({"id": 1, "positive": -1}, psycopg.errors.CheckViolation, "somebody may change the rule"),
    ({"id": 0}, psycopg.errors.UniqueViolation, "somebody may delete the other"),
]


@pytest.mark.parametrize(("value", "error", "because"), WRONG)
def test_a_wrong_value_fails_its_record_alone(
    database: Database, value: object, error: type[Exception], because: str
) -> None:
    database.do("create table orders (id bigint primary key, note text, positive int check (positive > 0))")
    database.do("insert into orders (id) values (0)")
    sink = tg.postgres(database.dsn, table="orders")
    store = store_of(sink)
    store.begin([P0], b"")

    with pytest.raises(Poisoned):
        store.seal(bulk(sink, {"id": 5}, value), mark(2))
    answer = store.seal(bulk(sink, value), mark(1))

    assert {at: type(found) for at, found in answer.items()} == {0: error}, because
    assert (database.ids(), database.marks()) == ([0], {})
    assert store.seal(bulk(sink, {"id": 5}), mark(1)) == {}


OLD = (1, "old", "old")
CONFLICTS: list[tuple[str | None, Sequence[dict[str, Any]], list[tuple[Any, ...]], str]] = [
    # on_conflict, values of one bulk, the rows afterwards, because
    (None, [{"id": 2, "a": "x"}], [OLD, (2, "x", "d")], "what is left out takes its default"),
    (None, [{"id": 1, "a": "x"}], [(1, "x", "old")], "only the columns that the value has are set"),
    (None, [{"id": 1, "a": "x"}, {"id": 1, "a": "y"}], [(1, "y", "old")], "the last wins"),
    (None, [{"id": 2, "a": "x"}, {"id": "2", "a": "y"}], [OLD, (2, "y", "d")], "what is the same key the server says"),
    (None, [{"id": 1, "a": "x"}, {"id": 1, "b": "y"}, {"id": 1, "a": "z"}], [(1, "z", "y")], "as one after the other"),
    (None, [{"id": 1, "a": "x", "b": "x"}, {"id": "01", "a": "z"}], [(1, "z", "x")], "other columns, the same key"),
    (None, [{"id": 2, "b": "x"}, {"id": 2, "a": "z"}, {"id": 3}], [OLD, (2, "z", "x"), (3, None, "d")], "not there"),
    (None, [{"id": 1}], [OLD], "there is nothing to set"),
    ("ignore", [{"id": 1, "a": "x"}, {"id": 2, "a": "x"}], [OLD, (2, "x", "d")], "the old one stays"),
    ("ignore", [{"id": 2, "a": "x"}, {"id": 2, "a": "y"}], [OLD, (2, "x", "d")], "the first wins"),
    ("ignore", [{"id": 2, "b": "x"}, {"id": "2", "a": "y", "b": "y"}], [OLD, (2, None, "x")], "other columns too"),
    ("ignore", [{"id": 2, "a": "y", "b": "y"}, {"id": 2, "b": "x"}], [OLD, (2, "y", "y")], "in either order"),
]


@pytest.mark.parametrize(("on_conflict", "values", "rows", "because"), CONFLICTS)
def test_rows_that_are_there_already(
    database: Database,
    on_conflict: Any,
    values: Sequence[dict[str, Any]],
    rows: list[tuple[Any, ...]],
    because: str,
) -> None:
    columns = {"id": "bigint primary key", "a": "text", "b": "text default 'd'"}
    sink = tg.postgres(database.dsn, table="orders", key="id", on_conflict=on_conflict, columns=columns)
    store = store_of(sink)
    store.begin([P0], b"")
    database.do("insert into orders values (1, 'old', 'old')")

    assert store.seal(bulk(sink, *values), mark(1)) == {}
    assert notes(database) == rows, because


def test_without_a_key_ignore_looks_at_every_unique_index(database: Database) -> None:
    database.do("create table orders (id bigint primary key, a text unique, b text)")
    sink = tg.postgres(database.dsn, table="orders", on_conflict="ignore")

    written(sink, {"id": 1, "a": "x"}, {"id": 1, "a": "y", "b": "y"}, {"id": 2, "a": "x"}, {"id": 3, "a": "z"})

    assert notes(database) == [(1, "x", None), (3, "z", None)]


def test_a_key_of_several_columns_and_rows_without_a_whole_key(database: Database) -> None:
    database.do("create table orders (id bigint, shop text, n int, unique (id, shop))")
    sink = tg.postgres(database.dsn, table="orders", key=("shop", "id"))

    written(sink, *({"id": 1, "shop": shop, "n": n} for n, shop in enumerate(["a", "b", "a", None, None])))

    assert sorted(notes(database), key=lambda row: row[2]) == [
        (1, "b", 1),
        (1, "a", 2),
        (1, None, 3),  # nulls are not the same key: both are there
        (1, None, 4),
    ]


def test_a_key_that_is_not_unique_says_what_to_do(database: Database) -> None:
    database.do("create table orders (id bigint)")
    sink = tg.postgres(database.dsn, table="orders", key="id")
    store = store_of(sink)
    store.begin([P0], b"")

    [error] = store.seal(bulk(sink, {"id": 1}), mark(1)).values()

    assert isinstance(error, tg.DatabaseRefused)
    assert "create a unique index" in str(error)


def test_a_missing_table_is_an_error_that_shows_how_to_make_it(database: Database) -> None:
    sink = tg.postgres(database.dsn, table="orders", key="id")
    store = store_of(sink)
    store.begin([P0], b"")
    value = {"id": 1, "note": "x", "at": datetime.now(UTC), "doc": {"a": 1}, "Paid": True, "price": 1.5}

    [error] = store.seal(bulk(sink, value), mark(1)).values()

    assert isinstance(error, tg.DatabaseRefused)
    assert error.happened == "the table orders does not exist"
    database.do(error.cure.partition("make it: ")[2])
    assert store.seal(bulk(sink, value), mark(1)) == {}
    assert database.ids() == [1]


def test_a_table_that_grows_while_it_is_written_is_seen(database: Database) -> None:
    database.do("create table orders (id bigint primary key, n smallint)")
    sink = tg.postgres(database.dsn, table="orders", key="id")
    store = store_of(sink)
    store.begin([P0], b"")
    store.seal(bulk(sink, {"id": 1, "n": 1}), mark(1))

    database.do("alter table orders alter n type bigint, add more text[]")
    assert store.seal([effect(1, made(sink, {"id": 2, "n": 2**40, "more": ["x"]}))], mark(2)) == {}

    assert notes(database) == [(1, 1, None), (2, 2**40, ["x"])]


def test_names_are_taken_as_they_are(database: Database) -> None:
    database.do('create schema "Shop"')
    columns = {"order": "bigint primary key", "Cust omer": "text", 'a"b%s': "text"}
    try:
        sink = tg.postgres(database.dsn, table="Shop.select", key="order", columns=columns)
        written(sink, {"order": 1, "Cust omer": "x", 'a"b%s': "y"}, {"order": 1, "Cust omer": "z"})
        assert database.ask('select * from "Shop"."select"') == [(1, "z", "y")]
    finally:
        database.do('drop schema "Shop" cascade')


def test_a_statement_runs_once_per_value_in_order(database: Database) -> None:
    database.do("create table orders (id bigint primary key, note text, doc jsonb, n int default 0)")
    by_name = tg.postgres(
        database.dsn,
        sql="insert into orders (id, note, doc) values (%(id)s, %(note)s, %(doc)s) "
        "on conflict (id) do update set note = orders.note || excluded.note, n = orders.n + 1",
    )

    written(by_name, *({"id": 1, "note": each, "doc": [each], "unused": object()} for each in "abc"))

    assert notes(database) == [(1, "abc", ["a"], 2)]


def test_a_statement_takes_values_by_place(database: Database) -> None:
    database.do("create table orders (id bigint, note text)")
    sink = tg.postgres(database.dsn, sql="insert into orders values (%s, '100%%' || %s)")

    written(sink, (1, "a"), [2, "b"], OrderTuple(3, "c"))

    assert notes(database) == [(1, "100%a"), (2, "100%b"), (3, "100%c")]


def test_a_statement_that_fails_for_one_value_writes_nothing(database: Database) -> None:
    database.do("create table orders (id bigint primary key)")
    sink = tg.postgres(database.dsn, sql="insert into orders values (%s)")
    store = store_of(sink)
    store.begin([P0], b"")

    with pytest.raises(Poisoned) as poisoned:
        store.seal(bulk(sink, (1,), (2,), (1,), (3,)), mark(4))
    assert isinstance(poisoned.value.__cause__, psycopg.errors.UniqueViolation)
    assert (database.ids(), database.marks()) == ([], {})
    assert isinstance(store.seal(bulk(sink, ("x",)), mark(1))[0], tg.Reject)
    assert store.seal(bulk(sink, (1,), (2,)), mark(2)) == {}
