"""`tidegate demo`: see it work, on this machine, in about a minute."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli.common import examples
from tidegate.dev.demo import RECORDS, run_demo


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command(
        "demo",
        short_help="See it work: an outage, a kill -9, an audit.",
        epilog=examples(
            "demo",
            "demo --records 2000 --seconds 60",
        ),
    )(demo)


def demo(
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0, help="Keep the dashboard so long at the end. [default: until Ctrl-C; not at all without a terminal]"
        ),
    ] = None,
    records: Annotated[int, typer.Option(min=500, help="How many orders to produce.")] = RECORDS,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The dashboard's port; 0: any that is free.")] = 0,
) -> None:
    """Show the promise: an outage, retries, dead letters, a kill -9, and the audit. Needs Java, nothing else.

    It starts a real Kafka, a real Spark, a small order service and the dashboard on this machine (the first time it
    downloads Kafka, 44 MB) and leaves nothing behind. Exit code 0 only if nothing was lost.
    """
    run_demo(records=records, port=port, stay_seconds=seconds)
