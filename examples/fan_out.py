"""Fan out: one topic into several, and every record into all that want it.

`when` chooses per sink. The record is settled when each of them has it, or does not want it; a repeat goes only where
it is still missing. The topics must exist: `tidegate topics create small-orders`, and so on.
"""

from __future__ import annotations

from typing import Any

import tidegate as tg


def is_small(order: dict[str, Any]) -> bool:
    return bool(order["amount"] < 1000)


def is_large(order: dict[str, Any]) -> bool:
    return not is_small(order)


fanned = (
    tg.from_kafka("orders", group="fan-out")
    .map(tg.json)
    .sink(tg.kafka("all-orders"))
    .sink(tg.kafka("small-orders"), when=is_small)
    .sink(tg.kafka("large-orders"), when=is_large)
    .on_error(tg.hold())
)
