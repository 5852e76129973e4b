"""JSON from bytes."""

from __future__ import annotations

from typing import Any

import orjson

from tidegate.errors import Undecodable


def json(value: bytes | None) -> Any:
    """Decode JSON. A null value (a tombstone) passes as None; bytes that are no JSON fail the record."""
    if value is None:
        return None
    try:
        return orjson.loads(value)
    except ValueError as error:
        raise Undecodable(f"no JSON: {error}") from error
