"""Values into columns: which parts a value has, and what each becomes on its way to the server."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

import orjson
from pydantic import BaseModel

from tidegate.errors import Reject

_PLAIN = frozenset({type(None), bool, int, float, str, bytes, Decimal, datetime, date, time, timedelta, UUID})
"""What is passed on without a second look: nearly every value of nearly every record."""

_K = TypeVar("_K", str, int)


class JsonText(str):
    """A part of a value as JSON text; `items` is the list it was made of, which an array column takes instead."""

    __slots__ = ("items",)
    items: list[Any] | None

    def __new__(cls, text: str, items: list[Any] | None = None) -> JsonText:
        """Keep the list beside the text."""
        made = super().__new__(cls, text)
        made.items = items
        return made


def fields_of(value: Any) -> Mapping[str, Any]:
    """Return a value's parts by name, or reject it."""
    fields = value if type(value) is dict else _named_parts(value)
    if fields is None:
        raise Reject(
            f"a {type(value).__name__} has no columns: "
            "make it a mapping, a dataclass, a pydantic model or a named tuple"
        )
    if not fields:
        raise Reject("the value has no columns at all")
    for name in fields:
        if not isinstance(name, str):
            raise Reject(f"{name!r} cannot be a column's name: a {type(name).__name__} is no text")
    return fields


def sequence_of(value: Any) -> Sequence[Any]:
    """Return a value's parts by place, or reject it."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return value
    raise Reject(f"the statement takes its values by place, and a {type(value).__name__} has none: make it a tuple")


def fitting(parts: Mapping[_K, Any]) -> dict[_K, Any]:
    """Return the parts as they go to the server, or reject what never can."""
    return {name: part if type(part) in _PLAIN else _fitting_part(name, part) for name, part in parts.items()}


def _named_parts(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, BaseModel):
        return value.model_dump()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    return None


def _fitting_part(name: object, part: Any) -> Any:
    if isinstance(part, list) or (isinstance(part, tuple) and not hasattr(part, "_asdict")):
        return JsonText(_json(name, part), list(part))
    if type(part) is dict or _named_parts(part) is not None:
        return JsonText(_json(name, part))
    kind: type = type(part)
    if _is_adapted(kind):
        return part
    raise Reject(f"{name}: a {type(part).__name__} can be neither a column's value nor JSON")


def _json(name: object, part: Any) -> str:
    try:
        return orjson.dumps(part, _json_part, orjson.OPT_NON_STR_KEYS).decode()
    except TypeError as error:
        raise Reject(f"{name}: a {type(part).__name__} that cannot be JSON: {error}") from error


def _json_part(part: Any) -> Any:
    """Say what something inside of JSON becomes that orjson does not know."""
    if isinstance(part, Decimal | timedelta):
        return str(part)  # a float would not hold every digit
    found = _named_parts(part)
    if found is None:
        raise TypeError(f"a {type(part).__name__} is inside")
    return dict(found)


@cache
def _is_adapted(kind: type) -> bool:
    import psycopg  # noqa: PLC0415  # an extra: only who uses this sink needs it
    from psycopg.adapt import PyFormat  # noqa: PLC0415  # as above

    try:
        psycopg.adapters.get_dumper(kind, PyFormat.TEXT)
    except psycopg.ProgrammingError:
        return False
    return True


_SQL_TYPES: list[tuple[type, str]] = [
    (JsonText, "jsonb"),
    (bool, "boolean"),
    (int, "bigint"),
    (float, "double precision"),
    (Decimal, "numeric"),
    (bytes, "bytea"),
    (datetime, "timestamptz"),
    (date, "date"),
    (time, "time"),
    (timedelta, "interval"),
    (UUID, "uuid"),
]


def table_for(table: Sequence[str], values: Mapping[str, Any], key: Sequence[str]) -> str:
    """Return a statement that makes a table for such values: a proposal to read and to correct."""
    columns = [f"{quoted(name)} {_sql_type(part)}" for name, part in values.items()]
    ends = [f"primary key ({', '.join(map(quoted, key))})"] if key else []
    return f"create table {'.'.join(map(quoted, table))} ({', '.join(columns + ends)})"


def quoted(name: str) -> str:
    """Return a name exactly as it is: in quotes, capital letters, spaces and SQL's own words mean nothing else."""
    return '"' + name.replace('"', '""') + '"'


def _sql_type(part: Any) -> str:
    return next((name for kind, name in _SQL_TYPES if isinstance(part, kind)), "text")
