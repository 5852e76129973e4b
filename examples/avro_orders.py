"""Avro by a schema that is at hand: what was written as `WRITTEN` is read as `MINE`.

The new field takes its default, the one that nobody wants is left out. With a schema registry it is
`tg.avro(registry="http://localhost:8081", reader=MINE)`. Needs `pip install 'tidegate[avro]'`.
"""

from __future__ import annotations

from typing import Any

import tidegate as tg

WRITTEN = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": "string"},
    ],
}
MINE = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": "double"},
        {"name": "currency", "type": "string", "default": "EUR"},
    ],
}


def show(order: dict[str, Any]) -> None:
    print(f"avro order {order['id']}: {order['amount']:.2f} {order['currency']}")


orders = tg.from_kafka("orders-avro", group="avro").map(tg.avro(WRITTEN, reader=MINE)).sink(show)
