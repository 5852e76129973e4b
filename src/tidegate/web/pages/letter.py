"""One dead letter: where it came from, why it failed, what it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from tidegate.ops.dead_letters import Filter
from tidegate.records import counted, moment
from tidegate.web.letters import load_letter
from tidegate.web.pages import words
from tidegate.web.pages.dead import error_text, origin
from tidegate.web.pages.frame import Frame, card, heading, show_error, trail
from tidegate.web.pages.redrive import RedriveDialog
from tidegate.web.pages.visit import link

if TYPE_CHECKING:
    from tidegate.ops.dead_letters import DeadLetter
    from tidegate.web.pages.visit import Visit

_MOST_LETTERS = 20_000
_MOST_HEADERS = 200
"""Ten thousand hold up the whole server for seconds."""


class LetterPage:
    """The page of one dead letter."""

    def __init__(self, visit: Visit, group: str, partition: int, record_offset: int) -> None:
        self._visit = visit
        self._group = group
        self._partition = partition
        self._offset = record_offset
        place = f"{partition}:{record_offset}"
        frame = Frame(visit, f"Dead letter {place}")
        trail(
            ("Groups", "/"),
            (group, link("/group", name=group)),
            ("Dead letters", link("/dead", group=group)),
            (place, None),
        )
        heading(f"Dead letter {place}")
        self._content = ui.column().style("gap: 16px; align-items: stretch; width: 100%")
        with self._content:
            ui.spinner(size="lg")
        if visit.may_change:
            self._dialog = RedriveDialog(visit, group, self._load)
        frame.watch()
        ui.timer(0, self._load, once=True)

    async def _load(self) -> None:
        try:
            letter = await self._visit.ask(
                lambda cluster: load_letter(cluster, self._group, (self._partition, self._offset))
            )
        except Exception as error:  # noqa: BLE001  # whatever it is, the page says so
            self._content.clear()
            with self._content:
                show_error(error)
            return
        self._content.clear()
        with self._content:
            self._show(letter)

    def _show(self, letter: DeadLetter) -> None:
        if self._visit.may_change and letter.is_copy:
            with ui.element("div").classes("actions"):
                ui.button("Redrive this one …", icon="replay", on_click=self._redrive).props("no-caps outline")
        with card("Why it is here"), ui.element("div").classes("facts"):
            for name, value in _facts(letter):
                ui.label(name)
                ui.label(value)
        size, text = words.payload(letter.value)
        with card("Value", size):
            _block(text)
        if letter.headers:
            with card("Headers"):
                with ui.element("div").classes("facts"):
                    for name, content in letter.headers[:_MOST_HEADERS]:
                        ui.label(words.brief(words.visible(name)))
                        ui.label(_short(content))
                if len(letter.headers) > _MOST_HEADERS:
                    _say_more(len(letter.headers) - _MOST_HEADERS, "header")
        if letter.history:
            with card("History", "UTC"), ui.element("div").classes("facts"):
                for past in letter.history:
                    ui.label(words.moment(moment(past.at_ms)))
                    failed = f"{past.place}, attempt {past.attempt}: {past.error_type}: {past.message}"
                    ui.label(words.visible(failed))
        if letter.traceback:
            with card("Traceback"):
                _block(words.visible(letter.traceback))

    async def _redrive(self) -> None:
        await self._dialog.open(Filter(place=(self._partition, self._offset)))


def _facts(letter: DeadLetter) -> list[tuple[str, str]]:
    found = [("Written", f"{words.moment(letter.written_at)} UTC"), ("Key", _short(letter.key))]
    if not letter.is_copy:
        return [*found, ("Origin", "not written by Tidegate: it cannot be redriven")]
    redriven = "this letter was redriven" if letter.was_redriven else "this letter was not redriven"
    return [
        ("Error", error_text(letter)),
        ("Origin", f"{origin(letter)}, of {words.moment(letter.origin_timestamp)} UTC"),
        ("Id", words.visible(letter.stable_id or "")),
        ("Attempts", f"{letter.attempt}, the first failed {words.moment(letter.first_failed_at)} UTC"),
        ("Redrives", f"{letter.redrives}; {redriven}"),
        *found,
    ]


def _short(content: bytes | None) -> str:
    if content is None:
        return "null"
    return words.brief(words.payload(content)[1]) or "(empty)"


def _block(text: str) -> None:
    """Show text as it is, line by line. A label: its content is never markup."""
    ui.label(text[:_MOST_LETTERS]).classes("payload").props('tabindex="0"')
    if len(text) > _MOST_LETTERS:
        _say_more(len(text) - _MOST_LETTERS, "character")


def _say_more(count: int, what: str) -> None:
    ui.label(f"{counted(count, what)} more: tidegate dead show --json prints all of it.").classes("small")
