"""The pipeline of `tidegate demo`: orders from Kafka into an order service that is not always there.

Where the service listens is told by a file beside this program: the demo copies it there.
"""

from __future__ import annotations

from pathlib import Path

import tidegate as tg

url = Path(__file__).with_name("order-service.txt").read_text(encoding="utf-8")

orders = (
    tg.from_kafka("orders", group="delivery")
    .map(tg.json)
    .sink(tg.http(url))
    .parallel(16, order="key")
    .on_error(tg.hold(), tg.retry_later("5s"), tg.dead_letter())
    .commit_every("1s")
)
