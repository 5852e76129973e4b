"""`tg.jdbc` on a database of Python's own, behind the few calls of JDBC that it makes."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tidegate as tg

ROUND = tg.FrameRound("7-ab", 7, "g", (), 3, is_repeat=False)


class Statement:
    def __init__(self, connection: sqlite3.Connection, sql: str) -> None:
        self._connection, self._sql = connection, sql
        self._values: list[str] = []

    def setString(self, _place: int, value: str) -> None:  # noqa: N802  # JDBC's own name
        self._values.append(value)

    def execute(self) -> None:
        self._connection.execute(self._sql, self._values)

    def executeQuery(self) -> Any:  # noqa: N802  # as above
        found = self._connection.execute(self._sql, self._values).fetchone()
        return SimpleNamespace(next=lambda: found is not None)

    def close(self) -> None:
        pass


class Jdbc:
    """A connection of JDBC's."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path)
        self.commit, self.rollback, self.close = (
            self._connection.commit, self._connection.rollback, self._connection.close,
        )  # fmt: skip

    def setAutoCommit(self, _is_on: bool) -> None:  # noqa: N802  # as above
        pass

    def prepareStatement(self, sql: str) -> Statement:  # noqa: N802  # as above
        return Statement(self._connection, sql)


class Frame:
    """Three rows of one column, and what Spark's writer does with them."""

    columns = ("id",)

    def __init__(self, path: Path, rows: tuple[int, ...] = (1, 2, 3)) -> None:
        self._path, self._rows = path, rows
        dialect = SimpleNamespace(
            quoteIdentifier=lambda name: f'"{name}"',
            createConnectionFactory=lambda _: SimpleNamespace(apply=lambda _: Jdbc(path)),
        )
        sql = SimpleNamespace(
            jdbc=SimpleNamespace(JdbcDialects=SimpleNamespace(get=lambda _: dialect)),
            execution=SimpleNamespace(
                datasources=SimpleNamespace(jdbc=SimpleNamespace(JDBCOptions=lambda given: given))
            ),
        )
        jvm = SimpleNamespace(
            org=SimpleNamespace(apache=SimpleNamespace(spark=SimpleNamespace(sql=sql))),
            PythonUtils=SimpleNamespace(toScalaMap=lambda given: given),
        )
        self.sparkSession = SimpleNamespace(_jvm=jvm)  # Spark's own name

    def limit(self, most: int) -> Frame:
        return Frame(self._path, self._rows[:most])

    @property
    def write(self) -> Any:
        def options(**given: str) -> Any:
            return SimpleNamespace(mode=lambda _: SimpleNamespace(save=lambda: self._save(given["dbtable"])))

        return SimpleNamespace(format=lambda _: SimpleNamespace(options=options))

    def _save(self, table: str) -> None:
        with sqlite3.connect(self._path) as connection:
            connection.execute(f"create table if not exists {table} (id integer)")
            connection.executemany(f"insert into {table} values (?)", [(one,) for one in self._rows])  # noqa: S608


def ids(path: Path, table: str) -> list[int]:
    with sqlite3.connect(path) as connection:
        return [one for (one,) in connection.execute(f"select id from {table} order by id")]  # noqa: S608  # ours


def test_two_tables_of_one_database_get_every_round_both(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    for _ in range(2):  # and a repeat writes nothing twice
        for table in ("orders", "audit"):
            tg.jdbc("jdbc:sqlite:shop", table)(Frame(path), ROUND)

    assert (ids(path, "orders"), ids(path, "audit")) == ([1, 2, 3], [1, 2, 3])


def test_tables_of_whatever_long_names_get_every_round_once(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    with sqlite3.connect(path) as connection:  # it minds no length by itself
        most = "check (length(cast(round_id as blob)) <= 200)"
        connection.execute(f"create table tidegate_rounds (round_id varchar(200) not null primary key {most})")
    # As in "a database"."a schema"."a table", each of the 63 characters that PostgreSQL allows.
    tables = ["o" * 173, "o" * 174, "o" * 191 + "a", "o" * 191 + "b", "ö" * 100]
    for _ in range(2):
        for table in tables:
            tg.jdbc("jdbc:sqlite:shop", table)(Frame(path), ROUND)

    assert [ids(path, table) for table in tables] == [[1, 2, 3]] * len(tables)
