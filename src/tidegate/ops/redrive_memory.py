"""What the history remembers of redrives: it outlives the retention of the redrive topic, and is never needed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidegate.errors import HistoryBroken, SettingsError, TidegateError
from tidegate.history.chosen import chosen_history
from tidegate.history.rows import RedrivenRow
from tidegate.settings import resolve

if TYPE_CHECKING:
    from tidegate.ops.cluster import Cluster
    from tidegate.ops.dead_letters import DeadLetter

logger = logging.getLogger("tidegate.history")

_MANY = 500


@dataclass(frozen=True, slots=True)
class Remembered:
    """A dead letter by its place and by what lies there: a topic that was made anew has others in the same places."""

    partition: int
    offset: int
    written_at: datetime | None
    stable_id: str

    @classmethod
    def of(cls, thing: DeadLetter | RedrivenRow) -> Remembered:
        """Return what a letter, or a row about one, is known by."""
        return cls(thing.partition, thing.offset, thing.written_at, thing.stable_id or "")


class RedriveMemory:
    """The redriven dead letters of one group. What is wrong with the history is a warning, once."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._history = chosen_history(resolve().values.history)

    def known(self) -> frozenset[Remembered]:
        """Return what was redriven, as far as the history knows."""
        if self._history is None:
            return frozenset()
        try:
            with self._history as history:
                rows = history.redriven(self._cluster.admin.cluster_id(), self._group)
        except (HistoryBroken, SettingsError) as error:
            self.give_up(error, "what was redriven is known from the redrive topic alone")
            return frozenset()
        return frozenset(Remembered.of(row) for row in rows)

    def keeper(self, to: str) -> RedriveKeeper:
        """Return what takes down the letters that were sent to this topic."""
        return RedriveKeeper(self, to)

    def write(self, rows: list[RedrivenRow]) -> None:
        """Write down what was acknowledged."""
        if self._history is not None and rows:
            try:
                self._history.note_redriven(self._cluster.admin.cluster_id(), self._group, rows)
            except (HistoryBroken, SettingsError) as error:
                self.give_up(error, "the redrive goes on without it")

    def close(self) -> None:
        """Let go of the history."""
        if self._history is not None:
            self._history.close()

    def give_up(self, error: TidegateError, so: str) -> None:
        """Say what is wrong, and do without from now on."""
        logger.warning("%s; %s", error, so, extra={"action": "history_failed"})
        self.close()
        self._history = None


class RedriveKeeper:
    """Takes down letters as they are acknowledged, and writes many at a time."""

    def __init__(self, memory: RedriveMemory, to: str) -> None:
        self._memory = memory
        self._to = to
        self._rows: list[RedrivenRow] = []

    def note(self, letter: DeadLetter) -> None:
        """Take down a letter that was acknowledged. Called from the writer's callback: nothing is written here."""
        self._rows.append(
            RedrivenRow(
                letter.partition,
                letter.offset,
                letter.written_at,
                datetime.now(UTC),
                self._to,
                letter.stable_id or "",
            )
        )

    def write_if_many(self) -> None:
        """Write when it is worth it."""
        if len(self._rows) >= _MANY:
            self._write()

    def finish(self) -> None:
        """Write the rest, and let go of the history."""
        self._write()
        self._memory.close()

    def _write(self) -> None:
        rows, self._rows = self._rows, []
        self._memory.write(rows)
