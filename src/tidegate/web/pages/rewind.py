"""Rewind a group: choose, see the plan, do it, see it read back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from nicegui import ui

from tidegate.names import belongs_to
from tidegate.records import counted
from tidegate.web import rewinding
from tidegate.web.pages import words
from tidegate.web.pages.frame import Frame, card, heading, note, show_error, trail
from tidegate.web.pages.visit import link

if TYPE_CHECKING:
    from tidegate.ops.rewind import Move, RewindPlan
    from tidegate.web.pages.visit import Visit

Way = Literal["beginning", "end", "offset", "time", "shift"]

_WAYS: dict[Way, str] = {
    "beginning": "the beginning",
    "end": "the end",
    "offset": "an offset",
    "time": "a time",
    "shift": "so many records back or on",
}
_EXAMPLES: dict[Way, str] = {"offset": "1200", "time": "2026-11-16T08:00Z", "shift": "-1000"}
_ALL = "all"
_PER_PAGE = 50

# Data reaches this template only through `props`, which Vue shows as text: never as markup.
_CARD = """
<div class="row-card">
  <div class="first"><span>{{ props.row.partition }}</span><span>{{ props.row.mark }} → {{ props.row.to }}</span></div>
  <div class="pairs">
    <span>Run again</span><span>{{ props.row.again }}</span>
    <span>Passed by</span><span>{{ props.row.passed }}</span>
    <span>Out of the log</span><span>{{ props.row.out_of_log }}</span>
  </div>
