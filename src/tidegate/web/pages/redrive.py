"""Sending dead letters back: the plan in a dialog, the button below it, the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nicegui import ui

from tidegate.ops.redrive import MOST_REDRIVES, Redriving
from tidegate.records import counted
from tidegate.web.fields import MOST_REDRIVEN
from tidegate.web.pages import words
from tidegate.web.pages.frame import note, show_error
from tidegate.web.plans import changed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tidegate.ops.cluster import Cluster
    from tidegate.ops.dead_letters import Filter
    from tidegate.ops.redrive import RedriveReport
    from tidegate.records import Partition
    from tidegate.web.pages.visit import Visit


@dataclass(frozen=True, slots=True)
class _Shown:
    """A plan that was shown, of which letters, and where the dead letters ended then: no later one is sent."""

    chosen: Filter
    plan: RedriveReport
    ends: Mapping[Partition, int]


class RedriveDialog:
    """Asks before it sends. `on_sent` is called when letters were sent."""

    def __init__(self, visit: Visit, group: str, on_sent: Callable[[], Awaitable[None]]) -> None:
        self._visit = visit
        self._group = group
        self._on_sent = on_sent
        self._dialog = ui.dialog().props('aria-label="Redrive"')
        with self._dialog, ui.element("div").classes("card"):
            with ui.element("h2"):
                ui.label("Redrive dead letters")
            self._content = ui.column().style("gap: 12px; align-items: stretch; width: 100%")

    async def open(self, chosen: Filter) -> None:
        """Show what would be sent."""
        self._content.clear()
        self._dialog.value = True
        with self._content:
            ui.spinner(size="lg")
        try:
            shown = await self._visit.ask(lambda cluster: self._planned(cluster, chosen))
        except Exception as error:  # noqa: BLE001  # whatever it is, the page says so
            self._end_with(error)
            return
        self._content.clear()
        with self._content:
            self._show(shown)

    def _planned(self, cluster: Cluster, chosen: Filter) -> _Shown:
        redriving = Redriving(cluster, self._group, chosen, limit=MOST_REDRIVEN)
        return _Shown(chosen, redriving.plan(), redriving.ends)

    def _carried_out(self, cluster: Cluster, shown: _Shown, on_progress: Callable[[int], None]) -> RedriveReport:
        redriving = Redriving(cluster, self._group, shown.chosen, limit=MOST_REDRIVEN, until=shown.ends)
        if redriving.plan() != shown.plan:
            raise changed("other letters would be sent than were shown")
        return redriving.send(on_progress=on_progress)

    def _show(self, shown: _Shown) -> None:
        plan = shown.plan
        ui.label(f"{counted(plan.to_send, 'record')} to send to {plan.to}, which only this group reads.").classes(
            "note"
        )
        with ui.element("div").classes("facts"):
            for name, value in _facts(plan):
                ui.label(name)
                ui.label(value)
        with ui.element("div").classes("actions"):
            ui.button("Cancel", on_click=self._dialog.close).props("no-caps flat")
            if plan.to_send:
                send = ui.button(f"Send {counted(plan.to_send, 'record')}", icon="send")
                send.props("no-caps unelevated color=negative")
                send.on_click(lambda: self._send(shown))

    async def _send(self, shown: _Shown) -> None:
        self._content.clear()
        sent = 0

        def count(acknowledged: int) -> None:
            nonlocal sent
            sent = acknowledged

        with self._content:
            progress = ui.label()
            ui.spinner(size="lg")
            ui.timer(0.5, lambda: progress.set_text(f"{words.number(sent)} of {words.number(shown.plan.to_send)} sent"))
        try:
            done = await self._visit.change(lambda cluster: self._carried_out(cluster, shown, count))
        except Exception as error:  # noqa: BLE001  # whatever it is, the page says so
            self._end_with(error)
            return
        self._content.clear()
        with self._content:
            note(f"Sent {counted(done.sent, 'record')} to {done.to}; the broker has acknowledged every one.")
            with ui.element("div").classes("actions"):
                ui.button("Close", on_click=self._dialog.close).props("no-caps unelevated")
        await self._on_sent()

    def _end_with(self, error: Exception) -> None:
        self._content.clear()
        with self._content:
            show_error(error)
            with ui.element("div").classes("actions"):
                ui.button("Close", on_click=self._dialog.close).props("no-caps flat")


def _facts(plan: RedriveReport) -> list[tuple[str, str]]:
    found = [("Chosen", counted(plan.matched, "dead letter"))]
    if plan.already_redriven:
        found.append(("Redriven already", f"{words.number(plan.already_redriven)}, left out"))
    if plan.held_back:
        places = ", ".join(f"{number}:{record_offset}" for number, record_offset in plan.held)
        more = ", …" if plan.held_back > len(plan.held) else ""
        found.append(
            (
                "Held back",
                f"{words.number(plan.held_back)}, redriven {MOST_REDRIVES} times or more: {places}{more}. "
                "Mend the cause first.",
            )
        )
    if plan.to_send == MOST_REDRIVEN:
        found.append(("Not all at once", f"these are the first {words.number(MOST_REDRIVEN)}: send, then look again"))
    if plan.foreign:
        found.append(("Not written by Tidegate", f"{words.number(plan.foreign)}, left where they are"))
    found += [
        (f"{words.number(kind.count)} from {words.visible(kind.origin_topic)}", words.visible(kind.error_type))
        for kind in plan.kinds[:20]
    ]
    return found
