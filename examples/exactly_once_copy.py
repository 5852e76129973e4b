"""Kafka to Kafka, exactly once: the output and the group's mark are one transaction.

Kill it whenever you like and start it again: a reader with `isolation.level=read_committed` (`tidegate tail` is one)
sees every invoice once. The topic `invoices` must exist: `tidegate topics create invoices`.
"""

from __future__ import annotations

from typing import Any

import tidegate as tg


def to_invoice(order: dict[str, Any]) -> dict[str, Any]:
    return {"order": order["id"], "total": round(order["amount"] * 1.2, 2)}


invoices = (
    tg.from_kafka("orders", group="invoicing")
    .map(tg.json)
    .map(to_invoice)
    .sink(tg.kafka("invoices", key=lambda invoice: str(invoice["order"]), exactly_once=True))
    .on_error(tg.hold())
)
