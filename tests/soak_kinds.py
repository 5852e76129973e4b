"""The sinks that can be soaked: how each is made, and which numbers it took."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import orjson
import psycopg
import pyarrow.parquet as pq

from tests.postgres_server import Server
from tests.soak_ids import noted
from tests.support import settled_transactions
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.ops.tail import tail

OUT, OUT_PARTITIONS = "soak-out", 4
BAD_EVERY = 1000
"""One record of so many is set aside, the last: see `apps/soak.py`."""


@dataclass(frozen=True)
class Kind:
    """One sink, made and empty."""

    taken: Callable[[], Iterable[int]]
    """The numbers that it took, when the run has ended."""
    environment: dict[str, str]
    """What the app needs to know of it."""
    sets_aside: bool = True

    def bad(self, produced: int) -> range:
        """Which of so many numbers are to be set aside."""
        return range(BAD_EVERY - 1, produced, BAD_EVERY) if self.sets_aside else range(0)


def _object(_kafka: Kafka, folder: Path, _stack: ExitStack) -> Kind:
    numbers = folder / "numbers"
    return Kind(lambda: noted(numbers), {"KIND": "object", "NUMBERS": str(numbers)})


def _kafka(kafka: Kafka, _folder: Path, _stack: ExitStack) -> Kind:
    admin = Admin(kafka, 30.0)
    admin.create_topic(OUT, OUT_PARTITIONS)

    def taken() -> Iterator[int]:
        settled_transactions(admin, OUT)
        for one in tail(OUT, kafka=kafka):
            yield orjson.loads(one.value or b"")["id"]

    return Kind(taken, {"KIND": "kafka", "OUT": OUT})


def _postgres(_kafka: Kafka, _folder: Path, stack: ExitStack) -> Kind:
    server = Server()
    stack.callback(server.end)

    def taken() -> Iterator[int]:
        # A cursor of the server's: millions of rows are not fetched at once.
        with psycopg.connect(server.uri) as connection, connection.cursor("numbers") as rows:
            yield from (number for (number,) in rows.execute("select id from numbers"))

    return Kind(taken, {"KIND": "postgres", "DSN": server.uri})


def _parquet(_kafka: Kafka, folder: Path, _stack: ExitStack) -> Kind:
    out = folder / "parquet"

    def taken() -> Iterator[int]:
        for path in out.glob("tidegate_round=*/*.parquet"):
            yield from pq.ParquetFile(path).read(["id"]).column("id").to_pylist()

    # A DataFrame has no records that could be set aside one by one.
    return Kind(taken, {"KIND": "parquet", "OUT": str(out)}, sets_aside=False)


KINDS: dict[str, Callable[[Kafka, Path, ExitStack], Kind]] = {
    "object": _object,
    "kafka": _kafka,
    "postgres": _postgres,
    "parquet": _parquet,
}
