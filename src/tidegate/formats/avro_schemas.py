"""Avro schemas, and values by them: the border to fastavro, whose errors stay behind it.

Import it only where the extra is known to be installed.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
from fastavro.repository import AbstractSchemaRepository, SchemaRepositoryError
from fastavro.schema import SchemaParseException, UnknownType
from fastavro.validation import ValidationError, validate

from tidegate.errors import Reject, SettingsError, Undecodable
from tidegate.formats.avro_bounds import Bounds, bounds_of

Parsed = Any
"""A schema as fastavro has prepared it: it holds everything it names."""

SHOWN_CHARACTERS = 300
_VALUE_CHARACTERS = 60
_ROOT = ""


@dataclass(frozen=True)
class Schema:
    """A schema of the program's own: as text for a registry, and prepared."""

    text: str
    parsed: Parsed


@dataclass(frozen=True)
class Written:
    """The schema that bytes were written by, and what such bytes must not do."""

    parsed: Parsed
    bounds: Bounds | None


def own_schema(given: object) -> Schema:
    """Read what the program gave as a schema: a dict, or the path of an .avsc file.

    A name that a file does not define is looked for beside it, as `NAME.avsc`.
    """
    if isinstance(given, str | Path):
        path = Path(given)
        raw, named = _read_file(path), str(path)
        beside = _Files(raw, path.parent)
    elif isinstance(given, Mapping | list):
        raw, named, beside = given, "the schema", None
    else:
        raise SettingsError(
            f"a {type(given).__name__} is no Avro schema", "pass a dict, or the path of an .avsc file as text"
        )
    try:
        if beside is None or _is_whole(raw):
            return Schema(json.dumps(raw), fastavro.parse_schema(_copied(raw)))
        parsed = fastavro.schema.load_schema(_ROOT, repo=beside)
        return Schema(json.dumps(_without_marks(parsed)), parsed)
    except SettingsError:
        raise
    except Exception as error:  # whatever fastavro stumbles over, it is the schema's fault
        raise SettingsError(f"{named} is no Avro schema: {_why(error)}", "mend the schema") from error


def schema_from(text: str, load: Callable[[str], str | None]) -> Parsed:
    """Prepare a schema whose references `load` finds by their full names; None: not among them."""
    return fastavro.schema.load_schema(_ROOT, repo=_References(text, load))


def written_by(parsed: Parsed) -> Written:
    """Return what `read` takes as the schema of bytes."""
    return Written(parsed, bounds_of(parsed))


def read(content: bytes, written: Written, reader: Parsed | None) -> Any:
    """Decode one value that fills the bytes to their end; anything else is `Undecodable`."""
    schema, stream = written.parsed, io.BytesIO(content)
    try:
        if written.bounds is not None:
            written.bounds.check(content)
        value = fastavro.schemaless_reader(stream, schema, reader)
    except Exception as error:  # foreign bytes make fastavro raise nearly anything
        raise Undecodable(f"the bytes do not fit the schema {name_of(schema)}: {_why(error)}") from error
    if rest := len(content) - stream.tell():
        raise Undecodable(f"{rest} bytes are left behind a value of the schema {name_of(schema)}")
    return value


def write(value: Any, schema: Parsed) -> bytes:
    """Encode one value; one that does not fit is a `Reject`."""
    stream = io.BytesIO()
    try:
        fastavro.schemaless_writer(stream, schema, value, strict_allow_default=True)
        # The writer alone makes 1 of 1.7, and writes an int too large for any other reader.
        validate(value, schema)
    except ValidationError as error:
        raise Reject(f"the value does not fit the schema {name_of(schema)}: {_where(error)}") from error
    except Exception as error:  # users' values make fastavro raise nearly anything
        raise Reject(f"the value does not fit the schema {name_of(schema)}: {_why(error)}") from error
    return stream.getvalue()


def name_of(schema: Parsed) -> str:
    """Return what a person would call this schema."""
    if isinstance(schema, Mapping):
        return str(schema.get("name", schema.get("type")))
    return "of a union" if isinstance(schema, list) else str(schema)


class _References(AbstractSchemaRepository):
    """What one schema of a registry names, found by its full name."""

    def __init__(self, text: str, load: Callable[[str], str | None]) -> None:
        self._text = text
        self._load = load

    def load(self, name: str) -> Any:
        text = self._text if name == _ROOT else self._load(name)
        if text is None:
            raise SchemaRepositoryError(name)
        return json.loads(text)


class _Files(AbstractSchemaRepository):
    """One file's schema, and those beside it by their names."""

    def __init__(self, root: Any, folder: Path) -> None:
        self._root = root
        self._folder = folder

    def load(self, name: str) -> Any:
        if name == _ROOT:
            return _copied(self._root)
        path = self._folder / f"{name}.avsc"
        if not path.is_file():
            raise SchemaRepositoryError(name)
        return _read_file(path)


def _is_whole(raw: Any) -> bool:
    """Whether a schema defines everything that it names."""
    try:
        fastavro.parse_schema(_copied(raw))
    except UnknownType:
        return False
    return True


def _read_file(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"the schema {path} cannot be read: {error.strerror}", "mend its path") from None
    except ValueError as error:
        raise SettingsError(f"the schema {path} is no JSON: {error}", "mend the file") from None


def _copied(raw: Any) -> Any:
    return json.loads(json.dumps(raw))


def _without_marks(parsed: Any) -> Any:
    """Leave out what fastavro notes in a schema for itself."""
    if isinstance(parsed, Mapping):
        return {name: _without_marks(part) for name, part in parsed.items() if not name.startswith("__")}
    return [_without_marks(part) for part in parsed] if isinstance(parsed, list) else parsed


def _why(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "they end too early"
    if isinstance(error, UnknownType):
        return f"it names {error.name}, which nothing defines"
    if isinstance(error, SchemaParseException | KeyError):
        return str(error.args[0] if error.args else error)[:SHOWN_CHARACTERS]
    return f"{type(error).__name__}: {error}"[:SHOWN_CHARACTERS]


def _where(error: ValidationError) -> str:
    """Name the fields, and show no more of the value than each of them."""
    return "; ".join(
        f"{found.field or 'it'} is {_short(found.datum)}, expected {_short_schema(found.schema)}"
        for found in error.errors[:3]
    )


def _short(value: object) -> str:
    if isinstance(value, Mapping | list | tuple):
        return f"a {type(value).__name__}"
    shown = repr(value)
    return shown if len(shown) <= _VALUE_CHARACTERS else f"{shown[:_VALUE_CHARACTERS]}..."


def _short_schema(schema: object) -> str:
    if not isinstance(schema, Mapping):
        return str(schema) if isinstance(schema, str) else "one of a union"
    return str(schema.get("logicalType") or schema.get("name") or schema.get("type"))
