"""A connection to PostgreSQL that never hangs, and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from tidegate.errors import DatabaseRefused, DatabaseUnreachable, SettingsError, Unavailable
from tidegate.secrets import MASK, Secret
from tidegate.sinks.postgres_cut import cut_when_silent

Connection = psycopg.Connection[tuple[Any, ...]]

_HIDDEN = ("password", "sslpassword")
_SHORTEST_HIDDEN = 3
"""A password of one letter would mask half of every sentence; nobody can hide that one."""
_REFUSED = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "does not support SSL",
)
"""What a server says at the door when waiting will not help. At that point the client gives no code."""
_PASSING = ("08", "53", "57P", "58", "25P03", "25006", "55P03")
"""Codes that are about the server, not about a row: connection, resources, shutdown, disk, a standby, a lock."""
_REPEATABLE = ("40001", "40P01")
_TOO_SLOW = "57014"


@dataclass(frozen=True)
class Patience:
    """How long each part may take, in seconds. Together they bound every call, whatever the server does."""

    connect: float = 5.0
    lock: float = 10.0
    """For a row or table that somebody else holds."""
    statement: float = 30.0
    """For one statement, by the server's clock."""
    idle: float = 60.0
    """After this the server ends a transaction whose owner went silent, and frees its locks."""
    answer: float = 60.0
    """For one transaction, by our clock: then the connection is cut. This one needs no help from the server."""


class Link:
    """One connection, made when it is needed and again after it was lost."""

    def __init__(self, dsn: str | Secret, patience: Patience | None = None) -> None:
        self._dsn = dsn
        self._patience = patience or Patience()
        self._connection: Connection | None = None
        self._hidden: tuple[str, ...] = ()
        self._limits = b""
        self.was_cut = False
        """Whether the last transaction took longer than our patience, and was ended from here."""

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Give a connection with a transaction in it. Commit yourself; whatever is not committed is rolled back."""
        self.was_cut = False
        connection = self._begun()
        with self._cut_when_silent(connection):
            try:
                yield connection
            finally:
                self._leave(connection)

    def close(self) -> None:
        """Let go of the connection; the next transaction makes one."""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def answers(self) -> bool:
        """Whether the server answers a quick question at once, on a connection of its own."""
        asking = Link(self._dsn, replace(self._patience, answer=self._patience.connect))
        try:
            with asking.transaction():
                return True
        except (psycopg.Error, OSError):
            return False
        finally:
            asking.close()

    def _leave(self, connection: Connection) -> None:
        """Roll back what is not committed; a connection that cannot do even that is of no more use."""
        try:
            if not connection.closed:
                connection.rollback()
        except psycopg.Error:
            self.close()

    def shown(self, error: BaseException) -> str:
        """Return an error's text, without what must not be shown."""
        text = " ".join(_said(error).split()) or type(error).__name__
        for hidden in self._hidden:
            text = text.replace(hidden, MASK)
        return text

    def _begun(self) -> Connection:
        """Return a connection whose transaction has begun.

        One that ended while nobody used it (an idle limit, a restart) is replaced: nothing was asked of it yet.
        """
        if self._connection is not None:
            try:
                return self._begin_on(self._connection)
            except psycopg.Error:
                if not self._connection.closed:
                    raise
        self._connection = psycopg.connect(**self._settings())
        return self._begin_on(self._connection)

    def _begin_on(self, connection: Connection) -> Connection:
        with self._cut_when_silent(connection):
            connection.execute(self._limits)
        return connection

    def _settings(self) -> dict[str, Any]:
        """What the dsn says goes first: only what it leaves open is filled in."""
        dsn = self._dsn.reveal() if isinstance(self._dsn, Secret) else self._dsn
        try:
            given = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError:  # its text repeats the dsn, password included
            raise SettingsError("the dsn of tg.postgres cannot be read", "check the secret's value") from None
        self._hidden = tuple(str(given[name]) for name in _HIDDEN if len(str(given.get(name, ""))) >= _SHORTEST_HIDDEN)
        self._limits = _limits(self._patience, str(given.get("options", "")))
        silence = int(self._patience.answer * 1000)
        ours = {
            "connect_timeout": max(2, int(self._patience.connect)),
            "application_name": "tidegate",
            "keepalives_idle": 5,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": min(20_000, silence),
        }
        return {**ours, **given}

    def _cut_when_silent(self, connection: Connection) -> AbstractContextManager[None]:
        return cut_when_silent(connection, self._patience.answer, self._note_cut)

    def _note_cut(self) -> None:
        self.was_cut = True


