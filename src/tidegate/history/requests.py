"""Rewinds that were asked for: one per partition, numbered, applied once by the partition's owner.

Who applies one puts its number into the commit's metadata, where it stays: that, and not this table, is why
nothing is applied twice. The number grows from request to request, even where the table was lost in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from sqlalchemy import Connection, and_, func, select, text, update

from tidegate.errors import SettingsError
from tidegate.history.rows import Request
from tidegate.history.tables import offsets
from tidegate.history.upsert import upsert
from tidegate.records import Partition


def ask(
    connection: Connection, cluster: str, group: str, moves: Mapping[Partition, int], *, by: str, at_least: int
) -> int:
    """Note a request for each of these partitions, in place of what was asked for it before; return its number."""
    if not moves:
        raise SettingsError("a rewind names no partition", "name at least one")
    _take_turns(connection, cluster, group)
    now = datetime.now(UTC)
    of_group = and_(offsets.c.cluster == cluster, offsets.c.group_name == group)
    seen = select(func.max(offsets.c.replay), func.max(offsets.c.settled_replay)).where(of_group)
    last = max((number or 0 for number in connection.execute(seen).one()), default=0)
    replay = max(int(now.timestamp() * 1000), last + 1, at_least)
    rows = [
        {
            "cluster": cluster,
            "group_name": group,
            "topic": partition.topic,
            "partition": partition.number,
            "requested": mark,
            "replay": replay,
            "requested_at": now,
            "requested_by": by,
            "applied_at": None,
            "withdrawn_at": None,
        }
        for partition, mark in sorted(moves.items())
    ]
    upsert(connection, offsets, rows)
    return replay


def waiting(
    connection: Connection, cluster: str, group: str, partitions: Iterable[Partition]
) -> dict[Partition, Request]:
    """Return what waits for the owners of these partitions."""
    wanted = set(partitions)
    found = connection.execute(
        select(offsets).where(
            offsets.c.cluster == cluster,
            offsets.c.group_name == group,
            offsets.c.requested.is_not(None),
            offsets.c.applied_at.is_(None),
            offsets.c.withdrawn_at.is_(None),
        )
    )
    each = (
        Request(Partition(row.topic, row.partition), row.requested, row.replay, row.requested_at, row.requested_by)
        for row in found
    )
    return {request.partition: request for request in each if request.partition in wanted}


def applied(connection: Connection, cluster: str, group: str, replay: int, marks: Mapping[Partition, int]) -> None:
    """Note that the owners have moved; a request that has replaced this one since stays open."""
    now = datetime.now(UTC)
    for partition, mark in sorted(marks.items()):
        connection.execute(
            update(offsets)
            .where(
                offsets.c.cluster == cluster,
                offsets.c.group_name == group,
                offsets.c.topic == partition.topic,
                offsets.c.partition == partition.number,
                offsets.c.replay == replay,
                offsets.c.applied_at.is_(None),
            )
            .values(applied_at=now, withdrawn_at=None, mark=mark, settled_at=now, settled_replay=replay)
        )


def withdraw(connection: Connection, cluster: str, group: str, replay: int) -> tuple[Partition, ...]:
    """Take back what of a request is not applied yet; return those partitions."""
    _take_turns(connection, cluster, group)
    still_open = and_(
        offsets.c.cluster == cluster,
        offsets.c.group_name == group,
        offsets.c.replay == replay,
        offsets.c.applied_at.is_(None),
        offsets.c.withdrawn_at.is_(None),
    )
    ordered = (
        select(offsets.c.topic, offsets.c.partition).where(still_open).order_by(offsets.c.topic, offsets.c.partition)
    )
    found = connection.execute(ordered.with_for_update()).all()
    connection.execute(update(offsets).where(still_open).values(withdrawn_at=datetime.now(UTC)))
    return tuple(Partition(row.topic, row.partition) for row in found)


def _take_turns(connection: Connection, cluster: str, group: str) -> None:
    """Let one at a time number requests of a group. On SQLite a transaction that writes is alone anyway."""
    if connection.dialect.name == "postgresql":
        lock = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")
        connection.execute(lock, {"name": f"tidegate history {cluster} {group}"})
