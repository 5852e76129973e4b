"""What all pages share: the bar above, the banner when the broker is gone, headings, errors, empty places."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from nicegui import ui

from tidegate.errors import TidegateError
from tidegate.web.answers import Refused
from tidegate.web.pages import words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.ops.model import Verdict, View
    from tidegate.web.pages.visit import Theme, Visit

EVERY_SECONDS = 1.0
_OLD_SECONDS = 30.0
_CSS = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
_THEMES: dict[Theme, tuple[bool | None, str, str]] = {
    "auto": (None, "brightness_auto", "Colours follow the system. Press for dark."),
    "dark": (True, "dark_mode", "Dark. Press for light."),
    "light": (False, "light_mode", "Light. Press to follow the system."),
}
_NEXT: dict[Theme, Theme] = {"auto": "dark", "dark": "light", "light": "auto"}

_log = logging.getLogger(__name__)


class Frame:
    """The bar and the banner of one page, kept up to date by the page's own timer."""

    def __init__(self, visit: Visit, title: str, on_view: Callable[[View], None] | None = None) -> None:
        self._visit = visit
        self._on_view = on_view
        self._dark = ui.dark_mode(_THEMES[visit.theme][0])
        self._theme = visit.theme
        ui.page_title(f"{title} · Tidegate")
        ui.add_css(_CSS)
        ui.colors(primary="#0b6b86", negative="#b3261e", positive="#1b7f4b", dark="#16212a", dark_page="#0e151b")
        self._bar()
        self._banner = ui.element("div").classes("banner").props('role="alert"')
        with self._banner:
            self._problem = ui.element("b")
            with self._problem:
                ui.label("The broker does not answer. The figures below are the last known ones.")
            self._reason = ui.label()
        self._banner.set_visibility(False)

    def watch(self) -> None:
        """Begin to show what the sampler sees, now and then every second."""
        self.refresh()
        ui.timer(EVERY_SECONDS, self.refresh, immediate=False)

    def refresh(self) -> None:
        """Show what the sampler saw last, to those who may still see it."""
        if self._visit.is_over:
            ui.navigate.to("/login")
            return
        view = self._visit.services.sampler.view()
        is_gone = view.problem is not None
        self._age.set_text(words.age(view.age_seconds))
        self._age.classes(
            add="gone" if is_gone else "old" if (view.age_seconds or 0) > _OLD_SECONDS else "",
            remove="old gone" if not is_gone else "old",
        )
        self._reason.set_text(view.problem or "")
        self._banner.set_visibility(is_gone)
        if self._on_view is not None:
            self._on_view(view)

    def _bar(self) -> None:
        with ui.header().props("role=banner"), ui.element("div").classes("top"):
            with ui.link(target="/").classes("brand").props('aria-label="Tidegate: all groups"'):
                ui.icon("waves", size="26px")
                ui.label("Tidegate")
            ui.element("div").classes("push")
            self._age = ui.label().classes("age").props('aria-label="Age of the figures"')
            if not self._visit.may_change:
                ui.label("read only").classes("tag")
            self._switch = ui.button(on_click=self._change_theme).props("flat round dense color=inherit")
            self._show_theme()
            if self._visit.services.tokens.are_set:
                with ui.element("form").props("method=post action=/logout"):
                    ui.button(icon="logout").props('type=submit flat round dense color=inherit aria-label="Log out"')

    def _change_theme(self) -> None:
        self._theme = _NEXT[self._theme]
        self._dark.set_value(_THEMES[self._theme][0])
        self._show_theme()
        # The browser keeps it: this server writes nothing down about its visitors.
        kept = f"tidegate_theme={self._theme}; path=/; max-age=31536000; samesite=strict"
        _ = ui.run_javascript(f'document.cookie = "{kept}"')

    def _show_theme(self) -> None:
        _, icon, text = _THEMES[self._theme]
        self._switch.set_icon(icon)
        self._switch.props(f'aria-label="{text}" title="{text}"')


def trail(*steps: tuple[str, str | None]) -> None:
    """Show where in the dashboard this is: names with their addresses, the last without one."""
    with ui.element("nav").classes("trail").props('aria-label="Where this is"'):
        for place, (name, target) in enumerate(steps):
            if place:
                ui.label("/")
            if target is None:
                ui.label(name)
            else:
                ui.link(name, target)


def heading(text: str) -> None:
    """Show the one heading of a page."""
    with ui.element("h1"):
        ui.label(text)


@contextlib.contextmanager
def card(title: str, beside: str = "") -> Iterator[None]:
    """A part of a page, with its own heading."""
    with ui.element("section").classes("card"):
        with ui.element("div").classes("card-head"):
            with ui.element("h2"):
                ui.label(title)
            if beside:
                ui.label(beside).classes("small")
        yield


def empty(happened: str, cure: str) -> None:
    """Say that there is nothing, and what would bring something."""
    with ui.element("div").classes("empty"):
        with ui.element("b"):
            ui.label(happened)
        ui.label(cure)


def note(text: str, *, is_bad: bool = False) -> None:
    """Say something that must not be overlooked."""
    ui.label(text).classes("note bad" if is_bad else "note")


def sentence(text: str) -> str:
    """Make a sentence of a part of one."""
    shown = words.visible(text)
    return f"{shown[:1].upper()}{shown[1:]}{'' if shown.endswith(('.', '!', '?')) else '.'}"


class VerdictBadge:
    """A verdict as a coloured word."""

    def __init__(self) -> None:
        self._label = ui.label().classes("verdict")
        self._shown: Verdict | None = None

    def show(self, verdict: Verdict) -> None:
        """Show this verdict."""
        if verdict != self._shown:
            self._label.set_text(verdict)
            self._label.classes(add=f"verdict-{verdict}", remove=f"verdict-{self._shown}")
            self._shown = verdict


def show_error(error: Exception) -> None:
    """Say what went wrong and what helps. What is not ours goes to the log, and is only named."""
    with ui.element("div").classes("note bad").props('role="alert"'):
        if isinstance(error, TidegateError):
            # REST's cure for this one speaks of requests.
            is_stale = isinstance(error, Refused) and error.code == "plan_changed"
            ui.label(sentence(error.happened))
            ui.label(sentence(f"what helps: {'look at the plan again' if is_stale else error.cure}"))
        else:
            _log.error("a page could not be shown", exc_info=error)
            ui.label(f"Something unforeseen happened ({type(error).__name__}). The server's log has the whole story.")
