"""Frozen objects as plain JSON: the same field names on the command line and everywhere else."""

from __future__ import annotations

import base64
from dataclasses import fields, is_dataclass
from datetime import datetime

from tidegate.records import Partition


def plain(thing: object) -> object:
    """Turn a frozen object into what JSON can hold.

    A partition becomes its topic and number. Bytes become text, or `{"base64": ...}` where they are no text.
    """
    if isinstance(thing, Partition):
        return {"topic": thing.topic, "partition": thing.number}
    if is_dataclass(thing) and not isinstance(thing, type):
        return _fields(thing)
    if isinstance(thing, dict):
        return {str(name): plain(value) for name, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [plain(value) for value in thing]
    if isinstance(thing, bytes):
        return _text(thing)
    return thing.isoformat() if isinstance(thing, datetime) else thing


def _fields(thing: object) -> dict[str, object]:
    found: dict[str, object] = {}
    for each in fields(thing):  # type: ignore[arg-type]  # the caller has checked that it is a dataclass
        value = getattr(thing, each.name)
        if isinstance(value, Partition):
            found.update(topic=value.topic, partition=value.number)
        else:
            found[each.name] = plain(value)
    return found


def _text(content: bytes) -> object:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
