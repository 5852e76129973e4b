"""`tidegate tail`: look at a topic's records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from tidegate.cli import avro as as_avro
from tidegate.cli.common import AsJson, Bootstrap, Client, chosen_cluster, examples, note, safe, say, show_json
from tidegate.cli.completing import complete_topic
from tidegate.errors import SettingsError
from tidegate.ops.tail import tail

if TYPE_CHECKING:
    from tidegate.kafka.scan import SeenRecord


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command(
        "tail",
        short_help="Print a topic's committed records.",
        epilog=examples(
            "tail orders",
            "tail orders --from -10 --follow",
            "tail orders --from 2026-01-31T12:00Z --json",
        ),
    )(tail_topic)


def tail_topic(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", autocompletion=complete_topic)],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            help="beginning, end, an offset, -N (the last N of each partition), or a time (2026-01-31T12:00Z).",
        ),
    ] = "beginning",
    follow: Annotated[bool, typer.Option("--follow/--no-follow", "-f", help="Wait for more, until Ctrl-C.")] = False,
    partition: Annotated[list[int] | None, typer.Option(min=0, help="Only this partition. Repeat it for more.")] = None,
    avro: Annotated[
        Path | None,
        typer.Option(
            metavar="SCHEMA",
            help="Decode values: plain Avro written by this .avsc file; with --registry, read as this schema.",
        ),
    ] = None,
    registry: as_avro.Address = None,
    avro_keys: Annotated[bool, typer.Option("--avro-keys", help="Keys are in the wire format too.")] = False,
    registry_user: as_avro.User = None,
    registry_password: as_avro.Password = None,
    registry_token: as_avro.Token = None,
    registry_ca: as_avro.Authority = None,
    bootstrap: Bootstrap = None,
    client: Client = None,
    as_json: AsJson = False,
) -> None:
    """Print a topic's committed records. It joins no group and commits nothing."""
    place = as_avro.chosen_registry(registry, registry_user, registry_password, registry_token, registry_ca)
    if avro_keys and place is None:
        raise SettingsError("--avro-keys needs a registry", "add --registry URL")
    decode = as_avro.decoder(avro, place)
    kafka = chosen_cluster(bootstrap, client).kafka
    for seen in tail(topic, start=start, follow=follow, partitions=partition or None, kafka=kafka, on_notice=note):
        record = seen if decode is None else as_avro.decoded(seen, decode, keys=avro_keys)
        if as_json:
            show_json(record)
        else:
            say(_line(record))


def _line(record: SeenRecord | as_avro.ShownRecord) -> str:
    moment = "-" if record.timestamp is None else record.timestamp.isoformat(timespec="milliseconds")
    headers = " ".join(f"{safe(name)}={safe(value)}" for name, value in record.headers)
    parts = [
        f"{record.topic}[{record.partition}] {record.offset}",
        moment,
        f"key={_content(record.key)}",
        *([f"headers: {headers}"] if headers else []),
        _content(record.value),
    ]
    error = getattr(record, "error", None)
    return "  ".join(parts if error is None else [*parts, f"(not decoded: {safe(error)})"])


def _content(content: object) -> str:
    """Show bytes as they are, and what was decoded as JSON."""
    if content is None or isinstance(content, bytes):
        return safe(content)
    return safe(orjson.dumps(content).decode())
