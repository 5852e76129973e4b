"""Functions get the value. `tg.current()` tells the rest: key, headers, timestamp, place, stable id.

A line that is logged inside a worker reaches the terminal with the record's topic, partition and offset.
"""

from __future__ import annotations

import logging

import tidegate as tg

logger = logging.getLogger("audit")


def note(value: str | None) -> None:
    record = tg.current()
    key = None if record.key is None else record.key.decode()
    logger.info("key=%s headers=%s at=%s value=%s", key, dict(record.headers), record.timestamp, value)


audit = tg.from_kafka("orders", group="audit").map(tg.text).sink(note)
