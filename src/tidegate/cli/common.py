"""What all commands share: their options, and how they show things."""

from __future__ import annotations

import difflib
import json
import sys
from typing import TYPE_CHECKING, Annotated

import orjson
import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegate.errors import GroupMissing, SettingsError
from tidegate.kafka.connection import kafka_of
from tidegate.logs import tell
from tidegate.ops.cluster import Cluster
from tidegate.ops.plain import plain
from tidegate.records import counted
from tidegate.settings import CLIENT, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidegate.kafka.admin import Admin

Bootstrap = Annotated[
    str | None,
    typer.Option("--bootstrap", metavar="HOST:PORT", help="Kafka's address. [default: the setting bootstrap]"),
]
Client = Annotated[
    list[str] | None,
    typer.Option("--client", "-X", metavar="NAME=VALUE", help="A setting of the Kafka client. Repeat it for more."),
]
LogFormat = Annotated[
    str | None,
    typer.Option("--log-format", metavar="text|json", help="How log lines look. [default: the setting log_format]"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

# Wide enough for any row: what is piped must not be cut to the width of a terminal that is not there.
_NO_TERMINAL_WIDTH = 10_000
_CUT_WIDTH = 120
_FIRST_BYTES = 16
_GAP = 2
_SHORTEST_CUT = 12
_COLOURS = {"ok": "green", "behind": "yellow", "rewound": "yellow", "stalled": "red", "stopped": "red"}
"""Of verdicts. They are shown on terminals only, and not where NO_COLOR is set."""


def examples(*lines: str) -> str:
    """Return what stands below a command's help: how it is called. Each line is what comes after `tidegate`."""
    # The first character keeps the lines as they are.
    return "\n".join(["\b", "For example:", *(f"  tidegate {line}" for line in lines)])


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


def shown(content: bytes | str | None, most: int = 0) -> str:
    """Show content for people in one line: text as `safe` does, what is no text by its size and first bytes.

    `most`: cut text after so many characters, and leave the bytes out.
    """
    text = as_text(content) if isinstance(content, bytes) else content
    if text is None and isinstance(content, bytes):
        size = counted(len(content), "byte")
        more = "..." if len(content) > _FIRST_BYTES else ""
        return f"<{size}>" if most else f"<{size}: {content[:_FIRST_BYTES].hex()}{more}>"
    if text is not None and 0 < most < len(text):
        return safe(text[: most - 1]) + "…"
    return safe(text)


def as_text(content: bytes) -> str | None:
    """Return bytes as text; None for what is none."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def show_json(thing: object) -> None:
    """Print one object as one line of JSON; what is not printable is escaped, as JSON allows in any text."""
    line = orjson.dumps(plain(thing)).decode()
    if not line.isprintable():
        line = "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in line)
    try:
        line.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # what such a terminal is shown in other texts is no JSON
        line = "".join(letter if letter.isascii() else json.dumps(letter)[1:-1] for letter in line)
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, cut_last: bool = False) -> None:
    """Print rows under headings; numbers to the right, unknown as a dash.

    With `cut_last` each row is one line: the last column gets what is left of the width, and is cut there.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_CUT_WIDTH if cut_last else _NO_TERMINAL_WIDTH)
    console.print(made_table(columns, rows, cut_to=console.width if cut_last else None))


def made_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, cut_to: int | None = None) -> Table:
    """Return what `show_table` prints."""
    rows_given = list(rows)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    filled = [["-" if cell is None else safe(str(cell)) for cell in row] for row in rows_given]
    for number, column in enumerate(columns):
        numeric = any(isinstance(row[number], int) for row in rows_given)
        table.add_column(Text(column), justify="right" if numeric else "left", overflow="fold")
    if cut_to is not None:
        others = sum(
            _GAP + max(cell_len(row[number]) for row in [columns, *filled]) for number in range(len(columns) - 1)
        )
        last = table.columns[-1]
        last.no_wrap, last.overflow, last.max_width = True, "ellipsis", max(_SHORTEST_CUT, cut_to - others)
    for row in filled:
        table.add_row(*(Text(cell, _COLOURS.get(cell, "")) for cell in row))
    return table


def missing_group(admin: Admin, group: str) -> GroupMissing:
    """Say that nobody has used this group, and which one may be meant."""
    close = difflib.get_close_matches(group, admin.groups(), n=1)
    return GroupMissing(
        f"nobody has used the group {group}",
        f"did you mean {close[0]}?" if close else "check its name; it appears with its first member or commit",
    )


def say(sentence: str) -> None:
    """Print one sentence for people."""
    sys.stdout.write(safe(sentence) + "\n")
    sys.stdout.flush()


def note(sentence: str) -> None:
    """Say something beside the output: on stderr, so that a pipe gets the output alone."""
    if not tell(sentence):
        sys.stderr.write(f"tidegate: {safe(sentence)}\n")
        sys.stderr.flush()
