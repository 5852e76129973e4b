"""`tidegate check`: can this machine work? One line for each thing that must be right."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.apps import load_app
from tidegate.cli.common import AsJson, Bootstrap, Client, chosen_cluster, say, show_json
from tidegate.engine.topics import expand
from tidegate.errors import EXIT_CANNOT_WORK, TidegateError
from tidegate.java import find_java
from tidegate.ops.cluster import Cluster
from tidegate.settings import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tidegate.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    what: str
    ok: bool
    detail: str


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("check")(check_all)


def check_all(
    app: Annotated[
        str | None,
        typer.Argument(metavar="[APP.py[:NAME]]", help="A program: its own settings and topics are checked too."),
    ] = None,
    bootstrap: Bootstrap = None,
    client: Client = None,
    as_json: AsJson = False,
) -> None:
    """Check settings, Java, Spark, the broker and a pipeline's topics. Exit code 1 if anything failed."""
    findings = list(_findings(app, bootstrap, client))
    if as_json:
        show_json(findings)
    else:
        for each in findings:
            say(f"{'ok    ' if each.ok else 'failed'}  {each.what}: {each.detail}")
    if not all(each.ok for each in findings):
        raise typer.Exit(EXIT_CANNOT_WORK)


def _findings(app: str | None, bootstrap: str | None, client: Sequence[str] | None) -> Iterator[Finding]:
    pipeline: Pipeline | None = None
    if app is not None:
        try:
            pipeline = load_app(app)
        except TidegateError as error:
            yield Finding("program", ok=False, detail=str(error))
        else:
            yield Finding("program", ok=True, detail=f"{app}, group {pipeline.source.group}")
    yield from _settings({**(pipeline.chosen if pipeline else {}), "bootstrap": bootstrap})
    yield _finding("java", lambda: str(find_java()))
    yield _finding("spark", _spark)
    try:
        cluster = _cluster(pipeline, bootstrap, client)
        known = {info.name: info for info in cluster.admin.topics()}
    except TidegateError as error:
        yield Finding("broker", ok=False, detail=str(error))
        return
    shown = sum(not info.is_internal for info in known.values())
    yield Finding("broker", ok=True, detail=f"{cluster.kafka.bootstrap} answers, {shown} topics")
    for topic in pipeline.source.topics if pipeline else ():
        yield _finding(f"topic {topic}", partial(_topic, cluster, topic))
    if pipeline is not None and pipeline.source.pattern is not None:
        names = sorted(expand(pipeline.source.pattern, known.values()))
        yield Finding(
            f"pattern {pipeline.source.pattern.pattern}", ok=bool(names), detail=", ".join(names) or "no topic matches"
        )


def _finding(what: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(what, ok=True, detail=look())
    except TidegateError as error:
        return Finding(what, ok=False, detail=str(error))


def _settings(arguments: Mapping[str, object]) -> list[Finding]:
    try:
        resolved = resolve(arguments)
    except TidegateError as error:
        return [Finding("settings", ok=False, detail=str(error))]
    values = resolved.values.model_dump()
    return [
        Finding(f"setting {name}", ok=True, detail=f"{_shown(value)} ({resolved.sources[name]})")
        for name, value in values.items()
    ]


def _shown(value: object) -> str:
    if value is None:
        return "not set"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _spark() -> str:
    try:
        return f"pyspark {importlib.metadata.version('pyspark')}"
    except importlib.metadata.PackageNotFoundError:
        raise TidegateError("pyspark is not installed", "install it: pip install tidegate") from None


def _cluster(pipeline: Pipeline | None, bootstrap: str | None, client: Sequence[str] | None) -> Cluster:
    """Return the cluster that a run would use: the program's own, where it names one."""
    cluster = chosen_cluster(bootstrap, client)
    if pipeline is not None and pipeline.source.kafka is not None:
        return Cluster(pipeline.source.kafka, cluster.timeout_seconds)
    return cluster


def _topic(cluster: Cluster, topic: str) -> str:
    info = cluster.admin.describe([topic])[topic]
    return f"{info.partitions} partition{'' if info.partitions == 1 else 's'}"
