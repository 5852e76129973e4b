"""The marks of a group in PostgreSQL, as the driver sees them: read at the start, moved by a rewind."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg

from tidegate.records import Commit, Partition
from tidegate.sinks import postgres_tables as tables
from tidegate.sinks.postgres_link import Link, Patience, as_ours
from tidegate.sinks.postgres_outbox import Outbox, Relay
from tidegate.store import refused_copy

if TYPE_CHECKING:
    from tidegate.secrets import Secret
    from tidegate.sinks.postgres_link import Connection


class PostgresProgress:
    """Where a group stands, by the table that is the truth. Threads take turns."""

    def __init__(self, dsn: str | Secret, group: str, patience: Patience | None = None) -> None:
        self._dsn, self._patience = dsn, patience
        self._link = Link(dsn, patience)
        self._group = group
        self._lock = threading.Lock()
        self._versions: dict[Partition, int] = {}
        """Of each, as it was read last by whoever decides later where it goes on."""

    def read(self, partitions: Iterable[Partition]) -> dict[Partition, Commit]:
        """Return what is stored; partitions about which nothing is known are left out."""
        with self._working() as connection:
            stored = tables.read_marks(connection, self._group, partitions)
        self._versions |= {one: version for one, (_, version) in stored.items()}
        return {one: commit for one, (commit, _) in stored.items()}

    def move(self, commits: Mapping[Partition, Commit]) -> bool:
        """Store marks, all or none, unless somebody has moved one since all were read; tell whether it was done.

        Every round that read them before is shut out.
        """
        with self._working() as connection:
            return self._is_moved(connection, commits, self._versions)

    def overtake(self, commits: Mapping[Partition, Commit]) -> bool:
        """Store marks, all or none, wherever they are now; False if somebody moves one in this moment.

        What it reads for that is nobody else's reading. Otherwise: one thread has read a mark and decides; another
        process moves it and writes rows; we look, and fail; the first one's move is compared with what we have seen.
        """
        with self._working() as connection:
            stored = tables.read_marks(connection, self._group, commits)
            return self._is_moved(connection, commits, {one: version for one, (_, version) in stored.items()})

    def enter(self, commits: Mapping[Partition, Commit]) -> dict[Partition, Commit]:
        """Store marks of partitions that have none; return those that all of them have now."""
        with self._working() as connection:
            return tables.enter_marks(connection, self._group, commits)

    def unsent(self) -> int:
        """Return how many copies wait in the outbox to be sent to Kafka."""
        with self._working() as connection:
            return tables.count_posted(connection, self._group)

    def deliver(self, relay: Relay) -> int:
        """Send copies that wait in the outbox, as far as Kafka takes them; return how many are left.

        What the broker will never take is an error. Other threads are not kept waiting meanwhile.
        """
        if not self.unsent():
            return 0
        link = Link(self._dsn, self._patience)
        outbox = Outbox(link, self._group, relay)
        try:
            outbox.send()
        except (psycopg.Error, OSError) as error:
            raise as_ours(link, error) from error
        finally:
            link.close()
        if outbox.refused is not None:
            raise refused_copy(outbox.refused)
        return self.unsent()

    def _is_moved(
        self, connection: Connection, commits: Mapping[Partition, Commit], versions: Mapping[Partition, int]
    ) -> bool:
        is_moved = tables.move_marks(connection, self._group, commits, versions)
        if not is_moved:
            connection.rollback()
        return is_moved

    def close(self) -> None:
        """Let go of the connection."""
        self._link.close()

    @contextmanager
    def _working(self) -> Iterator[Connection]:
        """One transaction, tables made where they are missing; errors come as ours."""
        try:
            with self._lock, self._link.transaction() as connection:
                tables.make_tables(connection, {})
                yield connection
                connection.commit()
        except (psycopg.Error, OSError) as error:
            raise as_ours(self._link, error) from error
