"""PostgreSQL as a sink, without a server: what is refused at build, and what values can become."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest

import tidegate as tg
from tests.postgres.support import made
from tidegate.sinks.postgres import PostgresSink
from tidegate.sinks.postgres_values import JsonText

DSN = "postgresql://clerk:hunter2@db.example.com:6432/shop"

REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (DSN, {}, "neither table nor sql"),
    (DSN, {"table": "orders", "sql": "insert"}, "both table and sql"),
    (DSN, {"table": "orders", "on_conflict": "replace"}, 'choose "update", "ignore" or "error"'),
    (DSN, {"table": "orders", "on_conflict": "update"}, 'key="id"'),
    (DSN, {"table": "a.b.c"}, "is no table's name"),
    (DSN, {"table": ""}, "is no table's name"),
    (DSN, {"table": "orders", "key": ("id", "")}, "does not name columns"),
    (DSN, {"table": "orders", "key": "id", "columns": {"nr": "bigint"}}, "not among the columns"),
    (DSN, {"table": "orders", "columns": {}}, "makes no table"),
    (DSN, {"sql": "  "}, "no statement"),
    (DSN, {"sql": "select 1"}, "no placeholder"),
    (DSN, {"sql": "select '100%%s'"}, "no placeholder"),
    (DSN, {"sql": "select %s, %(id)s"}, "both %s and %(name)s"),
    (DSN, {"sql": "select %(id)s", "key": "id"}, "are about a table"),
    ("", {"table": "orders"}, "cannot be read"),
    ("postgres//clerk:hunter2@db/shop", {"table": "orders"}, "cannot be read"),
    ("postgresql://clerk:hunter2@db/shop?nope=1", {"table": "orders"}, "cannot be read"),
    (5, {"table": "orders"}, "pass a dsn"),
]


@pytest.mark.parametrize(("dsn", "options", "words"), REFUSED)
def test_nonsense_is_refused_when_it_is_built(dsn: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(tg.SettingsError) as refused:
        tg.postgres(dsn, **options)
    assert words in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(tg.SettingsError, match=r"pip install 'tidegate\[postgres\]'"):
        tg.postgres(DSN, table="orders")


def test_the_package_needs_no_postgres_client() -> None:
    program = "import sys; sys.modules['psycopg'] = None; import tidegate; assert tidegate.postgres"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_sink_shows_neither_password_nor_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_DSN", DSN)
    plain, hidden = (tg.postgres(dsn, table="orders") for dsn in (DSN, tg.secret("env:SHOP_DSN")))

    assert plain.identity == "postgres db.example.com:6432/shop orders"
    assert hidden.identity == "postgres secret(env:SHOP_DSN) orders"
    assert "hunter2" not in repr(plain) + repr(hidden)


def test_a_sink_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_DSN", DSN)
    sink = tg.postgres(tg.secret("env:SHOP_DSN"), table="shop.orders", key=("shop", "id"), on_conflict="ignore")
    row = made(sink, {"shop": 1, "id": 2})
    back: PostgresSink = pickle.loads(pickle.dumps(sink))  # noqa: S301  # our own bytes

    assert (back.identity, back.target, back.collects) == (sink.identity, sink.target, True)
    assert row.target == back.target, "a row knows its target after the trip too"


DEFAULTS = [
    ({"table": "t"}, "error"),
    ({"table": "t", "key": "id"}, "update"),
    ({"table": "t", "key": ("a", "b")}, "update"),
    ({"table": "t", "key": "id", "on_conflict": "error"}, "error"),
    ({"table": "t", "on_conflict": "ignore"}, "ignore"),
]


@pytest.mark.parametrize(("options", "chosen"), DEFAULTS)
def test_the_choice_follows_the_key(options: dict[str, Any], chosen: str) -> None:
    assert tg.postgres(DSN, **options).target.on_conflict == chosen


def test_a_value_becomes_one_row_for_its_target() -> None:
    sink = tg.postgres(DSN, table="orders")
    row = made(sink, {"id": 1, "doc": {"a": 1}, "tags": ["x"]})

    assert row.target is sink.target
    assert row.values == {"id": 1, "doc": '{"a":1}', "tags": '["x"]'}
    assert isinstance(row.values, dict)
    assert isinstance(row.values["tags"], JsonText)
    assert row.values["tags"].items == ["x"]


NEVER: list[tuple[dict[str, Any], object, str]] = [
    ({"table": "t"}, 5, "a int has no columns"),
    ({"table": "t"}, None, "a NoneType has no columns"),
    ({"table": "t"}, [{"id": 1}], "a list has no columns"),
    ({"table": "t"}, "text", "a str has no columns"),
    ({"table": "t"}, dict, "a type has no columns"),
    ({"table": "t"}, {}, "no columns at all"),
    ({"table": "t"}, {1: "x"}, "1 cannot be a column's name"),
    ({"table": "t"}, {"id": object()}, "id: a object can be neither"),
    ({"table": "t"}, {"id": {1, 2}}, "id: a set can be neither"),
    ({"table": "t"}, {"id": [{1, 2}]}, "id: a list that cannot be JSON"),
    ({"table": "t"}, {"id": {"a": b"x"}}, "id: a dict that cannot be JSON"),
    ({"table": "t", "key": ("a", "b")}, {"a": 1}, "the key is b, which the value does not have"),
    ({"sql": "select %(a)s, %(b)s"}, {"a": 1}, "asks for b, which the value does not have"),
    ({"sql": "select %(a)s"}, (1,), "a tuple has no columns"),
    ({"sql": "select %s"}, {"a": 1}, "a dict has none: make it a tuple"),
    ({"sql": "select %s"}, "x", "a str has none: make it a tuple"),
]


@pytest.mark.parametrize(("options", "value", "words"), NEVER)
def test_what_can_never_be_a_row_is_rejected(options: dict[str, Any], value: object, words: str) -> None:
    with pytest.raises(tg.Reject) as rejected:
        made(tg.postgres(DSN, **options), value)
    assert words in str(rejected.value)


def test_outside_of_a_records_work_there_is_nothing_to_add_to() -> None:
    with pytest.raises(tg.SettingsError, match="outside of a record's work"):
        tg.postgres(DSN, table="orders")({"id": 1})