def _limits(patience: Patience, options: str) -> bytes:
    """Return the statement that bounds a transaction by the server's clock; what the dsn's options set stays."""
    named = {
        "statement_timeout": patience.statement,
        "lock_timeout": patience.lock,
        "idle_in_transaction_session_timeout": patience.idle,
    }
    # For one transaction: a pooler between us and the server may give the next one to another connection.
    calls = [f"set_config('{name}', '{int(s * 1000)}', true)" for name, s in named.items() if name not in options]
    return f"select {', '.join(calls) or '1'}".encode()


def _said(error: BaseException) -> str:
    """Return what the server said, without its picture of the statement; else what the client said."""
    if not isinstance(error, psycopg.Error) or error.diag.message_primary is None:
        return str(error)
    parts = (error.diag.message_primary, error.diag.message_detail, error.diag.context)
    return ". ".join(part.rstrip(".") for part in parts if part)


def is_lost(error: BaseException, connection: Connection) -> bool:
    """Whether the connection is gone, so that nobody will tell what became of the last statement."""
    return isinstance(error, psycopg.Error | OSError) and (connection.closed or connection.broken)


def is_passing(error: BaseException) -> bool:
    """Whether the same work may succeed later, on a new connection or an old one."""
    if not isinstance(error, psycopg.Error):
        return isinstance(error, OSError)
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(_PASSING)


def is_repeatable(error: BaseException) -> bool:
    """Whether the server asks for the same transaction again: two of them were in each other's way."""
    return isinstance(error, psycopg.Error) and error.sqlstate in _REPEATABLE


def is_too_slow(error: BaseException) -> bool:
    """Whether a statement ran out of its time: less at once may do, and nobody knows whether a row is to blame."""
    return isinstance(error, psycopg.Error) and error.sqlstate == _TOO_SLOW


def never_fits(error: BaseException) -> bool:
    """Whether a row is wrong in itself: its type, its range, a value that must not be missing."""
    if isinstance(error, psycopg.Error) and error.sqlstate is not None:
        return error.sqlstate.startswith("22") or isinstance(error, errors.NotNullViolation)
    return isinstance(error, psycopg.DataError | UnicodeEncodeError)  # seen before it left this process


def away(link: Link, error: BaseException) -> Unavailable | DatabaseRefused:
    """Return what an error on the way to the server means for a round."""
    found = as_ours(link, error)
    return Unavailable(found.happened) if isinstance(found, DatabaseUnreachable) else found


def as_ours(link: Link, error: BaseException) -> DatabaseUnreachable | DatabaseRefused:
    """Return an error of the client as one of ours, with its cure."""
    text = link.shown(error)
    code = error.sqlstate if isinstance(error, psycopg.Error) else None
    if code is None and is_passing(error):
        if any(words in text for words in _REFUSED):
            return DatabaseRefused(
                f"PostgreSQL refuses the connection: {text}", "check user, password and database of the dsn"
            )
        return DatabaseUnreachable(f"PostgreSQL cannot be reached: {text}", "check the dsn, and that the server runs")
    if is_passing(error) or is_repeatable(error) or is_too_slow(error):
        return DatabaseUnreachable(f"PostgreSQL cannot do it now: {text}", "try again, and look into the server's log")
    if isinstance(error, errors.InsufficientPrivilege | errors.InvalidSchemaName):
        return DatabaseRefused(
            f"PostgreSQL refuses: {text}", "grant the user of the dsn that right, or let somebody else make the tables"
        )
    return DatabaseRefused(f"PostgreSQL refuses: {text}", "mend what it names")
