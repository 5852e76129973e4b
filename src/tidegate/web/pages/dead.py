"""A group's dead letters: choose, look, send back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from tidegate.errors import SettingsError, TopicMissing
from tidegate.ops.dead_letters import make_filter
from tidegate.web.letters import LetterPage, load_page
from tidegate.web.pages import words
from tidegate.web.pages.frame import Frame, card, empty, heading, sentence, show_error, trail
from tidegate.web.pages.redrive import RedriveDialog
from tidegate.web.pages.visit import link

if TYPE_CHECKING:
    from tidegate.ops.dead_letters import DeadLetter, Filter
    from tidegate.web.pages.visit import Visit

_KEY_LETTERS = 40
_ERROR_LETTERS = 200
_PER_PAGE = 50

# Data reaches these templates only through `props`, which Vue shows as text: never as markup.
_BODY_PLACE = """<q-td :props="props"><a :href="props.row.link">{{ props.row.place }}</a></q-td>"""
_BODY_ERROR = """<q-td :props="props" class="words">{{ props.row.error }}</q-td>"""
_BODY_ORIGIN = """<q-td :props="props" class="name">{{ props.row.origin }}</q-td>"""
_CARD = """
<div class="row-card">
  <div class="first"><a :href="props.row.link">{{ props.row.place }}</a>
    <span class="small">{{ props.row.written }}</span></div>
  <div>{{ props.row.error }}</div>
  <div class="pairs">
    <span>Origin</span><span>{{ props.row.origin }}</span>
    <span>Key</span><span>{{ props.row.key }}</span>
    <span>Redriven</span><span>{{ props.row.redriven }}</span>
  </div>
