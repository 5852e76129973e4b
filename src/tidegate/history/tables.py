"""The tables of the history, made where they are missing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Dialect,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    func,
    insert,
    select,
)
from sqlalchemy.dialects import sqlite

from tidegate.errors import HistoryBroken

VERSION = 1
"""Of the tables below. A change that old programs cannot read raises it."""

_LOCK = 7_445_133_201_447_102_977  # any number that nobody else uses for an advisory lock


class UtcTime(TypeDecorator[datetime]):
    """An aware time, stored as UTC. SQLite knows no time zones: there it is UTC without saying so."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Turn any aware time into UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a time zone must not be stored")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Say that it is UTC."""
        del dialect
        if value is None:
            return None
        found: datetime = value
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


_Number = BigInteger().with_variant(sqlite.INTEGER(), "sqlite")
"""SQLite counts up by itself only in a column that is called INTEGER."""

metadata = MetaData()

schema = Table("tidegate_history_schema", metadata, Column("version", Integer, primary_key=True, autoincrement=False))

runs = Table(
    "tidegate_history_runs",
    metadata,
    Column("run_id", String(64), primary_key=True),
    Column("cluster", Text, nullable=False),
    Column("group_name", Text, nullable=False),
    Column("began_at", UtcTime, nullable=False),
    Column("seen_at", UtcTime, nullable=False),
    Column("ended_at", UtcTime),
    Column("state", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("instance", Text),
    Column("member_id", Text, nullable=False),
    Column("topics", Text, nullable=False),  # a JSON list
    Column("settled", BigInteger, nullable=False),
    Column("retried", BigInteger, nullable=False),
    Column("dead", BigInteger, nullable=False),
    Column("skipped", BigInteger, nullable=False),
    Column("again", BigInteger, nullable=False),
    Column("held", BigInteger, nullable=False),
    Column("error", Text, nullable=False),
    Index("tidegate_history_runs_of_group", "cluster", "group_name", "began_at"),
)

offsets = Table(
    "tidegate_history_offsets",
    metadata,
    Column("cluster", Text, primary_key=True),
    Column("group_name", Text, primary_key=True),
    Column("topic", Text, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("mark", BigInteger),
    Column("settled_at", UtcTime),
    Column("topic_id", Text, nullable=False, default=""),
    Column("settled_replay", BigInteger, nullable=False, default=0),
    Column("run_id", String(64), nullable=False, default=""),
    Column("requested", BigInteger),
    Column("replay", BigInteger),
    Column("requested_at", UtcTime),
    Column("requested_by", Text, nullable=False, default=""),
    Column("applied_at", UtcTime),
    Column("withdrawn_at", UtcTime),
)

commits = Table(
    "tidegate_history_commits",
    metadata,
    Column("number", _Number, primary_key=True, autoincrement=True),
    Column("cluster", Text, nullable=False),
    Column("group_name", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("mark", BigInteger, nullable=False),
    Column("settled_at", UtcTime, nullable=False),
    Column("run_id", String(64), nullable=False),
    Column("grain", Integer, nullable=False),  # which row outlives its neighbours: see pruning.py
    Index("tidegate_history_commits_of_partition", "cluster", "group_name", "topic", "partition", "settled_at"),
    Index("tidegate_history_commits_by_age", "grain", "settled_at"),
)

failures = Table(
    "tidegate_history_failures",
    metadata,
    Column("failure_id", String(64), primary_key=True),
    Column("cluster", Text, nullable=False),
    Column("group_name", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("record_offset", BigInteger, nullable=False),
    Column("error_type", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("traceback", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("fate", Text, nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("run_id", String(64), nullable=False),
    Index("tidegate_history_failures_of_group", "cluster", "group_name", "at"),
)

redriven = Table(
    "tidegate_history_redriven",
    metadata,
    Column("cluster", Text, primary_key=True),
    Column("group_name", Text, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("record_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("written_at", UtcTime),
    Column("redriven_at", UtcTime, nullable=False),
    Column("target", Text, nullable=False),
    Column("stable_id", Text, nullable=False),
    Index("tidegate_history_redriven_by_age", "cluster", "group_name", "redriven_at"),
)


def prepare(connection: Connection, *, is_there: bool) -> None:
    """Make what is missing, within the caller's transaction; refuse tables that a newer Tidegate made.

    SQLite's transaction has the file for itself. In PostgreSQL "if not exists" fails when two do it at once,
    so they take turns.
    """
    if not is_there:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        metadata.create_all(connection)
    version = connection.execute(select(func.max(schema.c.version))).scalar()
    if version is None:
        connection.execute(insert(schema).values(version=VERSION))
    elif version > VERSION:
        raise HistoryBroken(
            f"the history was made by a newer Tidegate: its tables have version {version}, this one knows {VERSION}",
            "update Tidegate here, or give this one a history of its own (setting history)",
        )
