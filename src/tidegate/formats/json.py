"""JSON from bytes."""

from __future__ import annotations

from typing import Any

import orjson


def json(value: bytes | None) -> Any:
    """Decode JSON. A null value (a tombstone) passes as None; bytes that are no JSON fail the record."""
    return None if value is None else orjson.loads(value)
