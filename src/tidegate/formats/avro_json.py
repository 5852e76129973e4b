"""Pure: Avro's values as plain JSON, and back by a schema. For people who look at records, or type them."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

from tidegate.errors import Reject, Undecodable

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_BASE64 = "base64"
MOST_SHOWN_LEVELS = 200
"""What writes JSON ends at 254."""


def as_json(value: Any, levels: int = MOST_SHOWN_LEVELS) -> Any:
    """Return a decoded value as JSON can hold it; one that is nested deeper than that is `Undecodable`.

    Bytes become text, or `{"base64": ...}` where they are none; times are in ISO form; decimals are text, since a
    number would lose digits.
    """
    if isinstance(value, Mapping | list | tuple):
        if not levels:
            raise Undecodable(f"it is nested too deep to be shown as JSON: more than {MOST_SHOWN_LEVELS} levels")
        if isinstance(value, Mapping):
            return {str(name): as_json(one, levels - 1) for name, one in value.items()}
        return [as_json(one, levels - 1) for one in value]
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return next(word for word, one in _NOT_FINITE.items() if str(one) == str(value))
    return value if value is None or isinstance(value, str | int | float) else str(value)


def from_json(value: Any, schema: Any) -> Any:
    """Return what an encoder takes: the reverse of `as_json`. What does not fit the schema is a `Reject`.

    The schema is one that was prepared. Of a union the first branch that fits is taken.
    """
    named: dict[str, Any] = {}
    _collect(schema, named)
    try:
        return _made(value, schema, named, "it")
    except _Unfit as error:
        raise Reject(f"the value does not fit the schema: {error}") from None


def _collect(schema: Any, named: dict[str, Any]) -> None:
    """Find every named type in a schema: each is defined once and then referred to by its full name."""
    if isinstance(schema, list):
        for branch in schema:
            _collect(branch, named)
    elif isinstance(schema, Mapping):
        if "name" in schema:
            named[schema["name"]] = schema
        for inner in (schema.get("items"), schema.get("values"), *(one["type"] for one in schema.get("fields", ()))):
            _collect(inner, named)


class _Unfit(Exception):
    """This value does not fit this schema; another branch of a union may do."""


def _made(value: Any, schema: Any, named: Mapping[str, Any], where: str) -> Any:
    if isinstance(schema, str) and schema in named:
        schema = named[schema]
    if isinstance(schema, list):
        return _of_union(value, schema, named, where)
    kind = schema["type"] if isinstance(schema, Mapping) else schema
    if kind in ("record", "error"):
        return _of_record(value, schema, named, where)
    if kind == "array":
        _expect(isinstance(value, list), value, where, "an array")
        return [_made(one, schema["items"], named, f"{where}[{at}]") for at, one in enumerate(value)]
    if kind == "map":
        _expect(isinstance(value, dict), value, where, "an object")
        return {name: _made(one, schema["values"], named, f"{where}.{name}") for name, one in value.items()}
    if kind == "enum":
        _expect(value in schema["symbols"], value, where, f"one of {', '.join(schema['symbols'])}")
        return value
    logical = schema.get("logicalType") if isinstance(schema, Mapping) else None
    return _of_plain(value, kind, logical, where)


def _of_union(value: Any, branches: list[Any], named: Mapping[str, Any], where: str) -> Any:
    reasons = []
    for branch in branches:
        try:
            return _made(value, branch, named, where)
        except _Unfit as error:
            reasons.append(str(error))
    raise _Unfit(" and ".join(reasons))


def _of_record(value: Any, schema: Mapping[str, Any], named: Mapping[str, Any], where: str) -> Any:
    _expect(isinstance(value, dict), value, where, "an object")
    fields = {field["name"]: field for field in schema["fields"]}
    if more := sorted(set(value) - set(fields)):
        raise _Unfit(f"{where} has {more[0]}, which {schema['name']} does not have")
    made = {}
    for name, field in fields.items():
        if name in value:
            made[name] = _made(value[name], field["type"], named, name if where == "it" else f"{where}.{name}")
        elif "default" not in field:
            raise _Unfit(f"{where} lacks {name}, which {schema['name']} needs")
    return made


def _of_plain(value: Any, kind: str, logical: str | None, where: str) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if logical == "decimal":
        return _read(value, Decimal, where, "a decimal", known=is_number or isinstance(value, str))
    if logical is not None and isinstance(value, str) and (read := _MOMENTS.get(logical.rpartition("-")[0] or logical)):
        return _read(value, read, where, f"a {logical} in ISO form", known=True)
    match kind:
        case "bytes" | "fixed":
            return _read(value, _bytes, where, 'text or {"base64": ...}', known=isinstance(value, str | dict))
        case "int" | "long":
            _expect(is_number and isinstance(value, int), value, where, kind)
        case "float" | "double":
            if isinstance(value, str) and value in _NOT_FINITE:
                return _NOT_FINITE[value]
            _expect(is_number, value, where, kind)
            return float(value)
        case "boolean":
            _expect(isinstance(value, bool), value, where, kind)
        case "string":
            _expect(isinstance(value, str), value, where, kind)
        case "null":
            _expect(value is None, value, where, kind)
    return value


def _read(value: Any, read: Callable[[Any], Any], where: str, expected: str, *, known: bool) -> Any:
    _expect(known, value, where, expected)
    try:
        return read(str(value) if isinstance(value, int | float) else value)
    except (ValueError, TypeError, KeyError, InvalidOperation, binascii.Error):
        raise _Unfit(f"{where} is {str(value)[:60]!r}, expected {expected}") from None


def _expect(fits: bool, value: Any, where: str, expected: str) -> None:  # noqa: FBT001  # an assertion's shape
    if not fits:
        shown = type(value).__name__ if isinstance(value, dict | list) else repr(value)[:60]
        raise _Unfit(f"{where} is {shown}, expected {expected}")


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    [(name, content)] = value.items()
    if name != _BASE64:
        raise ValueError(name)
    return base64.b64decode(content, validate=True)


def _moment(text: str) -> datetime:
    read = datetime.fromisoformat(text)
    return read if read.tzinfo is not None else read.replace(tzinfo=UTC)


def _local_moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=None)


_MOMENTS: Mapping[str, Callable[[str], Any]] = {
    "timestamp": _moment,
    "local-timestamp": _local_moment,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
}
"""How a logical type is read, by its name without the unit."""


def _text(content: bytes) -> Any:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {_BASE64: base64.b64encode(content).decode()}
