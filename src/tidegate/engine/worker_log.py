"""What users log inside a worker reaches the terminal, with the record it belongs to."""

from __future__ import annotations

import logging
import sys

from tidegate.context import current_place


class _PlaceOfRecord(logging.Filter):
    """Adds topic, partition and offset of the record in hand to a log record."""

    def filter(self, record: logging.LogRecord) -> bool:
        place = current_place()
        record.place = f" {place[0]}[{place[1]}]@{place[2]}" if place else ""
        return True


def send_logging_to_stderr(level: int) -> None:
    """Give the worker's root logger a handler, once; a Spark worker has none."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_PlaceOfRecord())
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s%(place)s: %(message)s"))
    root.addHandler(handler)
    root.setLevel(level)
