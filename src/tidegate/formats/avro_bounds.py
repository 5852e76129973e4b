"""Pure: what must not be given to fastavro: bytes by which few of them end the process, or keep it busy for hours.

It decodes nested values on the stack of C, so that a megabyte of a type that holds itself ends the whole process; it
believes the length of a list whose items take no bytes; and it makes decimals of any length, in quadratic time. Such
bytes are walked first, by the schema that wrote them. Most schemas have no such type, and cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MOST_LEVELS = 1000
"""How deep a value may be nested. The stack of a thread ends after 4,000 levels or more."""
MOST_EMPTY_ITEMS = 100_000
DECIMAL_BYTES = 400
"""Decimals up to here are made in no time, whatever their precision."""
_VARINT_BYTES = 10
_PLAIN_BYTES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBERS = ("int", "long", "enum")

Named = Mapping[str, Any]


@dataclass(frozen=True)
class Bounds:
    """What of a schema has to be looked after."""

    schema: Any
    named: Named
    free_bytes: int
    """Up to so many bytes nothing can go wrong."""

    def check(self, content: bytes) -> None:
        """Walk over a value; raise where it is none, or one that nobody should decode."""
        if len(content) > self.free_bytes:
            _Walk(content, self.named).over(self.schema)


def bounds_of(schema: Any) -> Bounds | None:
    """Return what has to be looked after in a prepared schema; None: nothing, and so it is for most."""
    named: dict[str, Any] = {}
    parts = list(_parts(schema, named))
    free: list[int] = []
    if any(_is_endless(part, named) or _has_empty_items(part, named) for part in parts):
        free.append(-1)
    if any(_holds_itself(name, named) for name in named):
        free.append(MOST_LEVELS // len(parts))  # a byte may open as many levels as the schema has
    if any(_is_decimal(part) for part in parts):
        free.append(DECIMAL_BYTES)
    return Bounds(schema, named, min(free)) if free else None


# --- a schema, looked at once ---------------------------------------------------------------------------


def _parts(schema: Any, named: dict[str, Any]) -> Iterator[Any]:
    """Give every type that a schema defines, and note those that have names."""
    if isinstance(schema, Mapping):
        if "name" in schema:
            named[schema["name"]] = schema
        yield schema
    for inner in _inner(schema):
        yield from _parts(inner, named)


def _inner(schema: Any) -> list[Any]:
    """Return the types that one is made of."""
    if isinstance(schema, list):
        return schema
    if not isinstance(schema, Mapping):
        return []
    held = [schema["type"], schema.get("items"), schema.get("values")]
    return [*(one for one in held if one is not None), *(field["type"] for field in schema.get("fields", ()))]


def _holds_itself(name: str, named: Named) -> bool:
    todo, seen = _inner(named[name]), set[str]()
    while todo:
        one = todo.pop()
        if one == name:
            return True
        if isinstance(one, str):
            if one in seen or one not in named:
                continue
            seen.add(one)
        todo.extend(_inner(named.get(one) if isinstance(one, str) else one))
    return False


def _has_empty_items(part: Mapping[str, Any], named: Named) -> bool:
    return part["type"] == "array" and _is_empty(part["items"], named)


def _is_empty(schema: Any, named: Named, within: tuple[str, ...] = ()) -> bool:
    """Whether values of a type take no bytes; one without an end counts as such."""
    if isinstance(schema, str) and schema in named:
        return schema in within or _is_empty(named[schema], named, (*within, schema))
    if not isinstance(schema, Mapping):
        return bool(schema == "null")
    if schema["type"] in ("record", "error"):
        here = (*within, schema["name"])
        return all(_is_empty(field["type"], named, here) for field in schema["fields"])
    if schema["type"] == "fixed":
        return bool(schema["size"] == 0)
    return _is_empty(schema["type"], named, within)


def _is_endless(schema: Any, named: Named, within: tuple[str, ...] = ()) -> bool:
    """Whether each value of a record holds one more of it, so that there can be none."""
    if isinstance(schema, str) and schema in named:
        return schema in within or _is_endless(named[schema], named, within)
    if not isinstance(schema, Mapping) or schema["type"] not in ("record", "error"):
        return False
    here = (*within, schema["name"])
    return any(field["type"] in here or _is_endless(field["type"], named, here) for field in schema["fields"])


def _is_decimal(part: Mapping[str, Any]) -> bool:
    return part["type"] == "bytes" and part.get("logicalType") == "decimal"


# --- bytes, walked over by it ---------------------------------------------------------------------------


@dataclass
class _Block:
    """Items of an array or a map, of which some are left."""

    items: Any
    has_keys: bool
    has_nothing: bool
    left: int = 0


class _Walk:
    """Without recursion: the depth of foreign bytes must not become that of our stack."""

    def __init__(self, content: bytes, named: Named) -> None:
        self._content = content
        self._named = named
        self._at = 0
        self._empty_items = 0
        self._todo: list[tuple[Any, int]] = []

    def over(self, schema: Any) -> None:
        self._todo.append((schema, 0))
        while self._todo:
            part, level = self._todo.pop()
            if level > MOST_LEVELS:
                raise ValueError(f"they are nested deeper than {MOST_LEVELS} levels")
            if isinstance(part, _Block):
                self._next_item(part, level)
            else:
                self._over_one(part, level)

    def _over_one(self, part: Any, level: int) -> None:
        if isinstance(part, str):
            part = self._named.get(part, part)
        if isinstance(part, list):
            self._todo.append((part[self._index(len(part))], level))
            return
        kind = part["type"] if isinstance(part, Mapping) else part
        if kind in ("record", "error"):
            self._todo.extend((field["type"], level + 1) for field in reversed(part["fields"]))
        elif kind in ("array", "map"):
            items = part["values" if kind == "map" else "items"]
            block = _Block(items, kind == "map", kind == "array" and _is_empty(items, self._named))
            self._todo.append((block, level + 1))
        elif kind in ("bytes", "string"):
            self._skip(self._length(part))
        elif kind == "fixed":
            self._skip(part["size"])
        elif kind in _NUMBERS:
            self._number()
        elif kind in _PLAIN_BYTES:
            self._skip(_PLAIN_BYTES[kind])
        else:
            self._todo.append((kind, level))

    def _next_item(self, block: _Block, level: int) -> None:
        if not block.left:
            block.left = self._count()
            if not block.left:
                return
            if block.has_nothing:
                self._empty_items += block.left
                if self._empty_items > MOST_EMPTY_ITEMS:
                    raise ValueError(f"they are more than {MOST_EMPTY_ITEMS} items without content")
                block.left = 1  # all are alike
        block.left -= 1
        self._todo.append((block, level))
        if block.has_keys:
            self._skip(self._length("string"))
        self._todo.append((block.items, level))

    def _count(self) -> int:
        count = self._number()
        if count < 0:
            self._number()  # how many bytes the block takes
        return abs(count)

    def _length(self, part: Any) -> int:
        length = self._number()
        if isinstance(part, Mapping) and _is_decimal(part) and length > _most_bytes(part):
            raise ValueError(f"a decimal of {length} bytes has more digits than its precision")
        return length

    def _index(self, count: int) -> int:
        index = self._number()
        if not 0 <= index < count:
            raise IndexError(f"a union of {count} has no branch {index}")
        return index

    def _number(self) -> int:
        found = shift = 0
        for byte in self._content[self._at : self._at + _VARINT_BYTES]:
            self._at += 1
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:  # no more come
                return (found >> 1) ^ -(found & 1)
        if shift < 7 * _VARINT_BYTES:
            raise EOFError
        raise ValueError("a number has more than 64 bits")

    def _skip(self, count: int) -> None:
        if count < 0:
            raise ValueError(f"a length is {count}")
        self._at += count
        if self._at > len(self._content):
            raise EOFError


def _most_bytes(part: Mapping[str, Any]) -> int:
    """Return how many bytes a decimal may have."""
    precision = part.get("precision")
    digits = precision if isinstance(precision, int) else 0
    return max(DECIMAL_BYTES, math.ceil((digits * math.log2(10) + 1) / 8))
