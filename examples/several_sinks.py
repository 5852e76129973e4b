"""Several sinks: a record is settled when all of them have it, and a repeat calls only those that do not.

Sinks are called in the order written. `when` chooses the values that one sink gets; the others count as had.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

import tidegate as tg

ARCHIVE = Path("archive.jsonl").absolute()


def archive(order: dict[str, Any]) -> None:
    with ARCHIVE.open("ab") as file:
        file.write(orjson.dumps(order) + b"\n")


def warn(order: dict[str, Any]) -> None:
    print(f"large order {order['id']}: {order['amount']}")


def is_large(order: dict[str, Any]) -> bool:
    return bool(order["amount"] >= 1000)


orders = tg.from_kafka("orders", group="archive").map(tg.json).sink(archive).sink(warn, when=is_large)
