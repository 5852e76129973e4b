"""All groups, the worst first."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from nicegui import ui

from tidegate.records import counted
from tidegate.web.pages import words
from tidegate.web.pages.frame import Frame, empty, heading
from tidegate.web.pages.visit import link

if TYPE_CHECKING:
    from tidegate.ops.model import GroupLag, View
    from tidegate.web.pages.visit import Visit

_PER_PAGE = 50

# Data reaches these templates only through `props`, which Vue shows as text: never as markup.
_BODY_GROUP = """
<q-td :props="props" class="name"><a :href="props.row.link">{{ props.row.group }}</a></q-td>
"""
_BODY_VERDICT = """
<q-td :props="props" class="words">
  <span :class="'verdict verdict-' + props.row.verdict">{{ props.row.verdict }}</span>
  <div class="why">{{ props.row.why }}</div>
</q-td>
"""
_CARD = """
<div class="row-card">
  <div class="first"><a :href="props.row.link">{{ props.row.group }}</a>
    <span :class="'verdict verdict-' + props.row.verdict">{{ props.row.verdict }}</span></div>
  <div class="why">{{ props.row.why }}</div>
  <div class="pairs">
    <span>Lag</span><span>{{ props.row.lag_text }} records, {{ props.row.seconds_text }}</span>
    <span>Members</span><span>{{ props.row.members }} ({{ props.row.state }})</span>
  </div>
</div>
"""
_COLUMNS: list[dict[str, Any]] = [
    {"name": "group", "label": "Group", "field": "group", "align": "left", "sortable": True},
    {"name": "verdict", "label": "Verdict", "field": "rank", "align": "left", "sortable": True},
    {"name": "lag", "label": "Lag (records)", "field": "lag", "sortable": True, ":format": "(v, row) => row.lag_text"},
    {
        "name": "seconds",
        "label": "Lag (time)",
        "field": "seconds",
        "sortable": True,
        ":format": "(v, row) => row.seconds_text",
    },
    {"name": "members", "label": "Members", "field": "members", "sortable": True},
    {"name": "state", "label": "State", "field": "state", "align": "left", "sortable": True},
]


class Overview:
    """The page of all groups."""

    def __init__(self, visit: Visit) -> None:
        self._chosen: str | None = None
        self._rows: list[dict[str, Any]] = []
        frame = Frame(visit, "Groups", self._show)
        with ui.element("div").classes("heading"):
            heading("Consumer groups")
            self._sum = ui.label().classes("sentence")
        with ui.element("div").classes("actions"):
            self._search = (
                ui.input(placeholder="Filter by name, verdict or words", on_change=self._filter)
                .props('outlined dense clearable debounce=150 aria-label="Filter the groups"')
                .style("width: 340px; max-width: 100%")
            )
            self._counts: dict[str, ui.label] = {}
            self._chips = {verdict: self._chip(verdict) for verdict in words.WORST_FIRST}
        self._table = self._make_table()
        self._nothing = ui.element("div").classes("card")
        with self._nothing:
            empty(
                "No groups yet.",
                "A group appears here as soon as it commits: start a pipeline with tidegate run app.py.",
            )
        frame.watch()

    def _chip(self, verdict: str) -> ui.element:
        chip = ui.element("button").classes(f"verdict verdict-{verdict}").props("type=button aria-pressed=false")
        with chip:
            self._counts[verdict] = ui.label()
        return chip.on("click", lambda: self._choose(verdict))

    def _make_table(self) -> ui.table:
        table = ui.table(columns=_COLUMNS, rows=[], row_key="group", pagination={"rowsPerPage": _PER_PAGE})
        table.props('flat :grid="Quasar.Screen.lt.sm" :rows-per-page-options="[50, 200, 0]"').classes("card")
        table.props('no-data-label="No group matches the filter."')
        table.add_slot("body-cell-group", _BODY_GROUP)
        table.add_slot("body-cell-verdict", _BODY_VERDICT)
        table.add_slot("item", _CARD)
        return table

    def _choose(self, verdict: str) -> None:
        self._chosen = None if self._chosen == verdict else verdict
        for name, chip in self._chips.items():
            is_chosen = name == self._chosen
            chip.classes(add="chosen" if is_chosen else "", remove="" if is_chosen else "chosen")
            chip.props(f"aria-pressed={'true' if is_chosen else 'false'}")
        self._fill()

    def _filter(self) -> None:
        self._fill()

    def _show(self, view: View) -> None:
        groups = sorted(view.groups, key=words.worst_first)
        self._rows = [_row(group) for group in groups]
        counts = Counter(group.verdict for group in groups)
        for verdict, chip in self._chips.items():
            count = counts[verdict]
            self._counts[verdict].set_text(f"{count} {verdict}")
            chip.set_visibility(count > 0)
        self._sum.set_text(counted(len(groups), "group") if view.at is not None else "Looking for groups …")
        self._nothing.set_visibility(view.at is not None and not groups)
        self._table.set_visibility(bool(groups))
        self._fill()

    def _fill(self) -> None:
        sought = (self._search.value or "").casefold().split()
        rows = [
            row
            for row in self._rows
            if (self._chosen is None or row["verdict"] == self._chosen)
            and all(word in f"{row['group']} {row['verdict']} {row['why']}".casefold() for word in sought)
        ]
        if rows != self._table.rows:
            self._table.rows = rows


def _row(group: GroupLag) -> dict[str, Any]:
    return {
        "group": group.group,
        "link": link("/group", name=group.group),
        "verdict": group.verdict,
        "rank": words.WORST_FIRST.index(group.verdict),
        "why": group.why,
        "lag": group.lag,
        "lag_text": words.number(group.lag),
        "seconds": -1 if group.lag_seconds is None else group.lag_seconds,
        "seconds_text": words.duration(group.lag_seconds),
        "members": len(group.members),
        "state": group.state,
    }
