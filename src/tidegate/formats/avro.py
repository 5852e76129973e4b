"""Avro from bytes and to bytes: with a schema of the program's own, or with those of a schema registry."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.errors import SettingsError, Undecodable
from tidegate.formats.registry import NEEDS_EXTRA, Registry, as_registry

if TYPE_CHECKING:
    from tidegate.formats.avro_schemas import Schema

SchemaLike = str | Path | Mapping[str, Any] | list[Any]
"""A schema as a dict (or a list: a union), or the path of its .avsc file."""

MAGIC = 0
HEADER = struct.Struct(">bI")
"""Confluent's wire format: a zero, the schema's number, then the Avro bytes."""
MOST_NUMBER = 2**31 - 1
"""They are ints of Java's: asked for a higher one, a registry may answer like a server that is none."""


def avro(
    schema: SchemaLike | None = None, *, registry: Registry | str | None = None, reader: SchemaLike | None = None
) -> Callable[[bytes | None], Any]:
    """Make a decoder: `map(tg.avro(...))`, or called on any bytes, `tg.current().key` for one.

    With `schema`, the bytes are plain Avro that was written by it. With `registry`, they are in Confluent's wire
    format and name their schema. `reader`: read them as this schema, by Avro's rules of evolution. A null passes as
    None. Bytes that do not fit, and a schema that the registry does not know, are `tg.Undecodable`; a registry that
    is away, or does not let us in, is `tg.Unavailable`. Schemas are read from files now, from a registry when needed.
    """
    _need_extra("tg.avro", with_registry=registry is not None)
    if (schema is None) == (registry is None):
        raise SettingsError(
            "avro(...) needs a schema or a registry, and not both",
            "pass the schema that plain Avro was written by, or registry= for the wire format",
        )
    parsed = None if reader is None else _own(reader).parsed
    if schema is not None:
        return PlainDecoder(_own(schema).parsed, parsed)
    return RegistryDecoder(as_registry(registry or ""), parsed)


def to_avro(
    schema: SchemaLike | None = None,
    *,
    registry: Registry | str | None = None,
    subject: str | None = None,
    topic: str | None = None,
    key: bool = False,
    register: bool = False,
) -> Callable[[Any], bytes | None]:
    """Make an encoder: `map(tg.to_avro(...))`. None passes as a null.

    With `schema` alone it writes plain Avro. With `registry` it writes Confluent's wire format, for a `subject`, or
    for a `topic`: then the subject is `TOPIC-value`, or `TOPIC-key` with `key=True`. The schema must be registered
    there already, unless `register=True` registers it. Without a schema, the newest of the subject is taken, once
    per worker. A value that does not fit, a field too many included, is `tg.Reject`; whatever is wrong with the
    registry, or with what it has under the subject, is `tg.Unavailable`.
    """
    _need_extra("tg.to_avro", with_registry=registry is not None)
    own = None if schema is None else _own(schema)
    if registry is None:
        if own is None:
            raise SettingsError("to_avro() has no schema", "pass a dict, the path of an .avsc file, or a registry")
        if subject or topic or key or register:
            raise SettingsError("to_avro(...) names a subject without a registry", "pass registry= too")
        return PlainEncoder(own)
    if (subject is None) == (topic is None):
        raise SettingsError(
            "to_avro(registry=...) needs a subject or a topic, and not both",
            'pass topic="orders" for the subject orders-value, or subject="..."',
        )
    if key and subject is not None:
        raise SettingsError("to_avro(key=True) goes with topic=", "leave it out: the subject says it")
    if own is None and register:
        raise SettingsError("to_avro(register=True) has no schema to register", "pass the schema, or leave it out")
    chosen = subject if subject is not None else f"{topic}-{'key' if key else 'value'}"
    return RegistryEncoder(as_registry(registry), chosen, own, register=register)


class PlainDecoder:
    """Plain Avro, written by one known schema."""

    def __init__(self, schema: Any, reader: Any | None) -> None:
        self._schema = schema
        self._reader = reader
        self._read = _schemas().read
        self._written = _schemas().written_by(schema)

    @property
    def frame_schema(self) -> Any:
        """The schema that values have, for DataFrame pipelines."""
        return self._schema if self._reader is None else self._reader

    def __call__(self, value: bytes | None) -> Any:
        """Decode one value."""
        if value is None:
            return None
        content = _checked_bytes(value)
        try:
            return self._read(content, self._written, self._reader)
        except Undecodable as error:
            if len(content) >= HEADER.size and content[0] == MAGIC:
                raise Undecodable(f"{error} (it begins like the wire format of a schema registry)") from error
            raise


class RegistryDecoder:
    """The wire format: each value names its schema."""

    def __init__(self, registry: Registry, reader: Any | None) -> None:
        self._registry = registry
        self._reader = reader
        self._read = _schemas().read

    @property
    def frame_schema(self) -> Any:
        """The schema that values have, for DataFrame pipelines; None where each value has its own."""
        return self._reader

    def __call__(self, value: bytes | None) -> Any:
        """Decode one value."""
        if value is None:
            return None
        content = _checked_bytes(value)
        if len(content) < HEADER.size:
            raise Undecodable(f"{len(content)} bytes are too few for the wire format of a schema registry")
        magic, number = HEADER.unpack_from(content)
        if magic != MAGIC:
            raise Undecodable(f"the first byte is {content[0]}: not the wire format of a schema registry")
        if number > MOST_NUMBER:
            raise Undecodable(f"no schema of a registry has the number {number}")
        return self._read(content[HEADER.size :], self._registry.client().schema(number), self._reader)


class PlainEncoder:
    """Plain Avro, without a word about its schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema.parsed
        self._write: Callable[[Any, Any], bytes] = _schemas().write

    def __call__(self, value: Any) -> bytes | None:
        """Encode one value."""
        return None if value is None else self._write(value, self._schema)


class RegistryEncoder:
    """The wire format, for one subject."""

    def __init__(self, registry: Registry, subject: str, schema: Schema | None, *, register: bool) -> None:
        self._registry = registry
        self._subject = subject
        self._schema = schema
        self._register = register
        self._write: Callable[[Any, Any], bytes] = _schemas().write

    def __call__(self, value: Any) -> bytes | None:
        """Encode one value."""
        if value is None:
            return None
        client = self._registry.client()
        if self._schema is None:
            number, parsed = client.latest(self._subject)
        else:
            parsed = self._schema.parsed
            number = client.number_of(self._subject, self._schema.text, register=self._register)
        return HEADER.pack(MAGIC, number) + self._write(value, parsed)


def _need_extra(what: str, *, with_registry: bool) -> None:
    needed = "registry_client" if with_registry else "avro_schemas"
    try:
        importlib.import_module(f"tidegate.formats.{needed}")  # it needs more packages than we have to
    except ImportError as error:
        raise SettingsError(f"{what} needs {error.name or 'fastavro'}", NEEDS_EXTRA) from None


def _schemas() -> Any:
    from tidegate.formats import avro_schemas  # noqa: PLC0415  # an extra: only who uses Avro needs it

    return avro_schemas


def _own(given: SchemaLike) -> Schema:
    made: Schema = _schemas().own_schema(given)
    return made


def _checked_bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise Undecodable(f"a {type(value).__name__} is no Avro: pass bytes, and decode them once")
