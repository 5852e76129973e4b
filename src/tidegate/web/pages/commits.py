"""The commits of a group as they happen: what differs from one look to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nicegui import ui

from tidegate.web.pages import words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from tidegate.history.rows import CommitRow
    from tidegate.ops.model import GroupLag
    from tidegate.records import Partition

MOST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class SeenCommit:
    """A mark that moved."""

    at: datetime
    partition: Partition
    before: int | None
    mark: int

    @property
    def change(self) -> str:
        """The step in words."""
        if self.before is None:
            return ""
        step = self.mark - self.before
        return f"+{words.number(step)}" if step >= 0 else f"{words.number(-step)} back"


def differences(before: Mapping[Partition, int | None], group: GroupLag) -> list[SeenCommit]:
    """Pure: which marks of the group moved since they were noted."""
    return [
        SeenCommit(group.at, one.partition, before[one.partition], one.mark)
        for one in group.partitions
        if one.mark is not None and one.partition in before and before[one.partition] != one.mark
    ]


def of_history(rows: Sequence[CommitRow]) -> list[SeenCommit]:
    """Pure: commits as the history has them, the oldest first."""
    before: dict[Partition, int] = {}
    found = []
    for row in rows:
        found.append(SeenCommit(row.settled_at, row.partition, before.get(row.partition), row.mark))
        before[row.partition] = row.mark
    return found


class CommitFeed:
    """The last commits, the newest on top."""

    def __init__(self) -> None:
        self._marks: dict[Partition, int | None] | None = None
        self._nothing = ui.label("Nothing was committed since this page was opened.").classes("small")
        self._list = ui.element("div").classes("feed").props('role="log" aria-label="Commits"')
        self._count = 0

    def look(self, group: GroupLag) -> None:
        """Note what moved since the last look."""
        if self._marks is not None:
            known = self._marks
            # A partition that had no commit before is news, too, once the first look is behind us.
            for each in group.partitions:
                known.setdefault(each.partition, None)
            for commit in differences(known, group):
                self.add(commit)
        self._marks = {one.partition: one.mark for one in group.partitions}

    def add(self, commit: SeenCommit) -> None:
        """Put one on top."""
        self._nothing.set_visibility(False)
        with self._list:
            row = ui.element("div")
        with row:
            ui.label(words.clock(commit.at)).classes("when")
            ui.label(str(commit.partition)).classes("what")
            ui.label(f"mark {words.number(commit.mark)}").classes("how")
            ui.label(commit.change).classes("how small")
        row.move(target_index=0)
        self._count += 1
        if self._count > MOST_SHOWN:
            self._list.remove(self._list.default_slot.children[-1])
            self._count -= 1
