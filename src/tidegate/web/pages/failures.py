"""Records of a group that failed: those of the run in this process, and those that the history knows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nicegui import ui

from tidegate.errors import TidegateError
from tidegate.web.pages import words
from tidegate.web.pages.frame import sentence
from tidegate.web.pages.visit import link

if TYPE_CHECKING:
    from datetime import datetime

    from tidegate.engine.control import Control
    from tidegate.history.store import History
    from tidegate.ops.cluster import Cluster
    from tidegate.records import Partition
    from tidegate.web.pages.visit import Visit

_MOST_SHOWN = 30
_MESSAGE_LETTERS = 400
_EVERY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ShownFailure:
    """One failed record."""

    at: datetime | None
    partition: Partition
    record_offset: int
    reason: str
    attempts: int
    fate: str


class FailureList:
    """The last failures, read every few seconds."""

    def __init__(self, visit: Visit, group: str) -> None:
        self._visit = visit
        self._group = group
        self._shown: list[ShownFailure] | None = None
        self._looked_at = float("-inf")
        self._list = ui.element("div").classes("feed").props('aria-label="Failures"')
        self._sentence = ui.label().classes("small")
        ui.link("Dead letters of this group", link("/dead", group=group)).classes("small")

    async def refresh(self) -> None:
        """Look again, if it is time."""
        if time.monotonic() - self._looked_at < _EVERY_SECONDS:
            return
        self._looked_at = time.monotonic()
        try:
            found, said = await self._visit.ask(self._load)
        except TidegateError as error:
            found, said = self._shown or [], sentence(str(error))
        self._sentence.set_text(said)
        if found != self._shown:
            self._shown = found
            self._list.clear()
            with self._list:
                for failure in found:
                    _show(failure)

    def _load(self, cluster: Cluster) -> tuple[list[ShownFailure], str]:
        history = self._visit.services.history
        if history is not None:
            found = _of_history(history, cluster.cluster_id, self._group)
        else:
            found = _of_run(self._visit.services.control, self._group)
        if found:
            return found, ""
        if history is None and self._visit.services.control is None:
            return (
                [],
                "Failures are kept in the history, and this server has none. The dead letters say what was set aside.",
            )
        return [], "No failure is known."


def _of_history(history: History, cluster_id: str, group: str) -> list[ShownFailure]:
    return [
        ShownFailure(
            row.at, row.partition, row.record_offset, f"{row.error_type}: {row.message}", row.attempts, row.fate
        )
        for row in history.failures(cluster_id, group, limit=_MOST_SHOWN)
    ]


def _of_run(control: Control | None, group: str) -> list[ShownFailure]:
    status = None if control is None else control.status
    if status is None or status.group != group:
        return []
    return [
        ShownFailure(
            one.at,
            one.failure.partition,
            one.failure.record_offset,
            f"{one.failure.error_type}: {one.failure.message}",
            one.failure.attempts,
            one.fate,
        )
        for one in reversed(status.mishaps[-_MOST_SHOWN:])
    ]


def _show(failure: ShownFailure) -> None:
    with ui.element("div"):
        ui.label(words.clock(failure.at)).classes("when")
        with ui.element("div").classes("what"):
            ui.label(f"{failure.partition} {failure.record_offset}")
            ui.label(words.visible(failure.reason)[:_MESSAGE_LETTERS]).classes("why")
        attempts = "" if failure.attempts <= 1 else f"{failure.attempts} attempts"
        ui.label(", ".join(part for part in (failure.fate, attempts) if part)).classes("how small")
