"""How the history stays small: old commits are thinned, then forgotten; everything else has a greatest number.

Of the commits of a partition the first of each hour is kept longest, the first of each minute for a day, all of
them for an hour at most. Which one it is, is decided when the row is written: so thinning is a plain delete.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection, Table, delete, select

from tidegate.history.tables import commits, failures, redriven, runs

EVERY, FIRST_OF_MINUTE, FIRST_OF_HOUR = 0, 1, 2

FINE_SECONDS = 3600.0
MINUTES_SECONDS = 86_400.0
MOST_RUNS = 1_000
MOST_FAILURES = 1_000
MOST_REDRIVEN = 100_000

_LOCK = 7_445_133_201_447_102_978  # any number that nobody else uses for an advisory lock


def grain(before: datetime | None, now: datetime) -> int:
    """Pure: which row a commit is, given when the partition was last written."""
    if before is None or _hour(before) != _hour(now):
        return FIRST_OF_HOUR
    return FIRST_OF_MINUTE if before.minute != now.minute else EVERY


def prune(connection: Connection, now: datetime, keep_seconds: float, fine_seconds: float = FINE_SECONDS) -> None:
    """Delete what is too old or too much, of every group in the history.

    Offsets stay: they are one row per partition. What was redriven has no age: it is asked for as long as the
    dead letter is there.
    """
    if not _is_alone(connection):
        return
    oldest = now - timedelta(seconds=keep_seconds)
    for level, seconds in ((EVERY, fine_seconds), (FIRST_OF_MINUTE, MINUTES_SECONDS), (FIRST_OF_HOUR, keep_seconds)):
        since = max(oldest, now - timedelta(seconds=seconds))
        connection.execute(delete(commits).where(commits.c.grain == level, commits.c.settled_at < since))
    connection.execute(delete(failures).where(failures.c.at < oldest))
    connection.execute(delete(runs).where(runs.c.seen_at < oldest))
    for table, order, most in (
        (failures, "at", MOST_FAILURES),
        (runs, "began_at", MOST_RUNS),
        (redriven, "redriven_at", MOST_REDRIVEN),
    ):
        _keep_newest(connection, table, order, most)


def _is_alone(connection: Connection) -> bool:
    """Let one at a time prune: two that delete the same rows in another order would wait for each other."""
    if connection.dialect.name != "postgresql":
        return True  # an SQLite file has one writer at a time anyway
    return bool(connection.exec_driver_sql(f"SELECT pg_try_advisory_xact_lock({_LOCK})").scalar())


def _keep_newest(connection: Connection, table: Table, order: str, most: int) -> None:
    column = table.c[order]
    groups = connection.execute(select(table.c.cluster, table.c.group_name).distinct()).all()
    for cluster, group in groups:
        of_group = (table.c.cluster == cluster, table.c.group_name == group)
        first_too_old = select(column).where(*of_group).order_by(column.desc()).limit(1).offset(most)
        if (too_old := connection.execute(first_too_old).scalar()) is not None:
            connection.execute(delete(table).where(*of_group, column <= too_old))


def _hour(moment: datetime) -> tuple[int, ...]:
    return (moment.year, moment.month, moment.day, moment.hour)
