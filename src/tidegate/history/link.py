"""The way to the database of the history: SQLite or PostgreSQL, its limits, and what its errors mean."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError, SQLAlchemyError

from tidegate.errors import HistoryBroken, SettingsError
from tidegate.history.tables import metadata, prepare, schema
from tidegate.secrets import MASK, Secret, shown_address

_BUSY_SECONDS = 5.0
"""How long a writer waits for its turn on an SQLite file."""
_CONNECT_SECONDS = 5
ANSWER_SECONDS = 30.0
"""For one transaction in PostgreSQL, by our clock: then its connection is cut."""
_POSTGRES_LIMITS = (
    "SET LOCAL statement_timeout = '15s'; SET LOCAL lock_timeout = '5s'; "
    "SET LOCAL idle_in_transaction_session_timeout = '60s'"
)
_POSTGRES_ARGUMENTS = {
    "connect_timeout": _CONNECT_SECONDS,
    "tcp_user_timeout": 15_000,
    "application_name": "tidegate history",
}
_DRIVER = "psycopg"
_NO_DRIVER = (f"a history in PostgreSQL needs {_DRIVER}, which is not installed", "pip install 'tidegate[postgres]'")
_CUT = "tidegate_cut"
_WRITES = "tidegate_writes"
_CURES = {
    "malformed": "move the file away: a new one is made by itself",
    "not a database": "move the file away: a new one is made by itself",
    "readonly": "make the file and its folder writable, or choose another place (setting history)",
    "full": "make room on the disk",
    "disk I/O": "look at the disk: it may be full",
    "unable to open": "check the path and its rights, or choose another place (setting history)",
    "Permission denied": "let this user write there, or choose another place (setting history)",
    "No such file": "let this user write there, or choose another place (setting history)",
    "Not a directory": "let this user write there, or choose another place (setting history)",
    "Connection refused": "start the server or mend its address in the setting history",
    "locked": "another program holds the file: look who does",
    "password": "mend the user or the password in the setting history",
}


class Link:
    """One database, reached when it is needed. Thread-safe; every call is bounded in time."""

    def __init__(self, url: str | Secret) -> None:
        self._given = url
        self._engine: Engine | None = None
        self._url: URL | None = None
        self._is_ready = False
        self._file: tuple[int, int] | None = None
        """Which file is open: its device and number."""
        self._lock = threading.Lock()

    @property
    def shown(self) -> str:
        """The database as it may be shown: without a password."""
        return shown_address(self._given)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give a connection that sees one moment. A file that is not there is empty, and not made for reading."""
        with self._translating("read"):
            engine = self._ready() if self._is_there() else _empty()
            with engine.connect() as connection, connection.begin():
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Give a connection with a transaction that is committed at its end, or leaves nothing."""
        with self._translating("written"):
            engine = self._ready()
            with engine.connect().execution_options(**{_WRITES: True}) as connection, connection.begin():
                yield connection

    def close(self) -> None:
        """Let go of all connections; the next call makes one."""
        with self._lock:
            engine, self._engine, self._is_ready = self._engine, None, False
        if engine is not None:
            engine.dispose()

    def _ready(self) -> Engine:
        """Return the engine of a database whose tables are there."""
        with self._lock:
            url = self._parsed()
            if self._engine is None:
                self._engine = _engine(url)
            if _is_sqlite(url):
                self._look_at_file(self._engine, Path(str(url.database)))
            if not self._is_ready:
                _check_tables(self._engine)
                self._is_ready = True
            return self._engine

    def _is_there(self) -> bool:
        url = self._parsed()
        return not _is_sqlite(url) or Path(str(url.database)).exists()

    def _parsed(self) -> URL:
        if self._url is None:
            self._url = parsed(self._given.reveal() if isinstance(self._given, Secret) else self._given)
        return self._url

    def _look_at_file(self, engine: Engine, path: Path) -> None:
        """Make the file if it is missing. What is open is of no use where somebody has put another in its place."""
        _make_file(path)
        found = path.stat()
        if self._file != (found.st_dev, found.st_ino):
            engine.dispose()
            self._file = (found.st_dev, found.st_ino)
            self._is_ready = False

    @contextmanager
    def _translating(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, OSError) as error:
            self._is_ready = False  # whatever it was: look at the tables again before the next call
            said = self._masked(_said(error))
            cure = next((cure for part, cure in _CURES.items() if part in said), "see whether the database works")
            raise HistoryBroken(f"the history {self.shown} cannot be {verb}: {said}", cure) from None

    def _masked(self, text: str) -> str:
        password = None if self._url is None else self._url.password
        if password:
            for hidden in (password, quote(password, safe=""), quote_plus(password)):
                text = text.replace(hidden, MASK)
        return text


def parsed(given: str) -> URL:
    """Turn a path or a URL into a URL of a database that is known; never repeat it in an error."""
    if "://" not in given:
        return URL.create("sqlite", database=str(Path(given).expanduser().absolute()))
    try:
        url = make_url(given)
    except (ArgumentError, ValueError):
        raise SettingsError(
            "the history's URL cannot be read", "write it like postgresql://user@host/database"
        ) from None
    kind = url.get_backend_name()
    if kind == "postgres":
        kind, url = "postgresql", url.set(drivername="postgresql")
    if kind == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if kind == "sqlite":
        if not url.database or url.database == ":memory:":
            raise SettingsError("the history's URL names no file", "write it like sqlite:////var/lib/tidegate.sqlite")
        return URL.create("sqlite", database=str(Path(url.database).expanduser().absolute()))
    raise SettingsError(
        f"the history cannot be kept in {kind}", 'choose a path, "sqlite", "off", or a postgresql:// URL'
    )


def check_address(given: str) -> None:
    """Refuse what never can work."""
    if not _is_sqlite(parsed(given)) and find_spec(_DRIVER) is None:
        raise SettingsError(*_NO_DRIVER)


def _is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def _engine(url: URL) -> Engine:
    if _is_sqlite(url):
        engine = create_engine(
            url, hide_parameters=True, pool_timeout=_BUSY_SECONDS, connect_args={"timeout": _BUSY_SECONDS}
        )
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    given = {name: value for name, value in _POSTGRES_ARGUMENTS.items() if name not in url.query}
    try:
        engine = create_engine(
            url,
            hide_parameters=True,
            pool_size=2,
            max_overflow=8,
            pool_timeout=_CONNECT_SECONDS,
            connect_args={**given, "prepare_threshold": None},
        )
    except ModuleNotFoundError:
        raise HistoryBroken(*_NO_DRIVER) from None
    event.listen(engine, "checkout", _take_out)
    event.listen(engine, "checkin", _bring_back)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(_POSTGRES_LIMITS))
    return engine


def _take_out(connection: Any, record: Any, _: object) -> None:
    """Give a connection that lives, and shut it from here when its answers take too long.

    The server's own limits do not help against one that is stopped or swapped out: its machine still answers.
    """
    if connection.closed:
        raise DisconnectionError  # the pool makes another
    end = socket.socket(fileno=os.dup(connection.fileno()))  # of its own: the client may close the other meanwhile
    cut = threading.Timer(ANSWER_SECONDS, _shut, [end])
    cut.daemon = True
    cut.start()
    record.info[_CUT] = (cut, end)
    try:
        connection.execute("SELECT 1")
        connection.rollback()
    except connection.OperationalError:
        _bring_back(connection, record)
        raise DisconnectionError from None


def _bring_back(_: object, record: Any) -> None:
    if (taken := record.info.pop(_CUT, None)) is not None:
        cut, end = taken
        cut.cancel()
        end.close()


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def _empty() -> Engine:
    """Return a history that holds nothing, in memory."""
    engine = create_engine("sqlite://")
    metadata.create_all(engine)
    return engine


def _set_up_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # we begin transactions ourselves, so that a writer takes its turn at once
    cursor = connection.cursor()
    # In this mode readers and the writer do not wait for each other. The change may find the file locked or
    # read-only: it works without, and the next connection tries again.
    with suppress(Exception):
        if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _make_file(path: Path) -> None:
    """Make the file for its owner alone, if it is not there."""
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _check_tables(engine: Engine) -> None:
    """Make the tables where they are missing; what is there need not be writable."""
    with engine.connect() as connection, connection.begin():
        is_there = inspect(connection).has_table(schema.name)
    with engine.connect().execution_options(**{_WRITES: not is_there}) as connection, connection.begin():
        prepare(connection, is_there=is_there)


def _said(error: BaseException) -> str:
    """Return the database's own words, without the statement."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return " ".join(str(error).split()) or type(error).__name__
