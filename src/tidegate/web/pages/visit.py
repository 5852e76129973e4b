"""Who looks at a page, and what is asked for them: in threads, so that one slow answer never holds up other pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import urlencode

from tidegate.errors import TidegateError
from tidegate.web.auth import cookie_name, role_in
from tidegate.web.desk import CHANGE_SECONDS, REQUEST_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import Request

    from tidegate.ops.cluster import Cluster
    from tidegate.web.desk import Desk
    from tidegate.web.services import Services

T = TypeVar("T")

Theme = Literal["auto", "dark", "light"]
THEME_COOKIE = "tidegate_theme"
SERVICES_KEY = "tidegate.services"
DESK_KEY = "tidegate.desk"


class NotAllowed(TidegateError):
    """Somebody who may only read asked for a change."""


@dataclass(frozen=True)
class Visit:
    """One opened page."""

    services: Services
    desk: Desk
    session: str | None
    """The content of the cookie with which the page was opened; None where nobody needs one."""
    may_change: bool
    theme: Theme

    @property
    def is_over(self) -> bool:
        """Whether the session with which the page was opened has ended since."""
        tokens = self.services.tokens
        return tokens.are_set and tokens.role_of_session(self.session or "") is None

    async def ask(self, work: Callable[[Cluster], T]) -> T:
        """Wait for something that reads from Kafka or a database, beside the event loop."""
        return await self.desk.ask(work, seconds=REQUEST_SECONDS)

    async def change(self, work: Callable[[Cluster], T]) -> T:
        """Wait for a change, if this visitor may make one."""
        self.check_may_change()
        return await self.desk.ask(work, seconds=CHANGE_SECONDS)

    def check_may_change(self) -> None:
        """Refuse a change by somebody who may only read, or whose session is over since the page was opened."""
        if not self.may_change:
            raise NotAllowed("this token may only read", "log in with the operator's token")
        tokens = self.services.tokens
        if tokens.are_set and tokens.role_of_session(self.session or "") != "operator":
            raise NotAllowed("the session is over", "log in again")


def visit_of(request: Request) -> Visit:
    """Return who asks for a page; the guard before the pages has already let them in."""
    theme = request.cookies.get(THEME_COOKIE)
    return Visit(
        services=request.scope[SERVICES_KEY],
        desk=request.scope[DESK_KEY],
        session=request.cookies.get(cookie_name(request.headers.get("host", ""))),
        may_change=role_in(request.scope) == "operator",
        theme="dark" if theme == "dark" else "light" if theme == "light" else "auto",
    )


def link(path: str, **query: str | int | None) -> str:
    """Return the address of a page. Names of groups hold any letters, so they travel in the query."""
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path
