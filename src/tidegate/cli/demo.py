"""`tidegate demo`: see it work, on this machine, in about a minute."""

from __future__ import annotations

import typer

from tidegate.dev.demo import run_demo


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("demo")(demo)


def demo() -> None:
    """Show the promise: a failed record, a kill -9, a restart, and the tally. Needs Java, nothing else.

    It starts a real Kafka and a real Spark on this machine (the first time it downloads Kafka, 44 MB)
    and leaves nothing behind. Exit code 0 only if nothing was lost.
    """
    run_demo()
