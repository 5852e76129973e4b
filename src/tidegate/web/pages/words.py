"""Pure: figures as people read them, and the order in which groups are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.ops.verdicts import spoken
from tidegate.records import counted

if TYPE_CHECKING:
    from datetime import datetime

    from tidegate.ops.model import GroupLag, Verdict

UNKNOWN = "-"
"""What is shown for a figure that nobody knows: never a zero."""

WORST_FIRST: tuple[Verdict, ...] = ("stalled", "stopped", "behind", "rewound", "unknown", "ok")

_FIRST_BYTES = 64
_BRIEF_LETTERS = 1000


def number(value: int | None) -> str:
    """Group the digits of a count."""
    return UNKNOWN if value is None else f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def duration(seconds: float | None) -> str:
    """Say how long, in the words of the verdicts."""
    return UNKNOWN if seconds is None else spoken(seconds)


def age(seconds: float | None) -> str:
    """Say how old figures are."""
    if seconds is None:
        return "no figures yet"
    if seconds < 1:
        return "just now"
    return f"{spoken(int(seconds))} ago"


def moment(at: datetime | None) -> str:
    """Show a time to the second, in UTC, as the command line does."""
    return UNKNOWN if at is None else at.strftime("%Y-%m-%d %H:%M:%S")


def clock(at: datetime | None) -> str:
    """Show the time of day, in UTC."""
    return UNKNOWN if at is None else at.strftime("%H:%M:%S")


def worst_first(group: GroupLag) -> tuple[int, int, str]:
    """Sort key: the worst verdict first, then the largest lag, then the name."""
    return (WORST_FIRST.index(group.verdict), -group.lag, group.group)


def payload(content: bytes | None) -> tuple[str, str]:
    """Return what a payload is, in words, and its text.

    Whatever somebody wrote into a topic is data: control characters, terminal codes and characters that turn the
    direction of a line are shown by their codes, so that nothing passes for something else.
    """
    if content is None:
        return "null", ""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        more = " …" if len(content) > _FIRST_BYTES else ""
        return f"{counted(len(content), 'byte')}, no text; the first of them in hexadecimal", (
            content[:_FIRST_BYTES].hex(" ") + more
        )
    return counted(len(content), "byte"), visible(text)


def brief(text: str) -> str:
    """Cut what is longer than anybody reads in a line: a key, or a header, may be a megabyte."""
    return text if len(text) <= _BRIEF_LETTERS else f"{text[:_BRIEF_LETTERS]} …"


def visible(text: str) -> str:
    """Escape what is not printable, but for the ends of lines and tabs."""
    if text.isprintable():
        return text
    return "".join(
        letter
        if letter.isprintable() or letter in "\n\t"
        else letter.encode("unicode_escape", "surrogatepass").decode()
        for letter in text
    )
