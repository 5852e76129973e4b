"""What the tests of this ring share: asking the database, and making effects as the engine does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tidegate.context import Hand, take_in_hand
from tidegate.records import Commit, Partition
from tidegate.sinks.postgres import PostgresSink, Row, postgres
from tidegate.sinks.postgres_link import Patience
from tidegate.sinks.postgres_store import PostgresStore
from tidegate.store import Effect, Outgoing

GROUP = "billing"
OPENED: list[PostgresStore] = []
"""What a test has opened, to be let go of after it."""
P0, P1 = Partition("orders", 0), Partition("orders", 1)


@dataclass(frozen=True)
class Database:
    """One schema of the server. The store's own connections are not used here."""

    dsn: str

    def ask(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(sql.encode(), parameters).fetchall()

    def do(self, sql: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(sql.encode())

    def ids(self, table: str = "orders") -> list[Any]:
        return [row[0] for row in self.ask(f"select id from {table} order by id")]  # noqa: S608  # ours

    def marks(self) -> dict[Partition, int]:
        found = self.ask('select topic, partition, mark from tidegate_offsets where "group" = %s', GROUP)
        return {Partition(topic, number): mark for topic, number, mark in found}

    def versions(self) -> dict[Partition, int]:
        found = self.ask('select topic, partition, version from tidegate_offsets where "group" = %s', GROUP)
        return {Partition(topic, number): version for topic, number, version in found}

    def orders(self) -> PostgresSink:
        """A table that takes the same id twice: a double would be seen."""
        return postgres(self.dsn, table="orders", columns={"id": "bigint not null", "note": "text"})


@dataclass
class Broker:
    """What a relay talks to: it keeps what it was sent, and fails as it is told."""

    sent: list[Outgoing] = field(default_factory=list)
    failures: dict[bytes, BaseException] = field(default_factory=dict)
    """By value."""

    def relay(self, copies: Sequence[Outgoing]) -> Mapping[int, BaseException]:
        failed = {at: self.failures[one.value] for at, one in enumerate(copies) if one.value in self.failures}
        self.sent += [one for at, one in enumerate(copies) if at not in failed]
        return failed

    @property
    def values(self) -> list[bytes | None]:
        return [one.value for one in self.sent]


def store_of(*sinks: PostgresSink, broker: Broker | None = None, patience: Patience | None = None) -> PostgresStore:
    store = PostgresStore(sinks, GROUP, (broker or Broker()).relay, patience)
    OPENED.append(store)
    return store


def made(sink: PostgresSink, value: object) -> Row:
    """Call the sink as a round does, and return what it made."""
    hand = Hand(GROUP)
    hand.outputs = []
    take_in_hand(hand)
    try:
        sink(value)
    finally:
        take_in_hand(None)
    [row] = hand.outputs
    assert isinstance(row, Row)
    return row


@dataclass(slots=True, eq=False)
class Placed(Effect):
    """An effect that knows its record."""

    partition: Partition = P0
    record_offset: int = 0


def effect(
    record_offset: int, *rows: Row, at: Partition = P0, copy: Outgoing | None = None, pass_id: str | None = None
) -> Placed:
    return Placed(rows, copy, pass_id, at, record_offset)


def effects(sink: PostgresSink, first: int, end: int, *, at: Partition = P0) -> list[Effect]:
    """Records whose offsets are their ids."""
    return [effect(number, made(sink, {"id": number}), at=at) for number in range(first, end)]


def bulk(sink: PostgresSink, *values: object) -> list[Effect]:
    return [effect(number, made(sink, value)) for number, value in enumerate(values)]


def mark(end: int, *, at: Partition = P0, metadata: str = "") -> dict[Partition, Commit]:
    return {at: Commit(end, metadata)}
