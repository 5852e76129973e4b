"""What all commands share: their options, and how they show things."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import orjson
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegate.errors import SettingsError
from tidegate.kafka.connection import kafka_of
from tidegate.ops.cluster import Cluster
from tidegate.ops.plain import plain
from tidegate.settings import CLIENT, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Bootstrap = Annotated[
    str | None, typer.Option("--bootstrap", help="Kafka's address, host:port. [default: the setting bootstrap]")
]
Client = Annotated[
    list[str] | None,
    typer.Option("--client", "-X", metavar="NAME=VALUE", help="A setting of the Kafka client. Repeat it for more."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

# Wide enough for any row: what is piped must not be cut to the width of a terminal that is not there.
_NO_TERMINAL_WIDTH = 10_000


def chosen_cluster(bootstrap: str | None, client: Sequence[str] | None) -> Cluster:
    """Return the cluster that the options and the settings name."""
    resolved = resolve({"bootstrap": bootstrap, CLIENT: dict(pairs(client or (), "--client"))})
    return Cluster(kafka_of(resolved), resolved.values.broker_timeout)


def pairs(texts: Iterable[str], option: str) -> list[tuple[str, str]]:
    """Split NAME=VALUE texts."""
    found = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise SettingsError(f"{option} {text!r} has no name or no value", f"write {option} NAME=VALUE")
        found.append((name, value))
    return found


def safe(content: bytes | str | None) -> str:
    """Show any content in one line that cannot disturb a terminal: what is not printable is escaped."""
    if content is None:
        return "null"
    text = content.decode("utf-8", errors="backslashreplace") if isinstance(content, bytes) else content
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "surrogatepass").decode() for letter in text
    )


def show_json(thing: object) -> None:
    """Print one object as one line of JSON."""
    sys.stdout.write(orjson.dumps(plain(thing)).decode() + "\n")
    sys.stdout.flush()


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under headings; numbers to the right, unknown as a dash."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_NO_TERMINAL_WIDTH)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    filled = [list(row) for row in rows]
    for number, column in enumerate(columns):
        numeric = any(isinstance(row[number], int) for row in filled)
        table.add_column(Text(column), justify="right" if numeric else "left", overflow="fold")
    for row in filled:
        table.add_row(*(Text("-" if cell is None else safe(str(cell))) for cell in row))
    console.print(table)


def say(sentence: str) -> None:
    """Print one sentence for people."""
    sys.stdout.write(safe(sentence) + "\n")
    sys.stdout.flush()


def note(sentence: str) -> None:
    """Say something beside the output: on stderr, so that a pipe gets the output alone."""
    sys.stderr.write(f"tidegate: {safe(sentence)}\n")
    sys.stderr.flush()
