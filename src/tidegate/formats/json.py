"""JSON from bytes."""

from __future__ import annotations

from typing import Any, overload

import orjson

from tidegate.errors import SettingsError, Undecodable


class _Nothing:
    """Stands for a value that was not passed."""

    def __repr__(self) -> str:
        return "..."


_NOTHING = _Nothing()


@overload
def json(value: bytes | None) -> Any: ...


@overload
def json(*, schema: object) -> JsonColumns: ...


def json(value: bytes | _Nothing | None = _NOTHING, *, schema: object = None) -> Any:
    """Decode JSON. A null value (a tombstone) passes as None; bytes that are no JSON fail the record.

    `tg.json(schema=...)` makes a decoder for DataFrame pipelines instead: `map(tg.json(schema="id long, amount
    double")).dataframe(fn)`. The schema is Spark's, as DDL text or as a `StructType`.
    """
    if value is None:
        return None
    try:
        return orjson.loads(value)  # type: ignore[arg-type]  # what is no bytes is refused, and found out below
    except ValueError as error:
        if value is _NOTHING:
            return JsonColumns(schema)
        raise Undecodable(f"no JSON: {error}") from error


class JsonColumns:
    """JSON as a column with a type, for DataFrame pipelines."""

    def __init__(self, schema: object) -> None:
        if schema is None:
            raise SettingsError(
                "tg.json() was called without a schema", "pass the function itself, .map(tg.json), or give it a schema"
            )
        if not (isinstance(schema, str) and schema.strip()) and not hasattr(schema, "jsonValue"):
            raise SettingsError(
                f"json(schema={schema!r}) is no schema of Spark's", 'pass DDL, schema="id long, amount double"'
            )
        self.frame_schema = schema

    def __call__(self, _value: bytes | None) -> Any:
        """Refuse to decode single records."""
        raise SettingsError("tg.json(schema=...) is for .dataframe(...)", "decode single records with .map(tg.json)")