</div>
"""
_COLUMNS: list[dict[str, Any]] = [
    {"name": "place", "label": "Place", "field": "place", "align": "left"},
    {"name": "written", "label": "Written (UTC)", "field": "written", "align": "left", "sortable": True},
    {"name": "origin", "label": "Origin", "field": "origin", "align": "left", "sortable": True},
    {"name": "key", "label": "Key", "field": "key", "align": "left", "sortable": True},
    {"name": "redriven", "label": "Redriven", "field": "redriven", "align": "left", "sortable": True},
    {"name": "error", "label": "Error", "field": "error", "align": "left", "sortable": True},
]


class DeadPage:
    """The page of a group's dead letters."""

    def __init__(self, visit: Visit, group: str) -> None:
        self._visit = visit
        self._group = group
        frame = Frame(visit, f"Dead letters of {group}")
        trail(("Groups", "/"), (group, link("/group", name=group)), ("Dead letters", None))
        heading(f"Dead letters of {group}")
        ui.label(
            "Records that failed for good, with the reason. A redrive sends them back to this group, each once."
        ).classes("sentence")
        with card("Choose"):
            self._form()
        self._result = ui.element("div").style("width: 100%").props('aria-live="polite"')
        if visit.may_change:
            self._dialog = RedriveDialog(visit, group, self._search)
        frame.watch()
        ui.timer(0, self._search, once=True)

    def _form(self) -> None:
        with ui.element("div").classes("form"):
            self._error = self._field("Error: its type, or words of it")
            self._origin = self._field("Origin: a topic")
            self._key = self._field("Key")
            self._since = self._field("Since: 2h, or a time")
            self._until = self._field("Until: as above")
        with ui.element("div").classes("actions"):
            self._searching = ui.button("Search", icon="search", on_click=self._search).props("no-caps unelevated")
            if self._visit.may_change:
                ui.button("Redrive these …", icon="replay", on_click=self._redrive).props("no-caps outline")

    def _field(self, label: str) -> ui.input:
        made = ui.input(label).props("outlined dense clearable")
        made.on("keydown.enter", self._search)
        return made

    def _filter(self) -> Filter:
        return make_filter(
            origin=self._text(self._origin),
            error=self._text(self._error),
            since=self._text(self._since),
            until=self._text(self._until),
            key=self._text(self._key),
        )

    @staticmethod
    def _text(field: ui.input) -> str | None:
        return str(field.value or "").strip() or None

    async def _search(self) -> None:
        """Begin anew with what the fields say."""
        try:
            chosen = self._filter()
        except SettingsError as error:
            self._say(error)
            return
        await self._load(chosen, None)

    async def _load(self, chosen: Filter, after: str | None) -> None:
        self._searching.props("loading")
        try:
            page = await self._visit.ask(lambda cluster: load_page(cluster, self._group, chosen, after))
        except TopicMissing as error:
            self._result.clear()
            with self._result, card("Found"):
                empty("This group has no dead letters.", sentence(error.cure))
        except Exception as error:  # noqa: BLE001  # whatever it is, the page says so
            self._say(error)
        else:
            self._result.clear()
            with self._result, card("Found", _found(page, is_first=after is None)):
                self._show(page, chosen, is_first=after is None)
        finally:
            self._searching.props(remove="loading")

    def _show(self, page: LetterPage, chosen: Filter, *, is_first: bool) -> None:
        if page.letters:
            self._table(page.letters)
        elif page.next is not None:
            empty("None so far.", "The search rests after some seconds: go on, or choose more narrowly.")
        elif not is_first:
            empty("No more.", "That was all of them.")
        elif chosen == make_filter():
            empty("No dead letters.", "Every record of this group was settled otherwise.")
        else:
            empty("No dead letter matches.", "Leave a field out, or write less into it.")
        if page.next is not None:
            with ui.element("div").classes("actions"):
                ui.button("Go on", icon="arrow_forward", on_click=lambda: self._load(chosen, page.next)).props(
                    "no-caps outline"
                )

    def _table(self, letters: tuple[DeadLetter, ...]) -> None:
        table = ui.table(
            columns=_COLUMNS,
            rows=[_row(one) for one in letters],
            row_key="place",
            pagination={"rowsPerPage": _PER_PAGE},
        )
        table.props('flat dense :grid="Quasar.Screen.lt.md"')
        if len(letters) <= _PER_PAGE:
            table.props("hide-pagination")
        table.add_slot("body-cell-place", _BODY_PLACE)
        table.add_slot("body-cell-origin", _BODY_ORIGIN)
        table.add_slot("body-cell-error", _BODY_ERROR)
        table.add_slot("item", _CARD)

    def _say(self, error: Exception) -> None:
        self._result.clear()
        with self._result:
            show_error(error)

    async def _redrive(self) -> None:
        try:
            chosen = self._filter()
        except SettingsError as error:
            self._say(error)
            return
        await self._dialog.open(chosen)


def _found(page: LetterPage, *, is_first: bool) -> str:
    if page.next is not None:
        return f"{len(page.letters)} here; there are more"
    return f"{len(page.letters)} in all" if is_first else f"the last {len(page.letters)}"


def origin(letter: DeadLetter) -> str:
    """Say where a letter was first read."""
    if not letter.is_copy:
        return words.UNKNOWN
    return words.visible(f"{letter.origin_topic}[{letter.origin_partition}] {letter.origin_offset}")


def error_text(letter: DeadLetter) -> str:
    """Say why it failed."""
    if not letter.is_copy:
        return "(not written by Tidegate)"
    return words.visible(f"{letter.error_type}: {letter.error_message}")


def _row(letter: DeadLetter) -> dict[str, str]:
    earlier = f" ({letter.redrives})" if letter.redrives else ""
    return {
        "place": f"{letter.partition}:{letter.offset}",
        "link": link("/letter", group=letter.group, partition=letter.partition, offset=letter.offset),
        "written": words.moment(letter.written_at),
        "origin": origin(letter),
        "key": words.payload(letter.key)[1][:_KEY_LETTERS] if letter.key is not None else words.UNKNOWN,
        "redriven": f"{'yes' if letter.was_redriven else 'no'}{earlier}" if letter.is_copy else words.UNKNOWN,
        "error": error_text(letter)[:_ERROR_LETTERS],
    }
