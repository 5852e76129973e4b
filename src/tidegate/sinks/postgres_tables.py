"""Tidegate's own tables in the user's database: marks, copies on their way to Kafka, passes that had their effect.

They lie where the connection's search_path says. Every function here works inside the caller's transaction.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import orjson

from tidegate.records import Commit, Partition
from tidegate.store import Outgoing

if TYPE_CHECKING:
    from tidegate.sinks.postgres_link import Connection

OFFSETS = """
create table if not exists tidegate_offsets (
    "group" text not null,
    topic text not null,
    partition integer not null,
    mark bigint not null,
    metadata text not null,
    version bigint not null,
    updated_at timestamptz not null default now(),
    primary key ("group", topic, partition)
)"""
OUTBOX = """
create table if not exists tidegate_outbox (
    id bigint generated always as identity primary key,
    "group" text not null,
    topic text not null,
    partition integer,
    key bytea,
    value bytea,
    headers json not null,
    written_at timestamptz not null default now()
)"""
PASSES = """
create table if not exists tidegate_passes (
    "group" text not null,
    pass_id text not null,
    seen_at timestamptz not null default now(),
    primary key ("group", pass_id)
)"""
PASSES_BY_AGE = "create index if not exists tidegate_passes_seen_at on tidegate_passes (seen_at)"

NAMES = ("tidegate_offsets", "tidegate_outbox", "tidegate_passes")
_MAKING = 7_310_579_623_415
"""The advisory lock of whoever makes tables: `if not exists` alone fails where two make one at the same moment."""

KEPT_DAYS = 30
"""How long a pass is known: longer than a copy may lie in a retry topic (its delay and seven days)."""
_PRUNED_AT_ONCE = 10_000


def make_tables(connection: Connection, others: Mapping[str, str]) -> None:
    """Make what is missing: our own tables, and others by name and statement. Looking takes no lock and no right."""
    wanted = {**dict.fromkeys(NAMES, ""), **others}
    if not _missing(connection, wanted):
        return
    connection.execute("select pg_advisory_xact_lock(%s)", [_MAKING])
    missing = _missing(connection, wanted)
    if not set(NAMES).isdisjoint(missing):
        for statement in (OFFSETS, OUTBOX, PASSES, PASSES_BY_AGE):
            connection.execute(statement.encode())
    for name in missing:
        if name in others:
            connection.execute(others[name].encode())


def _missing(connection: Connection, names: Iterable[str]) -> list[str]:
    wanted = "select name from unnest(%s::text[]) as wanted (name) where to_regclass(name) is null"
    return [name for (name,) in connection.execute(wanted, [list(names)])]


# --- marks


def take_over(
    connection: Connection, group: str, partitions: Iterable[Partition]
) -> dict[Partition, tuple[Commit, int]]:
    """Raise the versions, so that whoever read them before is shut out; return what was stored, and the new ones.

    The row's lock makes this wait for a transaction that is just being committed, and see what it wrote.
    """
    wanted = sorted(set(partitions))
    _lock(connection, group, wanted)
    rows = connection.execute(
        """
        update tidegate_offsets as stored set version = version + 1
        from unnest(%s::text[], %s::integer[]) as wanted (topic, partition)
        where "group" = %s and stored.topic = wanted.topic and stored.partition = wanted.partition
        returning stored.topic, stored.partition, mark, metadata, version
        """,
        [*_columns(wanted), group],
    )
    return {Partition(topic, number): (Commit(mark, text), version) for topic, number, mark, text, version in rows}


def read_marks(
    connection: Connection, group: str, partitions: Iterable[Partition]
) -> dict[Partition, tuple[Commit, int]]:
    """Return what is stored for these partitions, and its version; those about which nothing is known are left out."""
    rows = connection.execute(
        """
        select stored.topic, stored.partition, mark, metadata, version from tidegate_offsets as stored
        join unnest(%s::text[], %s::integer[]) as wanted (topic, partition) using (topic, partition)
        where "group" = %s
        """,
        [*_columns(sorted(set(partitions))), group],
    )
    return {Partition(topic, number): (Commit(mark, text), version) for topic, number, mark, text, version in rows}


def move_marks(
    connection: Connection, group: str, commits: Mapping[Partition, Commit], versions: Mapping[Partition, int]
) -> bool:
    """Store marks where the versions are still those; tell whether all of them were. If not, roll back."""
    ordered = sorted(commits)
    known = [one for one in ordered if one in versions]
    new = [one for one in ordered if one not in versions]
    _lock(connection, group, known)
    moved = connection.execute(
        """
        update tidegate_offsets as stored
        set mark = wanted.mark, metadata = wanted.metadata, version = stored.version + 1, updated_at = now()
        from unnest(%s::text[], %s::integer[], %s::bigint[], %s::text[], %s::bigint[])
            as wanted (topic, partition, mark, metadata, version)
        where "group" = %s and stored.topic = wanted.topic and stored.partition = wanted.partition
            and stored.version = wanted.version
        """,
        [*_columns(known), *_stored(known, commits), [versions[one] for one in known], group],
    ).rowcount
    return moved == len(known) and _insert_marks(connection, group, new, commits) == len(new)


def enter_marks(connection: Connection, group: str, commits: Mapping[Partition, Commit]) -> dict[Partition, Commit]:
    """Store marks where there are none; return what is stored for all of these afterwards, whoever stored it."""
    _insert_marks(connection, group, sorted(commits), commits)
    return {one: commit for one, (commit, _) in read_marks(connection, group, commits).items()}


def _insert_marks(
    connection: Connection, group: str, new: Sequence[Partition], commits: Mapping[Partition, Commit]
) -> int:
    if not new:
        return 0
    return connection.execute(
        """
        insert into tidegate_offsets ("group", topic, partition, mark, metadata, version)
        select %s, topic, partition, mark, metadata, 1
        from unnest(%s::text[], %s::integer[], %s::bigint[], %s::text[]) as wanted (topic, partition, mark, metadata)
        order by topic, partition
        on conflict do nothing
        """,
        [group, *_columns(new), *_stored(new, commits)],
    ).rowcount


def _lock(connection: Connection, group: str, ordered: Sequence[Partition]) -> None:
    """Lock rows in the one order that everybody keeps: two that want the same rows never wait for each other."""
    connection.execute(
        """
        select 1 from tidegate_offsets as stored
        join unnest(%s::text[], %s::integer[]) as wanted (topic, partition) using (topic, partition)
        where "group" = %s order by stored.topic, stored.partition for update of stored
        """,
        [*_columns(ordered), group],
    )


def _columns(partitions: Sequence[Partition]) -> tuple[list[str], list[int]]:
    return [one.topic for one in partitions], [one.number for one in partitions]


def _stored(partitions: Sequence[Partition], commits: Mapping[Partition, Commit]) -> tuple[list[int], list[str]]:
    return [commits[one].mark for one in partitions], [commits[one].metadata for one in partitions]


# --- passes


def enter_passes(connection: Connection, group: str, pass_ids: Collection[str]) -> set[str]:
    """Note these passes; return those that nobody had noted before."""
    rows = connection.execute(
        """
        insert into tidegate_passes ("group", pass_id)
        select %s, pass_id from unnest(%s::text[]) as wanted (pass_id) order by pass_id
        on conflict do nothing returning pass_id
        """,
        [group, sorted(pass_ids)],
    )
    return {pass_id for (pass_id,) in rows}


def prune_passes(connection: Connection, group: str) -> int:
    """Forget some of those that are too old to come again; return how many."""
    return connection.execute(
        """
        delete from tidegate_passes where ctid = any (array(
            select ctid from tidegate_passes where "group" = %s and seen_at < now() - make_interval(days => %s)
            limit %s for update skip locked))
        """,
        [group, KEPT_DAYS, _PRUNED_AT_ONCE],
    ).rowcount


# --- copies


def post(connection: Connection, group: str, copies: Iterable[Outgoing]) -> None:
    """Put copies into the outbox."""
    into = 'copy tidegate_outbox ("group", topic, partition, key, value, headers) from stdin'
    with connection.cursor().copy(into) as copy:
        for one in copies:
            copy.write_row((group, one.topic, one.partition, one.key, one.value, _headers_out(one.headers)))


def take_posted(connection: Connection, group: str, after: int, most: int) -> list[tuple[int, Outgoing]]:
    """Return the oldest copies after an id that nobody else is sending, locked until the transaction ends."""
    rows = connection.execute(
        """
        select id, topic, partition, key, value, headers::text from tidegate_outbox
        where "group" = %s and id > %s order by id limit %s for update skip locked
        """,
        [group, after, most],
    )
    return [
        (number, Outgoing(topic, value, key, _headers_in(headers), partition))
        for number, topic, partition, key, value, headers in rows
    ]


def delete_posted(connection: Connection, sent: Sequence[int]) -> None:
    """Forget copies that the broker has acknowledged."""
    connection.execute("delete from tidegate_outbox where id = any (%s)", [list(sent)])


def count_posted(connection: Connection, group: str) -> int:
    """Return how many copies wait to be sent."""
    found = connection.execute('select count(*) from tidegate_outbox where "group" = %s', [group]).fetchone()
    return int(found[0]) if found else 0


def _headers_out(headers: Iterable[tuple[str, bytes | None]]) -> str:
    # JSON, since a header's name may hold what text in PostgreSQL may not; base64, since its value is bytes.
    return orjson.dumps(
        [[name, None if value is None else base64.b64encode(value).decode()] for name, value in headers]
    ).decode()


def _headers_in(text: str) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name, None if value is None else base64.b64decode(value)) for name, value in orjson.loads(text))
