"""What the demo shows while its story runs: figures that change, on a terminal; elsewhere plain lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

LINE_EVERY_SECONDS = 5.0


@dataclass(frozen=True)
class Figures:
    """The state of the story, each read from where it is true."""

    produced: int = 0
    """Acknowledged by the broker."""
    taken: int = 0
    """Different orders that the order service has taken."""
    held: int = 0
    """Attempts that found the service away, as the pipeline tells."""
    retried: int = 0
    """Records that were written to the retry topic."""
    waiting: int = 0
    """Those of them that the group has not passed yet."""
    dead: int = 0
    """Records in the dead-letter topic."""
    marks: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Mark and end of each partition, by the broker."""
    service_is_up: bool = True
    pipeline: str = "not started"

    @property
    def line(self) -> str:
        """All of it in one line."""
        lag = sum(end - mark for mark, end in self.marks.values())
        return (
            f"{self.produced:,} produced, {self.taken:,} taken by the service, {self.held:,} attempts held, "
            f"{self.retried:,} retried later, {self.dead:,} dead, lag {lag:,}"
        )


class View:
    """Prints the story's steps, and below them the figures."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._step = 0
        self._said = ""
        self._said_at = 0.0

    def say(self, sentence: str) -> None:
        """Tell the next step of the story."""
        self._step += 1
        number = Text(f"{self._step}. ", style="bold")
        self._console.print(number + Text(sentence), highlight=False)

    def quote(self, line: str) -> None:
        """Show a line that a program has said."""
        self._console.print(Text(f"   {line}", style="yellow"), highlight=False)

    @contextmanager
    def waiting(self, words: str) -> Iterator[Callable[[str], None]]:
        """Show that something takes its time; the given function changes the words."""
        with self._console.status(words) as status:
            yield status.update

    @contextmanager
    def figures(self) -> Iterator[Callable[[Figures], None]]:
        """Show figures that change; elsewhere than on a terminal, a line now and then."""
        if not self._console.is_terminal:
            yield self._show_line
            return
        with Live(console=self._console, refresh_per_second=8, transient=True) as live:
            yield lambda figures: live.update(_panel(figures))

    def _show_line(self, figures: Figures) -> None:
        if figures.line != self._said and time.monotonic() - self._said_at > LINE_EVERY_SECONDS:
            self._said, self._said_at = figures.line, time.monotonic()
            self._console.print(f"   ... {figures.line}", highlight=False)


def _panel(figures: Figures) -> Panel:
    counts = Table.grid(padding=(0, 3))
    for _ in range(5):
        counts.add_column(justify="right")
    counts.add_row(*(Text(word, style="dim") for word in ("produced", "taken", "held", "retried later", "dead")))
    numbers = (figures.produced, figures.taken, figures.held, figures.retried, figures.dead)
    counts.add_row(*(Text(f"{number:,}", style="bold") for number in numbers))
    marks = Table.grid(padding=(0, 2))
    for number, (mark, end) in sorted(figures.marks.items()):
        bar = ProgressBar(total=max(1, end), completed=mark, width=40, complete_style="cyan", finished_style="green")
        marks.add_row(Text(f"orders[{number}]"), bar, Text(f"mark {mark:,} of {end:,}"))
    up, away = Text("up", style="green"), Text("away", style="bold red")
    state = Text("order service ") + (up if figures.service_is_up else away) + Text(f"   pipeline {figures.pipeline}")
    return Panel(Group(counts, Text(), marks, Text(), state), border_style="dim", expand=False)
