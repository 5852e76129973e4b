"""The pipeline of `tidegate demo`: orders in, deliveries out, and one order that cannot be delivered at first.

Where the demo's folder is, is told by the file's own place: the demo copies this program there.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import tidegate as tg

FOLDER = Path(__file__).parent


def deliver(order: dict[str, Any]) -> None:
    """Deliver one order: a line in a file, on disk before the function returns."""
    if order["address"] is None and not (FOLDER / "mended").exists():
        raise ValueError(f"order {order['id']} has no address")
    time.sleep(0.001)
    file = _file.get()
    os.write(file, f"{order['id']}\n".encode())


_file = tg.resource(lambda: os.open(FOLDER / "deliveries", os.O_WRONLY | os.O_APPEND | os.O_CREAT), close=os.close)

deliveries = tg.from_kafka("orders", group="delivery").map(tg.json).sink(deliver).commit_every("1s")
