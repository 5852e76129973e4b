"""The history: where groups stand and where they were asked to go, runs, failures, what was redriven.

It is never the truth: that is the group's commits. What cannot be written is lost to the history alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from sqlalchemy import Connection, Row, insert, select

from tidegate.history import pruning, requests
from tidegate.history.link import Link
from tidegate.history.rows import Batch, CommitRow, FailureRow, MarkRow, OffsetRow, RedrivenRow, Request, RunRow
from tidegate.history.tables import commits, failures, offsets, redriven, runs
from tidegate.history.upsert import insert_new, upsert
from tidegate.records import Counts, Partition
from tidegate.secrets import Secret

_COUNTS = ("settled", "retried", "dead", "skipped", "again", "held")


class History:
    """One history, in an SQLite file or in PostgreSQL. Thread-safe; opened by the first call that needs it.

    Whatever is wrong with the database is `HistoryBroken`.
    """

    def __init__(self, url: str | Secret) -> None:
        self._link = Link(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"History({self.shown})"

    @property
    def shown(self) -> str:
        """Where it is, without a password."""
        return self._link.shown

    def close(self) -> None:
        """Let go of the database; a later call opens it again."""
        self._link.close()

    # --- written by a running pipeline

    def write(self, batch: Batch) -> None:
        """Write what a run has to say, in one transaction. Written twice, it is there once."""
        with self._link.writing() as connection:
            _write_run(connection, batch.run)
            _write_marks(connection, batch.run, batch.marks)
            _write_failures(connection, batch.run, batch.failures)

    def prune(self, keep_seconds: float, fine_seconds: float = pruning.FINE_SECONDS) -> None:
        """Forget what is older than this, and thin what is left; `fine_seconds`: how long every commit is kept."""
        with self._link.writing() as connection:
            pruning.prune(connection, datetime.now(UTC), keep_seconds, fine_seconds)

    # --- requests

    def ask(self, cluster: str, group: str, moves: Mapping[Partition, int], *, by: str, at_least: int = 0) -> int:
        """Ask the owners of these partitions to go to these marks; return the number of the rewind.

        The number is greater than that of every request before it, and at least `at_least`. What was asked for
        one of the partitions before, and is not applied yet, is replaced.
        """
        with self._link.writing() as connection:
            return requests.ask(connection, cluster, group, moves, by=by, at_least=at_least)

    def requests(self, cluster: str, group: str, partitions: Iterable[Partition]) -> dict[Partition, Request]:
        """Return what was asked for these partitions and is neither applied nor withdrawn."""
        with self._link.reading() as connection:
            return requests.waiting(connection, cluster, group, partitions)

    def applied(self, cluster: str, group: str, replay: int, marks: Mapping[Partition, int]) -> None:
        """Note that these partitions were moved by the rewind of this number, and to which marks."""
        with self._link.writing() as connection:
            requests.applied(connection, cluster, group, replay, marks)

    def withdraw(self, cluster: str, group: str, replay: int) -> tuple[Partition, ...]:
        """Take back a rewind where it is not applied yet; return those partitions."""
        with self._link.writing() as connection:
            return requests.withdraw(connection, cluster, group, replay)

    # --- what was redriven

    def note_redriven(self, cluster: str, group: str, rows: Iterable[RedrivenRow]) -> None:
        """Remember dead letters that were sent back and acknowledged."""
        with self._link.writing() as connection:
            upsert(connection, redriven, [_redriven_values(cluster, group, row) for row in sorted(rows, key=_place)])

    def redriven(self, cluster: str, group: str, limit: int | None = None) -> tuple[RedrivenRow, ...]:
        """Return the dead letters that were sent back, the latest first."""
        query = select(redriven).where(redriven.c.cluster == cluster, redriven.c.group_name == group)
        with self._link.reading() as connection:
            found = connection.execute(query.order_by(redriven.c.redriven_at.desc()).limit(limit)).all()
        return tuple(
            RedrivenRow(row.partition, row.record_offset, row.written_at, row.redriven_at, row.target, row.stable_id)
            for row in found
        )

    # --- read by people

    def clusters(self) -> tuple[str, ...]:
        """Return the clusters of which anything is known."""
        with self._link.reading() as connection:
            found = {
                name for table in (offsets, runs) for name in connection.scalars(select(table.c.cluster).distinct())
            }
        return tuple(sorted(found))

    def groups(self, cluster: str) -> tuple[str, ...]:
        """Return the groups of which anything is known, by name."""
        with self._link.reading() as connection:
            names: set[str] = set()
            for table in (offsets, runs):
                query = select(table.c.group_name).where(table.c.cluster == cluster).distinct()
                names |= set(connection.execute(query).scalars())
        return tuple(sorted(names))

    def offsets(self, cluster: str, group: str) -> tuple[OffsetRow, ...]:
        """Return the offset table of a group, by topic and partition."""
        query = select(offsets).where(offsets.c.cluster == cluster, offsets.c.group_name == group)
        with self._link.reading() as connection:
            found = connection.execute(query.order_by(offsets.c.topic, offsets.c.partition)).all()
        return tuple(_offset_row(row) for row in found)

    def commits(
        self,
        cluster: str,
        group: str,
        partition: Partition | None = None,
        since: datetime | None = None,
        limit: int = 1000,
    ) -> tuple[CommitRow, ...]:
        """Return where a group stood over time: the latest so many, the oldest of them first."""
        query = select(commits).where(commits.c.cluster == cluster, commits.c.group_name == group)
        if partition is not None:
            query = query.where(commits.c.topic == partition.topic, commits.c.partition == partition.number)
        if since is not None:
            query = query.where(commits.c.settled_at >= since)
        newest = query.order_by(commits.c.settled_at.desc(), commits.c.number.desc()).limit(limit)
        with self._link.reading() as connection:
            found = connection.execute(newest).all()
        return tuple(
            CommitRow(Partition(row.topic, row.partition), row.mark, row.settled_at, row.run_id)
            for row in reversed(found)
        )

    def runs(self, cluster: str, group: str | None = None, limit: int = 100) -> tuple[RunRow, ...]:
        """Return runs, the latest first."""
        query = select(runs).where(runs.c.cluster == cluster)
        if group is not None:
            query = query.where(runs.c.group_name == group)
        with self._link.reading() as connection:
            found = connection.execute(query.order_by(runs.c.began_at.desc()).limit(limit)).all()
        return tuple(_run_row(row) for row in found)

    def live_runs(self, cluster: str, group: str, within_seconds: float) -> tuple[RunRow, ...]:
        """Return runs that have not ended and have said something within this time."""
        since = datetime.now(UTC) - timedelta(seconds=within_seconds)
        query = select(runs).where(
            runs.c.cluster == cluster, runs.c.group_name == group, runs.c.ended_at.is_(None), runs.c.seen_at >= since
        )
        with self._link.reading() as connection:
            found = connection.execute(query.order_by(runs.c.began_at)).all()
        return tuple(_run_row(row) for row in found)

    def failures(self, cluster: str, group: str, limit: int = 100) -> tuple[FailureRow, ...]:
        """Return records that failed, the latest first."""
        query = select(failures).where(failures.c.cluster == cluster, failures.c.group_name == group)
        with self._link.reading() as connection:
            found = connection.execute(query.order_by(failures.c.at.desc()).limit(limit)).all()
        return tuple(_failure_row(row) for row in found)


def supersedes(mark: MarkRow, stored_mark: int | None, stored_at: datetime | None, stored_replay: int) -> bool:
    """Pure: whether a mark is news. A late word of a former owner is not: it is older, and lower."""
    if stored_mark is None or stored_at is None:
        return True
    is_later = mark.settled_at >= stored_at
    is_further = (mark.replay, mark.mark) >= (stored_replay, stored_mark)
    return (is_later or is_further) and (mark.mark, mark.replay) != (stored_mark, stored_replay)


def _write_run(connection: Connection, run: RunRow) -> None:
    values = {
        "run_id": run.run_id,
        "cluster": run.cluster,
        "group_name": run.group,
        "began_at": run.began_at,
        "seen_at": run.seen_at,
        "ended_at": run.ended_at,
        "state": run.state,
        "host": run.host,
        "pid": run.pid,
        "instance": run.instance,
        "member_id": run.member_id,
        "topics": json.dumps(run.topics),
        "error": _text(run.error),
        **dict(zip(_COUNTS, run.counts.as_tuple(), strict=True)),
    }
    upsert(connection, runs, [values])


def _write_marks(connection: Connection, run: RunRow, marks: Mapping[Partition, MarkRow]) -> None:
    """Bring the offset table up to date, and note each mark that is news as a commit."""
    if not marks:
        return
    query = select(offsets).where(offsets.c.cluster == run.cluster, offsets.c.group_name == run.group)
    query = query.order_by(offsets.c.topic, offsets.c.partition).with_for_update()
    stored = {Partition(row.topic, row.partition): row for row in connection.execute(query)}
    news: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    for partition, mark in sorted(marks.items()):
        row = stored.get(partition)
        if row is not None and not supersedes(mark, row.mark, row.settled_at, row.settled_replay):
            continue
        key = {
            "cluster": run.cluster,
            "group_name": run.group,
            "topic": partition.topic,
            "partition": partition.number,
        }
        known = {**key, "mark": mark.mark, "settled_at": mark.settled_at, "run_id": run.run_id}
        changed.append({**known, "topic_id": mark.topic_id, "settled_replay": mark.replay})
        news.append({**known, "grain": pruning.grain(None if row is None else row.settled_at, mark.settled_at)})
    upsert(connection, offsets, changed)
    if news:
        connection.execute(insert(commits), news)


def _write_failures(connection: Connection, run: RunRow, rows: tuple[FailureRow, ...]) -> None:
    insert_new(
        connection,
        failures,
        [
            {
                "failure_id": row.failure_id,
                "cluster": run.cluster,
                "group_name": run.group,
                "topic": row.partition.topic,
                "partition": row.partition.number,
                "record_offset": row.record_offset,
                "error_type": row.error_type,
                "message": _text(row.message),
                "traceback": _text(row.traceback),
                "attempts": row.attempts,
                "fate": row.fate,
                "at": row.at,
                "run_id": row.run_id or run.run_id,
            }
            for row in rows
        ],
    )


def _text(said: str) -> str:
    """Users' errors may hold what text in PostgreSQL may not; one of them would hold up everything behind it."""
    return said.replace("\0", "\\0")


