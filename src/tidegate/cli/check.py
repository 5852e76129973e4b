"""`tidegate check`: can this machine work? One line for each thing that must be right."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from tidegate.cli.common import AsJson, Bootstrap, Client, chosen_cluster, say, show_json
from tidegate.dev.java import find_java
from tidegate.errors import EXIT_CANNOT_WORK, TidegateError
from tidegate.settings import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


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
    bootstrap: Bootstrap = None,
    client: Client = None,
    as_json: AsJson = False,
) -> None:
    """Check settings, Java, Spark and the broker. Exit code 1 if anything failed."""
    findings = [
        *_settings(bootstrap),
        _finding("java", lambda: str(find_java())),
        _finding("spark", _spark),
        _finding("broker", lambda: _broker(bootstrap, client)),
    ]
    if as_json:
        show_json(findings)
    else:
        for each in findings:
            say(f"{'ok    ' if each.ok else 'failed'}  {each.what}: {each.detail}")
    if not all(each.ok for each in findings):
        raise typer.Exit(EXIT_CANNOT_WORK)


def _finding(what: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(what, ok=True, detail=look())
    except TidegateError as error:
        return Finding(what, ok=False, detail=str(error))


def _settings(bootstrap: str | None) -> list[Finding]:
    try:
        resolved = resolve({"bootstrap": bootstrap})
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


def _broker(bootstrap: str | None, client: Sequence[str] | None) -> str:
    cluster = chosen_cluster(bootstrap, client)
    topics = [info for info in cluster.admin.topics() if not info.is_internal]
    return f"{cluster.kafka.bootstrap} answers, {len(topics)} topics"
