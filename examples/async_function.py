"""`async def` as a step: 32 records of each lane are under way at once, on one event loop per worker.

Nothing else has to be said: one `async def` among the functions is enough. With `order="key"` the records of a key
still go one after the other.
"""

from __future__ import annotations

import asyncio
from typing import Any

import tidegate as tg


async def ask(what: str, order: dict[str, Any]) -> str:
    await asyncio.sleep(0.05)  # stands for a question to another server
    return f"{what} of order {order['id']} known"


async def assess(order: dict[str, Any]) -> str:
    # Two questions at once: the record waits for the slower one, not for both.
    risk, stock = await asyncio.gather(ask("risk", order), ask("stock", order))
    return f"{risk}, {stock}"


assessed = tg.from_kafka("orders", group="assess").map(tg.json).map(assess).sink(print).parallel(32, order="key")
