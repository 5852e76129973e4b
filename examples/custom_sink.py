"""A sink of your own: an object with `open`, `write` and `close`.

It is pickled and sent to each Python worker, which opens its own before the first value and closes it at the end. Here
each worker has a file of its own. `write` returns when the line is on the disk: returning is what settles the record.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO

import orjson

import tidegate as tg


class JsonLines:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.file: BinaryIO = (self.folder / f"{os.getpid()}.jsonl").open("ab")

    def write(self, order: dict[str, Any]) -> None:
        self.file.write(orjson.dumps(order) + b"\n")
        self.file.flush()
        os.fsync(self.file.fileno())

    def close(self) -> None:
        self.file.close()


written = tg.from_kafka("orders", group="json-lines").map(tg.json).sink(JsonLines(Path("lines").absolute()))
