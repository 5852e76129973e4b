"""`tidegate tail`: look at a topic's records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.common import AsJson, Bootstrap, Client, chosen_cluster, note, safe, say, show_json
from tidegate.ops.tail import tail

if TYPE_CHECKING:
    from tidegate.kafka.scan import SeenRecord


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("tail")(tail_topic)


def tail_topic(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            help="beginning, end, an offset, -N (the last N of each partition), or a time (2026-01-31T12:00Z).",
        ),
    ] = "beginning",
    follow: Annotated[bool, typer.Option("--follow/--no-follow", "-f", help="Wait for more, until Ctrl-C.")] = False,
    partition: Annotated[list[int] | None, typer.Option(min=0, help="Only this partition. Repeat it for more.")] = None,
    bootstrap: Bootstrap = None,
    client: Client = None,
    as_json: AsJson = False,
) -> None:
    """Print a topic's committed records. It joins no group and commits nothing."""
    kafka = chosen_cluster(bootstrap, client).kafka
    for record in tail(topic, start=start, follow=follow, partitions=partition or None, kafka=kafka, on_notice=note):
        if as_json:
            show_json(record)
        else:
            say(_line(record))


def _line(record: SeenRecord) -> str:
    moment = "-" if record.timestamp is None else record.timestamp.isoformat(timespec="milliseconds")
    headers = " ".join(f"{safe(name)}={safe(value)}" for name, value in record.headers)
    parts = [
        f"{record.topic}[{record.partition}] {record.offset}",
        moment,
        f"key={safe(record.key)}",
        *([f"headers: {headers}"] if headers else []),
        safe(record.value),
    ]
    return "  ".join(parts)
