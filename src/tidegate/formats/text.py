"""Text from bytes."""

from __future__ import annotations


def text(value: bytes | None) -> str | None:
    """Decode UTF-8. A null value passes as None; bytes that are no UTF-8 fail the record."""
    return None if value is None else value.decode("utf-8")
