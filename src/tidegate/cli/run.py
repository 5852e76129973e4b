"""`tidegate run`: run the pipeline of a program."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from tidegate.cli.apps import load_app
from tidegate.cli.common import AsJson, Client, LogFormat, examples, note, pairs, say, show_json
from tidegate.cli.serve import address_of, start
from tidegate.engine.control import Control
from tidegate.errors import EXIT_USAGE
from tidegate.kafka.connection import kafka_of
from tidegate.logs import log_to_stderr, tell
from tidegate.ops.cluster import Cluster
from tidegate.ops.plain import plain
from tidegate.ops.sampler import Sampler
from tidegate.pipeline import Pipeline
from tidegate.records import Report, counted
from tidegate.settings import CLIENT, early_setting

App = Annotated[str, typer.Argument(metavar="APP.py[:NAME]", help="The program, and its pipeline if it has several.")]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of this run (docs/settings.md). Repeat it for more."),
]

LOOK_SECONDS = 2.0
"""How often a served run looks at its cluster."""


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command(
        "run",
        short_help="Run the pipeline of a program.",
        epilog=examples(
            "run app.py",
            "run app.py:refunds --until caught-up",
            "run app.py --set commit_every=1s --serve 8642 --log-format json",
        ),
    )(run)


def run(
    app: App,
    until: Annotated[
        str, typer.Option(metavar="WORD", help="stopped: for ever. caught-up: until all that is there now is settled.")
    ] = "stopped",
    retries: Annotated[
        str,
        typer.Option(
            metavar="WORD", help="wait: caught-up includes the retry topics. leave: a later run takes them up."
        ),
    ] = "wait",
    bootstrap: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Kafka's address, where the program names none.")
    ] = None,
    master: Annotated[str | None, typer.Option(metavar="MASTER", help="Where Spark runs, e.g. local[4].")] = None,
    instance: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A name for this copy that outlives its process (static membership)."),
    ] = None,
    trust: Annotated[
        str | None,
        typer.Option(
            metavar="WORD", help="Where group and table of a PostgreSQL sink differ: which is meant, table or group."
        ),
    ] = None,
    serve: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Serve dashboard, REST and metrics of this run; at 127.0.0.1 where no host is named.",
        ),
    ] = None,
    setting: Setting = None,
    client: Client = None,
    log_format: LogFormat = None,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline until it is stopped (SIGTERM, Ctrl-C) or a record fails.

    Exit codes: 0 done or stopped in good order, 1 cannot work (settings, broker),
    2 usage, 3 stopped at a failed record.
    """
    if until not in ("stopped", "caught-up"):
        sys.stderr.write(f"tidegate: --until {until} is unknown; choose stopped or caught-up\n")
        raise typer.Exit(EXIT_USAGE)
    if retries not in ("wait", "leave"):
        sys.stderr.write(f"tidegate: --retries {retries} is unknown; choose wait or leave\n")
        raise typer.Exit(EXIT_USAGE)
    chosen = dict(pairs(setting or (), "--set"))
    log_to_stderr(early_setting("log_format", log_format or chosen.get("log_format")))
    pipeline = load_app(app)
    more: dict[str, object] = {
        "bootstrap": bootstrap,
        "master": master,
        "instance": instance,
        "trust": trust,
        "log_format": log_format,
        **chosen,
    }
    more[CLIENT] = dict(pairs(client, "--client")) if client else None
    settings = {name: value for name, value in more.items() if value is not None}
    with _served(pipeline, settings, serve) as control:
        report = pipeline.run(
            until=until,  # type: ignore[arg-type]  # checked above
            retries=retries,  # type: ignore[arg-type]  # checked above
            settings=settings,
            control=control,
        )
    if as_json:
        show_json(report)
    elif not tell(_headline(report), fields={"action": "report", "report": plain(report)}):
        _tell(report)
    raise typer.Exit(report.exit_code)


@contextlib.contextmanager
def _served(pipeline: Pipeline, settings: Mapping[str, object], place: str | None) -> Iterator[Control]:
    """Serve what the run does, for as long as it runs, where that was asked for."""
    control = Control()
    if place is None:
        yield control
        return
    host, port = address_of(place)
    resolved = pipeline.resolved(settings)
    with Sampler(Cluster(kafka_of(resolved), resolved.values.broker_timeout), every=LOOK_SECONDS) as sampler:
        running = start(resolved, sampler, host, port, control)
        note(f"serving this run at {running.address}")
        try:
            yield control
        finally:
            running.stop()


def _headline(report: Report) -> str:
    return f"group {report.group}: {counted(report.settled, 'record')} settled in this run{report.counts.beside}"


def _tell(report: Report) -> None:
    say(_headline(report))
    failed = {failure.partition: failure for failure in report.failures}
    for partition, mark in report.marks.items():
        beside = f"  failed here: {failed[partition].error_type}" if partition in failed else ""
        say(f"  {partition}  mark {mark}{beside}")
    if report.lost:
        say(f"  {counted(report.lost, 'record')} lost: gone before they were settled")
    for partition in report.lost_uncounted:
        say(f"  {partition}  lost an unknown number of records")
    for partition in report.unfinished:
        say(f"  {partition}  did not finish within the stop budget: its last records may run again")
