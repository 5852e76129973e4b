"""Insert rows or change those that are there: the same words for SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def upsert(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Write these rows, whether or not their keys are there; columns that they do not name stay.

    All rows name the same columns. Give them in the order of their keys: two who lock the same rows in another
    order would wait for each other.
    """
    if rows:
        key = [column.name for column in table.primary_key.columns]
        statement = _insert(connection, table)
        changed = {name: statement.excluded[name] for name in rows[0] if name not in key}
        connection.execute(statement.on_conflict_do_update(index_elements=key, set_=changed), list(rows))


def insert_new(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert those rows whose keys are not there yet."""
    if rows:
        connection.execute(_insert(connection, table).on_conflict_do_nothing(), list(rows))


def _insert(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
