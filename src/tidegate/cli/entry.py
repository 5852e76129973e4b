"""The command's entry: global options, the list of commands, and how an error ends it."""

from __future__ import annotations

import importlib.metadata
import io
import logging
import platform
import sys
import traceback
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tidegate.cli import (
    broker,
    check,
    dead,
    demo,
    history,
    lag,
    offsets,
    prepare,
    produce,
    rewind,
    run,
    serve,
    tail,
    topics,
    watch,
)
from tidegate.cli.common import examples, safe, say
from tidegate.errors import TidegateError
from tidegate.java import describe_java
from tidegate.kafka.connection import client_version
from tidegate.logs import tell
from tidegate.machine import ask_for_debug, debug_asked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType


class _OneSentence(TyperGroup):
    """Ends a command that failed with one sentence on stderr and its exit code."""

    def invoke(self, ctx: Any) -> Any:  # typer does not export the type of its contexts
        try:
            return super().invoke(ctx)
        except TidegateError as error:
            self._tell(ctx, str(error), error.exit_code)
            raise typer.Exit(error.exit_code) from error

    @staticmethod
    def _tell(ctx: Any, sentence: str, code: int) -> None:
        if ctx.params.get("debug") or debug_asked():
            traceback.print_exc()
        if tell(sentence, level=logging.ERROR, fields={"action": "ended", "exit_code": code}):
            return
        # A record's own text may be in it. Lines stay: the development broker shows the end of its log.
        sys.stderr.write("\n".join(safe(line) for line in f"tidegate: {sentence}".split("\n")) + "\n")


app = typer.Typer(
    name="tidegate",
    cls=_OneSentence,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=examples(
        "demo          # see it work, on this machine alone",
        "broker        # a Kafka for development, in one terminal",
        "topics create orders",
        "produce orders '{\"id\": 1}'",
        "run app.py",
        "run --help    # more about a command, with examples",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Every family of commands: a module with `register(app)`.
COMMANDS: tuple[ModuleType, ...] = (
    *(demo, run, broker, topics, produce, tail),
    *(lag, offsets, watch, rewind, history, dead, serve, check, prepare),
)
for _family in COMMANDS:
    _family.register(app)


def _print_version(asked: bool) -> None:
    if asked:
        for line in _versions():
            say(line)
        raise typer.Exit


def _versions() -> Iterator[str]:
    """Say all that a report of a bug needs to know of this machine."""
    yield f"tidegate {importlib.metadata.version('tidegate')}"
    yield f"Python {platform.python_version()} ({sys.executable})"
    yield f"PySpark {_installed('pyspark')}"
    yield f"confluent-kafka {_installed('confluent-kafka')} (librdkafka {client_version()})"
    try:
        yield describe_java()
    except TidegateError as error:
        yield f"Java: {error}"


def _installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "is not installed"


@app.callback()
def _global_options(
    debug: Annotated[bool, typer.Option("--debug", help="Show traces and the clients' own logs.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the versions of Tidegate and what it runs on.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Move a Kafka consumer group past a record only when that record is settled."""
    del version
    if debug or debug_asked():
        ask_for_debug()
        logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
        logging.getLogger("tidegate").setLevel(logging.DEBUG)


def main() -> None:
    """Run the command line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # letters that this terminal does not know, in any record
    app(prog_name="tidegate")
