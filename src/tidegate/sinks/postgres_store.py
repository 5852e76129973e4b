"""Rows, copies and marks in one PostgreSQL transaction, by compare-and-set on a version per partition."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors

from tidegate.errors import DatabaseRefused, Reject, SettingsError, TidegateError, Unavailable
from tidegate.records import Commit, Partition
from tidegate.secrets import Secret
from tidegate.sinks import postgres_tables as tables
from tidegate.sinks.postgres_link import (
    Link,
    Patience,
    away,
    is_lost,
    is_passing,
    is_repeatable,
    is_too_slow,
    never_fits,
)
from tidegate.sinks.postgres_outbox import Outbox, Relay
from tidegate.sinks.postgres_rows import full_name, table_statement, write_rows
from tidegate.store import Effect, Overtaken, Poisoned, Store

if TYPE_CHECKING:
    from tidegate.sinks.postgres import PostgresSink, Target
    from tidegate.sinks.postgres_link import Connection

_REPEATS = 5
"""How often a transaction is tried that got into another one's way."""
_PRUNE_SECONDS = 3600.0


class _RowsRefused(Exception):
    """The server, or the client on the way to it, does not take a row. The cause says why."""


class PostgresStore(Store):
    """Writes rows, copies and marks of one group as one. All its sinks have the same dsn."""

    keeps_progress = True
    takes_copies = True

    def __init__(
        self, sinks: Sequence[PostgresSink], group: str, relay: Relay, patience: Patience | None = None
    ) -> None:
        self._targets = list(dict.fromkeys(sink.target for sink in sinks))
        self._group = group
        self._link = Link(shared_dsn(sinks), patience)
        self._outbox = Outbox(self._link, group, relay)
        self._versions: dict[Partition, int] = {}
        self._pruned_at: float | None = None

    @property
    def refused(self) -> BaseException | None:  # type: ignore[override]  # nobody sets it
        """Why the broker will never take a copy that waits in the outbox; None while there is no such copy."""
        return self._outbox.refused

    def begin(self, partitions: Sequence[Partition], membership: bytes) -> Mapping[Partition, Commit]:  # noqa: ARG002
        """Shut out whoever worked on these partitions before, send copies that were left, read where they stand."""
        try:
            with self._link.transaction() as connection:
                tables.make_tables(connection, self._own_tables())
                connection.commit()
            self._outbox.send()
            with self._link.transaction() as connection:
                stored = tables.take_over(connection, self._group, partitions)
                connection.commit()
            self._prune_now_and_then()
        except (psycopg.Error, OSError) as error:
            self._link.close()
            raise away(self._link, error) from error
        self._versions = {one: version for one, (_, version) in stored.items()}
        return {one: commit for one, (commit, _) in stored.items()}

    def seal(self, effects: Sequence[Effect], commits: Mapping[Partition, Commit]) -> Mapping[int, BaseException]:
        """Write rows, copies and marks in one transaction, or nothing; then send the copies."""
        try:
            self._write_repeatedly(effects, commits)
        except _RowsRefused as refused:
            cause = refused.__cause__ or refused
            if len(effects) > 1:
                raise Poisoned(self._link.shown(cause)) from cause
            return {0: self._blame(cause)}
        except (psycopg.Error, OSError) as error:
            raise self._not_now(error, len(effects)) from error
        for partition in commits:
            self._versions[partition] = self._versions.get(partition, 0) + 1
        if any(effect.copy is not None for effect in effects):
            self._outbox.may_have_unsent = True
            self._send_what_is_left()
        return {}

    def end(self) -> None:
        """Try once more to send copies that are left; what cannot be sent waits for the next round."""
        if self._outbox.may_have_unsent:
            self._send_what_is_left()

    def discard(self) -> None:
        """Let go of the connection."""
        self._link.close()

    def _own_tables(self) -> dict[str, str]:
        return {full_name(target): table_statement(target) for target in self._targets if target.columns}

    # --- the transaction

    def _write_repeatedly(self, effects: Sequence[Effect], commits: Mapping[Partition, Commit]) -> None:
        for _ in range(_REPEATS - 1):
            try:
                return self._write(effects, commits)
            except psycopg.Error as error:
                if not is_repeatable(error):
                    raise
        return self._write(effects, commits)

    def _write(self, effects: Sequence[Effect], commits: Mapping[Partition, Commit]) -> None:
        with self._link.transaction() as connection:
            # First of all: who has been overtaken must not wait for, or disturb, rows of whoever came after.
            if not tables.move_marks(connection, self._group, commits, self._versions):
                raise Overtaken(f"another process has moved the marks of {self._group} on")
            fresh = self._without_known_passes(connection, effects)
            self._write_rows(connection, fresh)
            copies = [effect.copy for effect in fresh if effect.copy is not None]
            if copies:
                tables.post(connection, self._group, copies)
            self._commit(connection)

    def _without_known_passes(self, connection: Connection, effects: Sequence[Effect]) -> Sequence[Effect]:
        """Leave out passes that had their effect before: a copy may come twice, and twice in one bulk too."""
        wanted = {effect.pass_id for effect in effects if effect.pass_id is not None}
        if not wanted:
            return effects
        unseen = tables.enter_passes(connection, self._group, wanted)
        fresh = []
        for effect in effects:
            if effect.pass_id is None:
                fresh.append(effect)
            elif effect.pass_id in unseen:
                unseen.remove(effect.pass_id)
                fresh.append(effect)
        return fresh

    def _write_rows(self, connection: Connection, effects: Iterable[Effect]) -> None:
        # In the order of the sinks: a table that another one refers to stands before it in the pipeline.
        found: dict[Target, list[Any]] = {target: [] for target in self._targets}
        last, rows = None, []
        for effect in effects:
            for row in effect.outputs:
                if row.target is not last:  # most often it is, and to find its list costs more than all the rest
                    last, rows = row.target, found.setdefault(row.target, [])
                rows.append(row.values)
        try:
            for target, rows in found.items():
                if rows:
                    write_rows(connection, target, rows)
        except Exception as error:
            if _is_about_the_server(error) or connection.closed:
                raise
            raise _RowsRefused from error

    def _commit(self, connection: Connection) -> None:
        try:
            connection.commit()
        except psycopg.Error as error:
            if is_lost(error, connection):
                # Nobody will say whether it was committed. What is stored says it: read that, and go on from there.
                raise Overtaken("the connection was lost while the transaction was being committed") from error
            if _is_about_the_server(error):
                raise
            raise _RowsRefused from error  # a constraint that is checked at the end

    # --- what went wrong

    def _not_now(self, error: BaseException, effects: int) -> Exception:
        if not is_too_slow(error):
            self._link.close()
        # With less at once it may be done in time. A server that is stopped or gone is no question of less at once.
        if effects > 1 and (is_too_slow(error) or (self._link.was_cut and self._link.answers())):
            return Poisoned(self._link.shown(error))
        return away(self._link, error)

    def _blame(self, cause: BaseException) -> BaseException:
        if isinstance(cause, errors.InvalidColumnReference):
            return DatabaseRefused(
                f"the key is not unique: {self._link.shown(cause)}",
                "make it the primary key, or create a unique index on exactly its columns",
            )
        if never_fits(cause):
            rejected = Reject(self._link.shown(cause))
            rejected.__cause__ = cause
            return rejected
        return cause

    # --- copies

    def _send_what_is_left(self) -> None:
        """Send copies whose transaction is through: whatever happens now, they are safe, and are sent later."""
        with suppress(psycopg.Error, OSError, TidegateError):
            self._outbox.send()

    def _prune_now_and_then(self) -> None:
        now = time.monotonic()
        if self._pruned_at is not None and now < self._pruned_at + _PRUNE_SECONDS:
            return
        with self._link.transaction() as connection:
            tables.prune_passes(connection, self._group)
            connection.commit()
        self._pruned_at = now


def shared_dsn(sinks: Sequence[PostgresSink]) -> str | Secret:
    """Return the dsn that all sinks have, or refuse."""
    dsns = {sink.dsn.reveal() if isinstance(sink.dsn, Secret) else sink.dsn for sink in sinks}
    if len(dsns) != 1:
        raise SettingsError(
            "the sinks of one pipeline write to different databases",
            "give all tg.postgres(...) the same dsn: one transaction cannot span two",
        )
    return sinks[0].dsn


def _is_about_the_server(error: BaseException) -> bool:
    return is_passing(error) or is_repeatable(error) or is_too_slow(error) or isinstance(error, Unavailable)
