"""Tables behind JDBC, each round whole and once: its rows and its id are one transaction.

Spark's own writer commits each task by itself. So the rows go to a table of their own first, and from there into the
target in one transaction of the driver, together with the round's id in `tidegate_rounds`.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from tidegate.errors import SettingsError, Unavailable
from tidegate.frames import DataFrame, FrameRound, FrameWriter
from tidegate.secrets import Secret

logger = logging.getLogger("tidegate.frames")

ROUNDS = "tidegate_rounds"
STAGE = "tidegate_stage"
MOST_NAME = 200
"""Bytes of a round's name, as the column of it holds them everywhere."""

GONE = ("08", "57P")
"""How the codes of errors begin that mean a lost session: everybody's, and PostgreSQL's, where somebody ended it."""
LOST = tuple(
    f"java.sql.SQL{name}Exception" for name in ("Recoverable", "TransientConnection", "NonTransientConnection")
)
"""Errors that mean the same, by whichever code."""
MOST_CAUSES = 20


def jdbc(
    url: str,
    table: str,
    *,
    user: str | None = None,
    password: Secret | str | None = None,
    driver: str | None = None,
    options: Mapping[str, str] | None = None,
) -> FrameWriter:
    """Append rounds to a table: `sink(tg.jdbc("jdbc:postgresql://host/shop", "orders", user=...))`. Each record once.

    A round's rows and its id (with the table's name, in `tidegate_rounds` beside) are one transaction, so that a
    round which is there already is not written again. The rows go through a table `tidegate_stage_...`
    first. The target is made by Spark if it is not there. The session needs the database's driver (`spark.jars` or
    `--packages`).
    """
    if not url.startswith("jdbc:"):
        raise SettingsError(
            "jdbc(...) needs a URL that begins with jdbc:", 'tg.jdbc("jdbc:postgresql://...", "orders")'
        )
    given = {"user": user, "driver": driver, **(options or {})}

    def write_round(frame: DataFrame, round_: FrameRound) -> None:
        known = {**given, "password": password.reveal() if isinstance(password, Secret) else password}
        database = _Database(
            frame.sparkSession, url, {name: str(one) for name, one in known.items() if one is not None}
        )
        try:
            database.write(frame, table, round_)
        except Unavailable:
            raise
        except Exception as error:
            database.refuse_to_blame(error)
            raise

    return FrameWriter(write_round, f"jdbc({table})", "is in the table once", "has no transaction")


