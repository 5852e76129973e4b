"""`tidegate broker`: a real Kafka for development, in the foreground."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.common import examples, note, say
from tidegate.dev.broker import Broker
from tidegate.dev.cluster import Cluster, node_folders
from tidegate.errors import BrokerUnreachable, SettingsError
from tidegate.machine import cache_folder

if TYPE_CHECKING:
    from types import FrameType


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command(
        "broker",
        short_help="Run Apache Kafka for development.",
        epilog=examples(
            "broker",
            "broker --port 9093 --fresh",
            "broker --nodes 3",
        ),
    )(run_broker)


def run_broker(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where it listens, on this machine only.")] = 9092,
    data: Annotated[
        Path | None, typer.Option(help="Where topics and offsets are kept. [default: a folder in Tidegate's cache]")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what earlier runs have kept there.")] = False,
    nodes: Annotated[int, typer.Option(min=1, max=9, help="How many brokers, on the ports from --port on.")] = 1,
) -> None:
    """Run Apache Kafka for development, until Ctrl-C. The first start downloads it (44 MB)."""
    folder = data or cache_folder() / (f"broker-{port}" if nodes == 1 else f"brokers-{port}-{nodes}")
    if fresh:
        for one in [folder] if nodes == 1 else node_folders(folder, nodes).values():
            _forget(one)
    signal.signal(signal.SIGTERM, _as_interrupt)
    running: Broker | Cluster = (
        Broker(folder, port=port, progress=_progress)
        if nodes == 1
        else Cluster(folder, nodes=nodes, port=port, progress=_progress)
    )
    try:
        with running:
            say(f"Kafka runs at {running.bootstrap}, data in {folder}; Ctrl-C stops it")
            while running.is_running:
                time.sleep(0.2)
            raise BrokerUnreachable(
                f"the broker ended by itself; the end of its log:\n{running.log_tail()}\n", "see its log above"
            )
    except KeyboardInterrupt:
        say("stopped")


def _forget(folder: Path) -> None:
    """Remove what a broker keeps, and nothing else: a wrong --data must not cost anybody their files."""
    kept = folder / "data"
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (kept / "meta.properties").exists():
        raise SettingsError(f"{folder} holds something that is not a broker's", "choose another folder for --data")
    shutil.rmtree(kept)


def _as_interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _progress(done: int, known: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\rdownloading Kafka: {done} of {known} jars" + ("\n" if done == known else ""))
        sys.stderr.flush()
    elif done == 0:
        note("downloading Kafka, once")
