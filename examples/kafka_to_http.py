"""Kafka to HTTP: at least once, and effectively once if the server honours `Idempotency-Key`.

While the server is away the pipeline waits, and nothing is lost or set aside. A record that the server refuses for good
(a 4xx) becomes a dead letter. Needs `pip install 'tidegate[http]'`.
"""

from __future__ import annotations

from typing import Any

import tidegate as tg


def to_invoice(order: dict[str, Any]) -> dict[str, Any]:
    return {"order": order["id"], "total": round(order["amount"] * 1.2, 2)}


sent = (
    tg.from_kafka("orders", group="to-http")
    .map(tg.json)
    .map(to_invoice)
    .sink(tg.http("http://localhost:8080/invoices"))
    .parallel(32, order="key")
    .on_error(tg.hold(), tg.retry(3), tg.dead_letter())
)
