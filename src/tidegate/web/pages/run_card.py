"""The run of a pipeline in this very process: what it does, and the switch that lets it rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from tidegate.web.pages import words
from tidegate.web.pages.frame import card, show_error

if TYPE_CHECKING:
    from tidegate.engine.control import Control, RunStatus
    from tidegate.web.pages.visit import Visit

_RESTING = ("paused",)


class RunCard:
    """Shown only where this server is part of the group's run."""

    def __init__(self, visit: Visit, group: str) -> None:
        self._visit = visit
        self._group = group
        self._control: Control | None = visit.services.control
        self._box = ui.element("div").style("width: 100%")
        self._box.set_visibility(False)
        with self._box, card("The run in this process"):
            self._sentence = ui.label().classes("sentence")
            with ui.element("div").classes("facts"):
                self._facts = {name: _fact(name) for name in ("Settled", "Set aside", "Tried again", "Work", "Parked")}
            self._trouble = ui.element("div")
            if visit.may_change:
                with ui.element("div").classes("actions"):
                    self._pause = ui.button("Pause", icon="pause", on_click=lambda: self._ask(is_paused=True))
                    self._resume = ui.button("Resume", icon="play_arrow", on_click=lambda: self._ask(is_paused=False))
                    for button in (self._pause, self._resume):
                        button.props("no-caps outline")

    @property
    def status(self) -> RunStatus | None:
        """What the run does, if it is this group's."""
        status = None if self._control is None else self._control.status
        return status if status is not None and status.group == self._group else None

    def refresh(self) -> None:
        """Show what the run does now."""
        status = self.status
        self._box.set_visibility(status is not None)
        if status is None:
            return
        counts = status.counts
        error = f": {words.visible(status.error)}" if status.error else ""
        self._sentence.set_text(f"{status.state}, since {words.moment(status.began_at)} UTC{error}")
        self._facts["Settled"].set_text(f"{words.number(counts.settled)} records")
        self._facts["Set aside"].set_text(
            f"{words.number(counts.retried)} to retry topics, {words.number(counts.dead)} to the dead letters, "
            f"{words.number(counts.skipped)} skipped"
        )
        self._facts["Tried again"].set_text(
            f"{words.number(counts.again)} times in place, {words.number(counts.held)} times while a sink was away"
        )
        self._facts["Work"].set_text(
            f"{words.number(status.rounds)} rounds, {words.number(status.commits)} commits, "
            f"{each(status.commit_seconds, status.commits)} per commit"
        )
        parked = [str(one.partition) for one in status.partitions if one.parked_seconds is not None]
        self._facts["Parked"].set_text(", ".join(parked) or "nothing")
        if self._visit.may_change:
            is_resting = status.state in _RESTING
            is_alive = status.state in ("starting", "running", "paused")
            self._pause.set_visibility(is_alive and not is_resting)
            self._resume.set_visibility(is_alive and is_resting)

    def _ask(self, *, is_paused: bool) -> None:
        self._trouble.clear()
        try:
            self._visit.check_may_change()
            assert self._control is not None  # noqa: S101  # the buttons are shown with a run alone
            if is_paused:
                self._control.pause()
            else:
                self._control.resume()
        except Exception as error:  # noqa: BLE001  # whatever it is, the page says so
            with self._trouble:
                show_error(error)


def each(seconds: float, count: int) -> str:
    """Say how long one of so many took."""
    return f"{1000 * seconds / count:.0f} ms" if count else words.UNKNOWN


def _fact(name: str) -> ui.label:
    ui.label(name)
    return ui.label(words.UNKNOWN)