</div>
"""


class RewindPage:
    """The page on which a group is moved."""

    def __init__(self, visit: Visit, group: str) -> None:
        self._visit = visit
        self._group = group
        frame = Frame(visit, f"Rewind {group}")
        trail(("Groups", "/"), (group, link("/group", name=group)), ("Rewind", None))
        heading(f"Rewind {group}")
        ui.label(
            "Other groups stay where they are. Only records that are still in the log can be had again. "
            "Nothing happens before you have seen the plan."
        ).classes("sentence")
        with card("Where to"):
            self._form()
        self._result = ui.element("div").style("width: 100%").props('aria-live="polite"')
        frame.watch()

    def _form(self) -> None:
        topics = self._topics()
        with ui.element("div").classes("form"):
            self._topic = ui.select(
                {_ALL: "all topics of the group", **{name: name for name in topics}},
                value=_ALL,
                label="Topic",
                on_change=self._topic_changed,
            ).props("outlined dense")
            self._partition = ui.select(
                {_ALL: "all partitions"}, value=_ALL, label="Partition", on_change=self._forget
            ).props("outlined dense")
            self._partition.disable()
            self._way = ui.select(dict(_WAYS), value="beginning", label="To", on_change=self._way_changed).props(
                "outlined dense"
            )
            self._places = {way: self._place(way) for way in _EXAMPLES}
        with ui.element("div").classes("actions"):
            self._planning = ui.button("Show the plan", icon="visibility", on_click=self._plan).props(
                "no-caps unelevated"
            )

    def _place(self, way: Way) -> ui.input:
        """Each way has a field of its own: emptied for the next way, one would lose what was typed meanwhile."""
        field = ui.input(f"{_WAYS[way].capitalize()}, like {_EXAMPLES[way]}", on_change=self._forget)
        field.props("outlined dense").on("keydown.enter", self._plan)
        field.set_visibility(False)
        return field

    def _topics(self) -> list[str]:
        """The topics that a rewind without a topic moves, and whose partitions can be chosen."""
        found = next((one for one in self._visit.services.sampler.view().groups if one.group == self._group), None)
        partitions = () if found is None else found.partitions
        self._numbers: dict[str, list[int]] = {}
        for one in partitions:
            if not belongs_to(one.partition.topic, self._group):
                self._numbers.setdefault(one.partition.topic, []).append(one.partition.number)
        return sorted(self._numbers)

    def _topic_changed(self) -> None:
        numbers = self._numbers.get(str(self._topic.value), [])
        self._partition.set_options({_ALL: "all partitions", **{one: str(one) for one in numbers}}, value=_ALL)
        self._partition.set_enabled(bool(numbers))
        self._forget()

    def _way_changed(self) -> None:
        way: Way = self._way.value
        for each, field in self._places.items():
            field.set_visibility(each == way)
        self._forget()

    def _forget(self) -> None:
        """What was planned for other choices must not be done by accident."""
        self._result.clear()

    def _to(self) -> str:
        way: Way = self._way.value
        text = str(self._places[way].value or "").strip() if way in _EXAMPLES else way
        # A shift without a sign would be read as an offset.
        return f"+{text}" if way == "shift" and text.isdigit() else text

    async def _plan(self) -> None:
        topic = None if self._topic.value == _ALL else str(self._topic.value)
        partition = None if topic is None or self._partition.value == _ALL else int(self._partition.value)
        to = self._to()
        self._planning.props("loading")
        self._result.clear()
        try:
            plan = await self._visit.ask(
                lambda cluster: rewinding.plan(self._visit.services, cluster, self._group, to, topic, partition)
            )
        except Exception as error:  # noqa: BLE001  # whatever it is, the page says so
            with self._result:
                show_error(error)
        else:
            with self._result, card("The plan", f"to {words.visible(plan.to)}"):
                self._show_plan(plan, topic, partition)
        finally:
            self._planning.props(remove="loading")

    def _show_plan(self, plan: RewindPlan, topic: str | None, partition: int | None) -> None:
        _moves(plan)
        ui.label(summary(plan)).classes("note")
        for sentence in warnings(plan):
            note(sentence, is_bad=True)
        with ui.element("div").classes("actions"):
            if not self._visit.may_change:
                ui.label("This token may only read: the operator's token is needed to rewind.").classes("small")
            elif not plan.moves:
                ui.label("There is nothing to move.").classes("small")
            else:
                button = ui.button(f"Rewind {self._group}", icon="fast_rewind").props(
                    "no-caps unelevated color=negative"
                )
                button.on_click(lambda: self._do(button, plan, topic, partition))

    async def _do(self, button: ui.button, plan: RewindPlan, topic: str | None, partition: int | None) -> None:
        button.props("loading")
        button.disable()
        try:
            done = await self._visit.change(
                lambda cluster: rewinding.carry_out_shown(self._visit.services, cluster, plan, topic, partition)
            )
        except Exception as error:  # noqa: BLE001  # whatever it is, the page says so
            with self._result:
                show_error(error)
        else:
            self._result.clear()
            with self._result, card("Done"):
                note(f"The group {self._group} stands there now. This was read back from the broker.")
                _moves(done)
                with ui.element("div").classes("actions"):
                    ui.link("Watch the group", link("/group", name=self._group))
        finally:
            button.props(remove="loading")


def summary(plan: RewindPlan) -> str:
    """Say in one sentence what a plan does."""
    again, passed = sum(one.again for one in plan.moves), sum(one.passed for one in plan.moves)
    return f"{counted(again, 'record')} at most run again, {counted(passed, 'record')} at most are passed by for good."


def warnings(plan: RewindPlan) -> list[str]:
    """Say what somebody may not have thought of."""
    found = []
    if any(one.out_of_log for one in plan.moves):
        found.append("Some of what was asked for is not in the log any more, or not yet: the move ends at its border.")
    if plan.waiting:
        found.append(f"Not touched, and will still run: {counted(plan.waiting, 'record')} in the group's retry topics.")
    return found


def _moves(plan: RewindPlan) -> None:
    table = ui.table(
        columns=[
            {"name": "partition", "label": "Partition", "field": "partition", "align": "left"},
            {"name": "mark", "label": "From", "field": "mark"},
            {"name": "to", "label": "To", "field": "to"},
            {"name": "again", "label": "Run again", "field": "again"},
            {"name": "passed", "label": "Passed by", "field": "passed"},
            {"name": "out_of_log", "label": "Out of the log", "field": "out_of_log"},
        ],
        rows=[_row(move) for move in plan.moves],
        row_key="partition",
        pagination={"rowsPerPage": _PER_PAGE},
    )
    table.props('flat dense :grid="Quasar.Screen.lt.sm"')
    if len(plan.moves) <= _PER_PAGE:
        table.props("hide-pagination")
    table.add_slot("item", _CARD)


def _row(move: Move) -> dict[str, str]:
    return {
        "partition": str(move.partition),
        "mark": words.number(move.mark),
        "to": words.number(move.to),
        "again": words.number(move.again),
        "passed": words.number(move.passed),
        "out_of_log": words.number(move.out_of_log),
    }
