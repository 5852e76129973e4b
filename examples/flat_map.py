"""One record, several values: the record is settled when every child is.

A child is known by its number. So the function must give the same children, in the same order, for the same value.
"""

from __future__ import annotations

from typing import Any

import tidegate as tg


def lines(order: dict[str, Any]) -> list[str]:
    return [f"{count} x {item}" for item, count in order["items"].items()]


def pick(line: str) -> None:
    # The stable id ends in the child's number: group:topic:partition:offset/child.
    print(f"{tg.current().stable_id} {line}")


picking = tg.from_kafka("orders", group="picking").map(tg.json).flat_map(lines).sink(pick)
