"""One group: where it stands in each partition, how its lag moves, what it commits, what failed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from nicegui import ui

from tidegate.errors import TidegateError
from tidegate.records import counted
from tidegate.web.pages import words
from tidegate.web.pages.chart import LagChart
from tidegate.web.pages.commits import MOST_SHOWN, CommitFeed, of_history
from tidegate.web.pages.failures import FailureList
from tidegate.web.pages.frame import Frame, VerdictBadge, card, empty, heading, trail
from tidegate.web.pages.run_card import RunCard
from tidegate.web.pages.visit import link

if TYPE_CHECKING:
    from tidegate.ops.model import GroupLag, PartitionLag
    from tidegate.web.pages.visit import Visit

_EVERY_SECONDS = 1.0
_PER_PAGE = 50

# Data reaches these templates only through `props`, which Vue shows as text: never as markup.
_BODY_VERDICT = """
<q-td :props="props">
  <span :class="'verdict verdict-' + props.row.verdict" :title="props.row.why">{{ props.row.verdict }}</span>
</q-td>
"""
_BODY_NAME = """<q-td :props="props" class="name">{{ props.row.partition }}</q-td>"""
_BODY_MEMBER = """<q-td :props="props" class="words">{{ props.row.member }}</q-td>"""
_CARD = """
<div class="row-card">
  <div class="first"><span>{{ props.row.partition }}</span>
    <span :class="'verdict verdict-' + props.row.verdict">{{ props.row.verdict }}</span></div>
  <div class="why">{{ props.row.why }}</div>
  <div class="pairs">
    <span>Mark</span><span>{{ props.row.mark }}</span>
    <span>End</span><span>{{ props.row.end }}</span>
    <span>Lag</span><span>{{ props.row.lag_text }} records, {{ props.row.seconds }}</span>
    <span>Oldest waits</span><span>{{ props.row.waiting }}</span>
    <span>Retention in</span><span>{{ props.row.retention }}</span>
    <span>Worked on by</span><span>{{ props.row.member }}</span>
  </div>
