"""Avro on the command line: the options, JSON lines by a schema, and records shown as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from tidegate.errors import Reject, SettingsError, TidegateError, Unavailable, Undecodable
from tidegate.formats.avro import avro, to_avro
from tidegate.formats.avro_json import as_json, from_json
from tidegate.formats.registry import Registry, registry
from tidegate.secrets import Secret, secret
from tidegate.tls import Tls

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from tidegate.kafka.scan import SeenRecord

_SOURCE = "env:NAME|file:PATH"

Address = Annotated[
    str | None,
    typer.Option("--registry", metavar="URL", help="A schema registry; values are in its wire format."),
]
User = Annotated[str | None, typer.Option("--registry-user", metavar="USER", help="Who the registry knows.")]
Password = Annotated[
    str | None,
    typer.Option("--registry-password", metavar=_SOURCE, help="Where the password is."),
]
Token = Annotated[
    str | None,
    typer.Option("--registry-token", metavar=_SOURCE, help="Where a bearer token is."),
]
Authority = Annotated[
    str | None,
    typer.Option("--registry-ca", metavar="FILE", help="The authority to trust for https."),
]


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """A record with what was decoded of it; where that failed, `error` says why and the bytes are shown."""

    topic: str
    partition: int
    offset: int
    key: object
    value: object
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: datetime | None
    error: str | None


def chosen_registry(
    url: str | None, user: str | None, password: str | None, token: str | None, authority: str | None
) -> Registry | None:
    """Return the registry that the options name; None where they name none."""
    if url is None:
        if user or password or token or authority:
            raise SettingsError("an option for a registry is given, but no registry", "add --registry URL")
        return None
    tls = None if authority is None else Tls(ca=authority)
    return registry(url, user=user, password=_secret(password), token=_secret(token), tls=tls)


def encoder(
    schema: Path, place: Registry | None, *, topic: str, subject: str | None, register: bool
) -> Callable[[str], bytes]:
    """Return what turns a line of JSON into Avro; a line that does not fit ends the command with its reason."""
    if place is None:
        encode = to_avro(schema, subject=subject, register=register)
    else:
        encode = to_avro(
            schema, registry=place, subject=subject, topic=topic if subject is None else None, register=register
        )
    from tidegate.formats.avro_schemas import own_schema  # noqa: PLC0415  # an extra: it is there by now

    parsed = own_schema(schema).parsed

    def encoded(line: str) -> bytes:
        try:
            return encode(from_json(orjson.loads(line), parsed)) or b""
        except orjson.JSONDecodeError as error:
            raise SettingsError(f"{line[:60]!r} is no JSON: {error}", "with --avro each value is JSON") from None
        except Reject as error:
            raise SettingsError(f"{line[:60]!r}: {error}", "mend the value or the schema") from None
        except Unavailable as error:
            raise TidegateError(str(error), "check --registry and its options, and start again") from None

    return encoded


def _secret(source: str | None) -> Secret | None:
    return None if source is None else secret(source)


def decoder(schema: Path | None, place: Registry | None) -> Callable[[bytes | None], Any] | None:
    """Return what decodes a record's bytes; None where no option asks for Avro."""
    if place is not None:
        return avro(registry=place, reader=schema)
    return None if schema is None else avro(schema)


def decoded(record: SeenRecord, decode: Callable[[bytes | None], Any], *, keys: bool) -> ShownRecord:
    """Decode one record for showing: no record, and no registry, can end a look at a topic."""
    errors: list[str] = []

    def tried(what: str, content: bytes | None) -> object:
        try:
            return as_json(decode(content))
        except (Undecodable, Unavailable) as error:
            errors.append(f"{what}: {error}")
            return content

    return ShownRecord(
        record.topic,
        record.partition,
        record.offset,
        tried("key", record.key) if keys else record.key,
        tried("value", record.value),
        record.headers,
        record.timestamp,
        "; ".join(errors) or None,
    )
