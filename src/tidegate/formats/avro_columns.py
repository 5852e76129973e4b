"""Pure: an Avro schema as a column's type, for Spark and for Arrow, and values as Arrow takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.errors import SettingsError

_PLAIN = {
    # Avro: Spark's name, Arrow's function and its arguments
    "boolean": ("boolean", "bool_", ()),
    "int": ("int", "int32", ()),
    "long": ("bigint", "int64", ()),
    "float": ("float", "float32", ()),
    "double": ("double", "float64", ()),
    "bytes": ("binary", "binary", ()),
    "fixed": ("binary", "binary", ()),
    "string": ("string", "string", ()),
    "enum": ("string", "string", ()),
    "date": ("date", "date32", ()),
    "timestamp-millis": ("timestamp", "timestamp", ("us", "UTC")),
    "timestamp-micros": ("timestamp", "timestamp", ("us", "UTC")),
    "local-timestamp-millis": ("timestamp_ntz", "timestamp", ("us",)),
    "local-timestamp-micros": ("timestamp_ntz", "timestamp", ("us",)),
}
_UNREADABLE = {"time-millis", "time-micros", "duration", "timestamp-nanos", "local-timestamp-nanos"}
MOST_DIGITS = 38


@dataclass(frozen=True)
class Column:
    """The type of a column: `ddl` for Spark, `arrow()` for Arrow, `made(value)` as Arrow takes it."""

    ddl: str
    arrow: Callable[[], Any]
    made: Callable[[Any], Any] | None = None
    """None: as it is."""


def column_of(schema: Any) -> Column:
    """Return the type of a column that holds values of this schema; one that has none is refused."""
    names: dict[str, Any] = {}
    _collect(schema, names)
    return _column(schema, (), names)


def _collect(schema: Any, names: dict[str, Any]) -> None:
    """Note every named type: a schema may name it again later."""
    if isinstance(schema, list):
        for one in schema:
            _collect(one, names)
    elif isinstance(schema, Mapping):
        names |= {name: one for name, one in schema.get("__named_schemas", {}).items() if name not in names}
        if isinstance(schema.get("name"), str) and "type" in schema and schema["type"] in ("record", "enum", "fixed"):
            names[schema["name"]] = schema
        for one in schema.get("fields", ()):
            _collect(one["type"], names)
        for key in ("items", "values", "type"):
            if isinstance(schema.get(key), Mapping | list):
                _collect(schema[key], names)


def _column(schema: Any, around: tuple[str, ...], names: Mapping[str, Any]) -> Column:
    if isinstance(schema, list):
        inner = [one for one in schema if one != "null"]
        if len(inner) != 1:
            raise _refused(around, "a union of several types")
        return _column(inner[0], around, names)
    if isinstance(schema, str):
        return _column(names[schema], around, names) if schema in names else _plain(schema, around)
    kind = schema["type"]
    if not isinstance(kind, str):
        return _column(kind, around, names)
    nested = {"record": _record, "error": _record, "array": _array, "map": _map}
    if kind in nested:
        return nested[kind](schema, around, names)
    if kind in names and names[kind] is not schema:
        return _column(names[kind], around, names)
    return _logical(schema, around)


def _logical(schema: Mapping[str, Any], around: tuple[str, ...]) -> Column:
    logical = str(schema.get("logicalType", ""))
    if logical in _UNREADABLE:
        raise _refused(around, logical)
    if logical == "decimal":
        return _decimal(int(schema["precision"]), int(schema.get("scale", 0)), around)
    if logical == "uuid":
        return Column("string", _arrow("string"), _text)
    return _plain(logical if logical in _PLAIN else schema["type"], around)


def _record(schema: Mapping[str, Any], around: tuple[str, ...], names: Mapping[str, Any]) -> Column:
    name = str(schema.get("name", "record"))
    if name in around:
        raise _refused(around, f"{name} within itself")
    columns = {one["name"]: _column(one["type"], (*around, name), names) for one in schema["fields"]}
    makers = {field: column.made for field, column in columns.items() if column.made is not None}

    def arrow() -> Any:
        import pyarrow as pa  # noqa: PLC0415  # slow to import: only where values are read

        return pa.struct([(field, column.arrow()) for field, column in columns.items()])

    def made(value: Any) -> Any:
        return None if value is None else {**value, **{field: make(value[field]) for field, make in makers.items()}}

    ddl = ", ".join(f"`{field}`: {column.ddl}" for field, column in columns.items())
    return Column(f"struct<{ddl}>", arrow, made if makers else None)


def _array(schema: Mapping[str, Any], around: tuple[str, ...], names: Mapping[str, Any]) -> Column:
    item = _column(schema["items"], around, names)

    def arrow() -> Any:
        import pyarrow as pa  # noqa: PLC0415  # as above

        return pa.list_(item.arrow())

    make = item.made
    made = None if make is None else lambda value: None if value is None else [make(one) for one in value]
    return Column(f"array<{item.ddl}>", arrow, made)


def _map(schema: Mapping[str, Any], around: tuple[str, ...], names: Mapping[str, Any]) -> Column:
    item = _column(schema["values"], around, names)

    def arrow() -> Any:
        import pyarrow as pa  # noqa: PLC0415  # as above

        return pa.map_(pa.string(), item.arrow())

    def made(value: Any) -> Any:
        if value is None:
            return None
        return [(key, one if item.made is None else item.made(one)) for key, one in value.items()]

    return Column(f"map<string, {item.ddl}>", arrow, made)


def _decimal(precision: int, scale: int, around: tuple[str, ...]) -> Column:
    if precision > MOST_DIGITS:
        raise _refused(around, f"a decimal of {precision} digits")
    return Column(f"decimal({precision}, {scale})", _arrow("decimal128", precision, scale))


def _plain(kind: str, around: tuple[str, ...]) -> Column:
    if kind not in _PLAIN:
        raise _refused(around, kind)
    ddl, function, arguments = _PLAIN[kind]
    return Column(ddl, _arrow(function, *arguments))


def _arrow(function: str, *arguments: object) -> Callable[[], Any]:
    def arrow() -> Any:
        import pyarrow as pa  # noqa: PLC0415  # as above

        return getattr(pa, function)(*arguments)

    return arrow


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _refused(around: tuple[str, ...], what: str) -> SettingsError:
    where = f"{'.'.join(around)}: " if around else ""
    return SettingsError(
        f"Avro for .dataframe(...): {where}{what} has no column type in Spark",
        "read it as another schema with tg.avro(..., reader=...), or decode the bytes in the function itself",
    )