def _place(row: RedrivenRow) -> tuple[int, int]:
    return row.partition, row.offset


def _redriven_values(cluster: str, group: str, row: RedrivenRow) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "group_name": group,
        "partition": row.partition,
        "record_offset": row.offset,
        "written_at": row.written_at,
        "redriven_at": row.redriven_at,
        "target": row.to,
        "stable_id": row.stable_id,
    }


def _offset_row(row: Row[Any]) -> OffsetRow:
    return OffsetRow(
        partition=Partition(row.topic, row.partition),
        mark=row.mark,
        settled_at=row.settled_at,
        topic_id=row.topic_id,
        settled_replay=row.settled_replay,
        run_id=row.run_id,
        requested=row.requested,
        replay=row.replay,
        requested_at=row.requested_at,
        requested_by=row.requested_by,
        applied_at=row.applied_at,
        withdrawn_at=row.withdrawn_at,
    )


def _run_row(row: Row[Any]) -> RunRow:
    return RunRow(
        run_id=row.run_id,
        cluster=row.cluster,
        group=row.group_name,
        began_at=row.began_at,
        seen_at=row.seen_at,
        state=row.state,
        host=row.host,
        pid=row.pid,
        instance=row.instance,
        member_id=row.member_id,
        topics=tuple(json.loads(row.topics)),
        counts=Counts(*(getattr(row, name) for name in _COUNTS)),
        error=row.error,
        ended_at=row.ended_at,
    )


def _failure_row(row: Row[Any]) -> FailureRow:
    return FailureRow(
        partition=Partition(row.topic, row.partition),
        record_offset=row.record_offset,
        error_type=row.error_type,
        message=row.message,
        at=row.at,
        attempts=row.attempts,
        traceback=row.traceback,
        fate=row.fate,
        run_id=row.run_id,
        failure_id=row.failure_id,
    )
