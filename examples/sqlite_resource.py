"""A connection that each Python worker makes once, on first use, and closes at the end of the run.

The stable id is the row's key. A record that runs again after a crash replaces its own row, so repeats do no harm.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import tidegate as tg

DATABASE = Path("orders.db").absolute()


def connect() -> sqlite3.Connection:
    connection = sqlite3.connect(DATABASE)
    connection.execute("CREATE TABLE IF NOT EXISTS orders (stable_id TEXT PRIMARY KEY, id INTEGER, amount REAL)")
    return connection


def disconnect(connection: sqlite3.Connection) -> None:
    connection.close()


database = tg.resource(connect, close=disconnect)


def store(order: dict[str, Any]) -> None:
    row = (tg.current().stable_id, order["id"], order["amount"])
    # `with` commits before the sink returns: returning is what settles the record.
    with database.get() as connection:
        connection.execute("INSERT OR REPLACE INTO orders VALUES (?, ?, ?)", row)


stored = tg.from_kafka("orders", group="store").map(tg.json).sink(store)
