"""`tidegate check`: can this machine work? One line for each thing that must be right."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.class_archives import archives_of
from tidegate.cli.apps import load_app
from tidegate.cli.common import AsJson, Bootstrap, Client, examples, pairs, say, show_json
from tidegate.engine.own_topics import examine
from tidegate.engine.parts import ONE_REPLICA, outputs_named, with_one_replica
from tidegate.engine.spark import checked_pyspark
from tidegate.engine.spark_connect import check_connect
from tidegate.engine.topics import expand
from tidegate.errors import EXIT_CANNOT_WORK, TidegateError
from tidegate.history.chosen import chosen_history
from tidegate.java import find_java
from tidegate.kafka.configs import TopicConfigs
from tidegate.kafka.connection import kafka_of
from tidegate.machine import spark_home
from tidegate.ops.cluster import Cluster
from tidegate.secrets import shown
from tidegate.settings import CLIENT, Resolved, resolve, shown_setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tidegate.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    what: str
    ok: bool
    detail: str


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command(
        "check",
        short_help="Check settings, Java, Spark and the broker.",
        epilog=examples(
            "check",
            "check app.py",
        ),
    )(check_all)


def check_all(
    app: Annotated[
        str | None,
        typer.Argument(metavar="APP.py[:NAME]", help="A program: its own settings and topics are checked too."),
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
    try:
        resolved = _resolved(pipeline, bootstrap, client)
    except TidegateError as error:
        yield Finding("settings", ok=False, detail=str(error))
        resolved = None
    yield from _settings(resolved) if resolved else ()
    yield from _spark(resolved.values.master if resolved else "")
    if resolved is None:
        yield Finding("broker", ok=False, detail="not asked; mend the settings first")
        return
    try:
        cluster = Cluster(kafka_of(resolved), resolved.values.broker_timeout)
        known = {info.name: info for info in cluster.admin.topics()}
    except TidegateError as error:
        yield Finding("broker", ok=False, detail=str(error))
        return
    count = sum(not info.is_internal for info in known.values())
    yield Finding("broker", ok=True, detail=f"{cluster.kafka.bootstrap} answers, {count} topics")
    for topic in pipeline.source.topics if pipeline else ():
        yield _finding(f"topic {topic}", partial(_topic, cluster, topic))
    if pipeline is not None and pipeline.source.pattern is not None:
        names = sorted(expand(pipeline.source.pattern, known.values()))
        yield Finding(
            f"pattern {pipeline.source.pattern.pattern}", ok=bool(names), detail=", ".join(names) or "no topic matches"
        )
    if pipeline is not None:
        yield from _own_topics(pipeline, cluster, resolved, known)


def _own_topics(pipeline: Pipeline, cluster: Cluster, resolved: Resolved, known: Iterable[str]) -> Iterator[Finding]:
    """Look at the retry, redrive and dead-letter topics that the pipeline uses, and at the outputs of transactions."""
    configs = TopicConfigs(cluster.admin)
    try:
        plan = pipeline.plan()
        said = examine(configs, pipeline.source.group, plan.policy, resolved.values, known)
        outputs = cluster.admin.existing(outputs_named(plan)).values()
        lone = with_one_replica(plan, outputs, cluster.admin)
    except TidegateError as error:
        yield Finding("own topics", ok=False, detail=str(error))
        return
    for name, detail in said.items():
        yield Finding(f"own topic {name}", ok=True, detail=detail)
    for name in lone:
        yield Finding(f"output topic {name}", ok=False, detail=f"it {ONE_REPLICA}")


def _finding(what: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(what, ok=True, detail=look())
    except TidegateError as error:
        return Finding(what, ok=False, detail=str(error))


def _resolved(pipeline: Pipeline | None, bootstrap: str | None, client: Sequence[str] | None) -> Resolved:
    """Return the settings that a run would use: the program's own address, where it names one."""
    more = {CLIENT: dict(pairs(client or (), "--client"))}
    if pipeline is None:
        return resolve({"bootstrap": bootstrap, **more})
    return pipeline.resolved(more if pipeline.source.kafka is not None else {"bootstrap": bootstrap, **more})


def _settings(resolved: Resolved) -> Iterator[Finding]:
    for name, value in resolved.values.model_dump().items():
        yield Finding(
            f"setting {name}", ok=True, detail=f"{_shown(shown_setting(name, value))} ({resolved.sources[name]})"
        )
    for name, given in resolved.client.items():
        yield Finding(f"client {name}", ok=True, detail=f"{shown(name, given)} ({resolved.client_sources[name]})")
    yield _finding("history", partial(_history, resolved))


def _shown(value: object) -> str:
    if value is None:
        return "not set"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _history(resolved: Resolved) -> str:
    history = chosen_history(resolved.values.history)
    if history is None:
        return "off"
    with history:
        history.groups("")  # whatever it answers: it can be read
        return f"{history.shown} can be read"


def _spark(master: str) -> Iterator[Finding]:
    if master.startswith("sc://"):  # such a server has its own Java
        yield _finding("spark", lambda: f"pyspark {checked_pyspark()}, for {check_connect(master)}")
        return
    yield _finding("java", lambda: str(find_java()))
    yield _finding("spark", lambda: f"pyspark {checked_pyspark()}{_how_it_starts()}")


def _how_it_starts() -> str:
    """Say what would let it start sooner. Without a Java, or with another Spark, there is nothing to say."""
    try:
        is_prepared = spark_home() is not None or archives_of(find_java()).are_there
    except TidegateError:
        return ""
    return "" if is_prepared else "; `tidegate prepare` lets it start a third sooner"


def _topic(cluster: Cluster, topic: str) -> str:
    info = cluster.admin.describe([topic])[topic]
    return f"{info.partitions} partition{'' if info.partitions == 1 else 's'}"
