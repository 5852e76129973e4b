"""Lists into a sink: up to 500 records, or those of 200 ms, in one transaction.

With `records=True` the list holds `tg.Record`s, whose stable ids make repeats harmless: after a crash the same record
may come again, in another list. A list that raises is handed on in halves, until the culprit stands alone.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import tidegate as tg

DATABASE = Path("batches.db").absolute()


def connect() -> sqlite3.Connection:
    connection = sqlite3.connect(DATABASE, check_same_thread=False)
    connection.execute("CREATE TABLE IF NOT EXISTS orders (stable_id TEXT PRIMARY KEY, id INTEGER, amount REAL)")
    return connection


def disconnect(connection: sqlite3.Connection) -> None:
    connection.close()


database = tg.resource(connect, close=disconnect)


def row(record: tg.Record) -> tuple[str, int, float]:
    order: Any = record.value  # what the steps made of it
    return record.stable_id, order["id"], order["amount"]


def store(records: list[tg.Record]) -> None:
    with database.get() as connection:
        connection.executemany("INSERT OR REPLACE INTO orders VALUES (?, ?, ?)", map(row, records))


stored = tg.from_kafka("orders", group="batches").map(tg.json).batch(500, within="200ms", records=True).sink(store)
