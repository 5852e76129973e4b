"""Text from bytes."""

from __future__ import annotations

from tidegate.errors import Undecodable


def text(value: bytes | None) -> str | None:
    """Decode UTF-8. A null value passes as None; bytes that are no UTF-8 fail the record."""
    if value is None:
        return None
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Undecodable(f"no UTF-8: {error}") from error