class _Database:
    """One database, by Spark's own way to connect to it."""

    def __init__(self, spark: Any, url: str, options: Mapping[str, str]) -> None:
        self._jvm = spark._jvm
        self._url = url
        self._options = dict(options)
        self._dialect = self._jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(url)

    def write(self, frame: DataFrame, table: str, round_: FrameRound) -> None:
        """Write a round, unless it is there."""
        schema, dot, _ = table.rpartition(".")
        rounds, prefix = f"{schema}{dot}{ROUNDS}", f"{STAGE}_{round_.number}_"
        stage = f"{schema}{dot}{prefix}{uuid.uuid4().hex[:8]}"
        # With the table: another writer of the pipeline may write the same round into another one.
        name = _name(round_, table)
        with self._connected() as connection:
            if not _exists(connection, rounds):
                _run(connection, f"create table {rounds} (round_id varchar({MOST_NAME}) not null primary key)")
                connection.commit()
            if round_.is_repeat:
                self._drop_stages(connection, f"{schema}{dot}", prefix)
            if _has_round(connection, rounds, name):
                logger.info("round %s is written already", round_.id, extra={"action": "round_known"})
                return
            if not _exists(connection, table):
                self._save(frame.limit(0), table, "append")
        self._save(frame, stage, "overwrite")
        columns = ", ".join(self._dialect.quoteIdentifier(name) for name in frame.columns)
        with self._connected() as connection:
            # The id first: whoever repeats the same round at the same time waits here, and then fails.
            _run(connection, f"insert into {rounds} (round_id) values (?)", name)  # noqa: S608  # own names
            _run(connection, f"insert into {table} ({columns}) select {columns} from {stage}")  # noqa: S608  # own names
            connection.commit()
            _run(connection, f"drop table {stage}")
            connection.commit()

    def refuse_to_blame(self, error: Exception) -> None:
        """Raise `Unavailable` where a round failed because the database, or our session there, has gone.

        What failed says so itself, for the database may be back already: a session was killed, a server restarted. Not
        every driver does say it; then it has gone where it gives no connection now either.
        """
        if (lost := self._lost_session(error)) is not None:
            raise Unavailable(f"the session with the database has ended: {lost}") from error
        try:
            with self._connected():
                return
        except Unavailable as away:
            raise away from error

    def _lost_session(self, error: Exception) -> str | None:
        """Return what the database's driver said of a session that is gone; None if that is not what failed.

        It stands among the causes of what Spark says, if it happened in a task.
        """
        # Python's error of a call of Java's has one name for it; what PySpark makes of some of these, the other.
        java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
        for _ in range(MOST_CAUSES):
            if java is None:
                return None
            if self._is_a("java.sql.SQLException", java):
                has_gone = str(java.getSQLState() or "").startswith(GONE) or any(self._is_a(one, java) for one in LOST)
                if has_gone:
                    return _first_line(java.getMessage() or "it does not say why")
            java = java.getCause()
        return None

    def _is_a(self, name: str, java: Any) -> bool:
        return bool(self._jvm.java.lang.Class.forName(name).isInstance(java))

    def _save(self, frame: DataFrame, table: str, mode: str) -> None:
        frame.write.format("jdbc").options(url=self._url, dbtable=table, **self._options).mode(mode).save()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        options = self._jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(
            self._jvm.PythonUtils.toScalaMap({"url": self._url, "dbtable": ROUNDS, **self._options})
        )
        try:
            connection = self._dialect.createConnectionFactory(options).apply(-1)
        except Exception as error:
            raise Unavailable(f"no connection to the database: {_said(error)}") from error
        try:
            connection.setAutoCommit(False)  # JDBC's own call
            yield connection
        except BaseException:
            with suppress(Exception):  # what went wrong first is what matters
                connection.rollback()
            raise
        finally:
            with suppress(Exception):
                connection.close()

    def _drop_stages(self, connection: Any, schema: str, prefix: str) -> None:
        """Drop what attempts at this round have left behind that died."""
        found = connection.getMetaData().getTables(None, None, "%", None)
        names = []
        while found.next():
            names.append(str(found.getString("TABLE_NAME")))
        for name in names:
            if name.lower().startswith(prefix):
                try:
                    _run(connection, f"drop table {schema}{name}")
                    connection.commit()
                except Exception:  # noqa: BLE001  # of another schema, or dropped by somebody else
                    connection.rollback()


def _name(round_: FrameRound, table: str) -> str:
    """Return how a round is known in the database: readable, where the table's name is not too long for that."""
    name = f"{round_.id} {table}"
    if len(name.encode()) <= MOST_NAME:
        return name
    return f"{round_.id} {hashlib.blake2b(table.encode(), digest_size=16).hexdigest()}"


def _exists(connection: Any, table: str) -> bool:
    try:
        _run(connection, f"select 1 from {table} where 1 = 0")  # noqa: S608  # a name of the program's own
    except Exception:  # noqa: BLE001  # every database says it in other words
        connection.rollback()
        return False
    connection.commit()
    return True


def _has_round(connection: Any, rounds: str, round_id: str) -> bool:
    statement = connection.prepareStatement(f"select round_id from {rounds} where round_id = ?")  # noqa: S608  # as above
    try:
        statement.setString(1, round_id)
        found = bool(statement.executeQuery().next())
    finally:
        statement.close()
    connection.commit()
    return found


def _run(connection: Any, sql: str, *values: str) -> None:
    statement = connection.prepareStatement(sql)
    try:
        for place, value in enumerate(values, 1):
            statement.setString(place, value)
        statement.execute()
    finally:
        statement.close()


def _said(error: Exception) -> str:
    """Return what the database's driver said; Python's error says only which call it was."""
    java = getattr(error, "java_exception", None)
    return _first_line(error if java is None else java.getMessage() or "") or type(error).__name__


def _first_line(text: object) -> str:
    return next(iter(str(text).strip().splitlines()), "")
