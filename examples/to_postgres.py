"""Kafka to PostgreSQL, exactly once: rows and the group's marks are one transaction.

Two sinks share it. The first stores each order as a row, the second adds to a total, which no repeat may do twice.
Needs `pip install 'tidegate[postgres]'`, the variable SHOP_DSN ("postgresql://user@host/database"), and there
`create table totals (name text primary key, amount numeric)`.
"""

from __future__ import annotations

from typing import Any

import tidegate as tg

DSN = tg.secret("env:SHOP_DSN")
COLUMNS = {"id": "bigint primary key", "amount": "numeric", "items": "jsonb"}
TOTAL = """
    insert into totals values ('all', %(amount)s)
    on conflict (name) do update set amount = totals.amount + excluded.amount
"""


def is_paid(order: dict[str, Any]) -> bool:
    return bool(order["amount"] > 0)


stored = (
    tg.from_kafka("orders", group="bookkeeping")
    .map(tg.json)
    .filter(is_paid)
    .sink(tg.postgres(DSN, table="bills", key="id", columns=COLUMNS))
    .sink(tg.postgres(DSN, sql=TOTAL))
    .on_error(tg.hold())
)