</div>
"""
_COLUMNS: list[dict[str, Any]] = [
    {"name": "partition", "label": "Partition", "field": "order", "align": "left", "sortable": True},
    {"name": "verdict", "label": "Verdict", "field": "rank", "align": "left", "sortable": True},
    {"name": "mark", "label": "Mark", "field": "mark"},
    {"name": "end", "label": "End", "field": "end"},
    {"name": "lag", "label": "Lag", "field": "lag", "sortable": True, ":format": "(v, row) => row.lag_text"},
    {"name": "seconds", "label": "Lag (time)", "field": "seconds"},
    {"name": "waiting", "label": "Oldest waits", "field": "waiting"},
    {"name": "retention", "label": "Retention in", "field": "retention"},
    {"name": "member", "label": "Worked on by", "field": "member", "align": "left"},
]


class GroupPage:
    """The page of one group."""

    def __init__(self, visit: Visit, name: str) -> None:
        self._visit = visit
        self._name = name
        frame = Frame(visit, name)
        trail(("Groups", "/"), (name, None))
        with ui.element("div").classes("heading"):
            heading(name)
            self._verdict = VerdictBadge()
            ui.element("div").classes("push")
            with ui.element("div").classes("actions"):
                self._button("Dead letters", "mark_email_unread", link("/dead", group=name))
                self._button("Rewind", "fast_rewind", link("/rewind", group=name))
        self._why = ui.label().classes("sentence")
        self._nothing = ui.element("div").classes("card")
        with self._nothing:
            empty(
                f"Nobody has seen a group {name} yet.",
                "It appears here with its first commit. Is the name right, and is this its cluster?",
            )
        self._body = ui.column().classes("w-full").style("gap: 16px; align-items: stretch; width: 100%")
        with self._body:
            self._build()
        self._body.set_visibility(False)
        self._nothing.set_visibility(False)
        frame.watch()
        ui.timer(0, self._look_back, once=True)
        ui.timer(_EVERY_SECONDS, self._refresh)

    def _button(self, text: str, icon: str, target: str) -> None:
        ui.button(text, icon=icon).props(f'outline no-caps dense padding="4px 12px" href="{target}" tag=a')

    def _build(self) -> None:
        with ui.element("div").classes("figures"):
            self._lag, self._seconds = _figure("Lag, records"), _figure("Lag, time")
            self._waiting, self._members = _figure("Oldest waits"), _figure("Members")
            self._state = _figure("State")
            with ui.element("div") as self._expiry_box:
                self._expiry = _figure("Offsets kept for")
        self._run = RunCard(self._visit, self._name)
        with card("Lag over time", "as seen by this server, times of this browser"):
            self._chart = LagChart()
        with card("Partitions"):
            self._table = _make_table()
        with ui.element("div").classes("two"):
            with card("Commits", "as they happen, UTC"):
                self._commits = CommitFeed()
            with card("Failures", "the latest first, UTC"):
                self._failures = FailureList(self._visit, self._name)

    async def _look_back(self) -> None:
        """Show what was committed before the page was opened, where somebody wrote it down."""
        history = self._visit.services.history
        if history is None:
            return
        with contextlib.suppress(TidegateError):  # the failures beside it say that the history is broken
            rows = await self._visit.ask(
                lambda cluster: history.commits(cluster.cluster_id, self._name, limit=MOST_SHOWN)
            )
            for commit in of_history(rows):
                self._commits.add(commit)

    async def _refresh(self) -> None:
        sampler = self._visit.services.sampler
        group = sampler.group(self._name)
        points = sampler.lag_over_time(self._name)
        self._nothing.set_visibility(group is None and sampler.view().at is not None)
        self._body.set_visibility(group is not None)
        if group is not None:
            self._show(group)
            self._chart.show(points)
            self._commits.look(group)
        self._run.refresh()
        await self._failures.refresh()

    def _show(self, group: GroupLag) -> None:
        self._verdict.show(group.verdict)
        self._why.set_text(group.why)
        self._lag.set_text(words.number(group.lag))
        self._seconds.set_text(words.duration(group.lag_seconds))
        self._waiting.set_text(words.duration(group.waiting_seconds))
        self._members.set_text(words.number(len(group.members)))
        self._state.set_text(group.state)
        self._expiry.set_text(expiry(group))
        self._expiry_box.set_visibility(not group.members)
        rows = [_row(one, place) for place, one in enumerate(group.partitions)]
        if rows != self._table.rows:
            self._table.rows = rows
            self._table.props["hide-pagination"] = len(rows) <= _PER_PAGE


def expiry(group: GroupLag) -> str:
    """Say how long a stopped group's offsets are kept."""
    if group.expiry_days is None:
        return words.UNKNOWN
    return (
        words.duration(group.expiry_days * 86_400) if group.expiry_days < 2 else counted(int(group.expiry_days), "day")
    )


def _figure(name: str) -> ui.label:
    with ui.element("div").classes("figure"):
        ui.label(name).classes("name")
        return ui.label(words.UNKNOWN).classes("value").props(f'aria-label="{name}"')


def _make_table() -> ui.table:
    table = ui.table(columns=_COLUMNS, rows=[], row_key="partition", pagination={"rowsPerPage": _PER_PAGE})
    table.props('flat dense :grid="Quasar.Screen.lt.md" :rows-per-page-options="[50, 200, 0]"')
    table.add_slot("body-cell-partition", _BODY_NAME)
    table.add_slot("body-cell-verdict", _BODY_VERDICT)
    table.add_slot("body-cell-member", _BODY_MEMBER)
    table.add_slot("item", _CARD)
    return table


def _row(one: PartitionLag, place: int) -> dict[str, Any]:
    return {
        "partition": str(one.partition),
        "order": place,
        "mark": words.number(one.mark),
        "end": words.number(one.end_offset),
        "lag": -1 if one.lag is None else one.lag,
        "lag_text": words.number(one.lag) + (f" ({words.number(one.lost)} lost)" if one.lost else ""),
        "seconds": words.duration(one.lag_seconds),
        "waiting": words.duration(one.waiting_seconds),
        "retention": words.UNKNOWN if one.retention_hours is None else words.duration(one.retention_hours * 3600),
        "member": one.member or "nobody",
        "verdict": one.verdict,
        "rank": words.WORST_FIRST.index(one.verdict),
        "why": one.why,
    }
