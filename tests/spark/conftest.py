"""One real Spark for the whole run, as a user would make it, and topics of each test's own."""

from __future__ import annotations

import os
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import tidegate as tg
from tests import postgres_driver
from tests.support import ways
from tidegate.copies import Copy, read_headers
from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.kafka.commits import read_commits
from tidegate.kafka.scan import SeenRecord
from tidegate.ops.tail import tail
from tidegate.records import Partition


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tidegate tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.python.daemon.module", "tidegate.engine.worker_daemon")
        .config("spark.log.level", "OFF")
        .config("spark.jars", str(postgres_driver.fetch()))
        .getOrCreate()
    )
    yield session
    session.stop()


def channel(ordinary: str) -> pytest.MarkDecorator:
    """Run with and without the live channel where proof is asked for; ordinarily in one of the two ways."""
    known = {"live": pytest.param(True, id="live"), "plain": pytest.param(False, id="plain")}
    first = known.pop(ordinary)
    return pytest.mark.parametrize("live", ways(first, *known.values()))


@dataclass
class Trail:
    """What a pipeline's functions did, written by the workers: one line each."""

    path: Path

    def __call__(self, value: object) -> None:
        record = tg.current()
        line = f"{record.topic} {record.partition} {record.offset} {record.stable_id} {value!r}\n"
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)

    def offsets(self, partition: int = 0) -> list[int]:
        return [int(line.split()[2]) for line in self.lines() if int(line.split()[1]) == partition]

    def lines(self) -> list[str]:
        return self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []

    def ids(self) -> list[tuple[int, int]]:
        """The records that reached this, by partition and offset."""
        return [(int(line.split()[1]), int(line.split()[2])) for line in self.lines()]

    def values(self) -> list[str]:
        return [line.split(" ", 4)[4] for line in self.lines()]


@dataclass
class World:
    """A topic and a group of a test's own, on the real broker."""

    kafka: tg.Kafka
    admin: Admin
    topic: str
    group: str
    spark: SparkSession
    trail: Trail
    settings: dict[str, object] = field(default_factory=dict)

    def produce(self, values: Iterable[Any], partition: int = 0, **more: Any) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        for value in values:
            raw = None if value is None else value if isinstance(value, bytes) else str(value).encode()
            producer.produce(self.topic, raw, partition=partition, **more)
        assert producer.flush(30) == 0

    def pipeline(self, starting: str = "earliest", lost: str = "stop") -> tg.Pipeline:
        return tg.from_kafka(self.topic, group=self.group, kafka=self.kafka, starting=starting, lost=lost)  # type: ignore[arg-type]

    def run(self, pipeline: tg.Pipeline, until: str = "caught-up") -> tg.Report:
        return pipeline.run(until=until, spark=self.spark, settings=self.settings)  # type: ignore[arg-type]

    def run_leaving_retries(self, pipeline: tg.Pipeline) -> tg.Report:
        return pipeline.run(until="caught-up", retries="leave", spark=self.spark, settings=self.settings)

    def mark(self, partition: int = 0) -> int | None:
        found = self.admin.committed(self.group).get(Partition(self.topic, partition))
        return None if found is None else found.mark

    def copies(self, name: str) -> list[tuple[Copy, SeenRecord]]:
        """What lies in a topic of the group's own: `dead`, `retry.1s`, `redrive`."""
        seen = tail(f"{self.group}.{name}", kafka=self.kafka)
        return [(copy, one) for one in seen if (copy := read_headers(one.headers)) is not None]

    def commits(self, partition: int = 0) -> list[int]:
        seen = read_commits(self.kafka, self.group)
        return [one.mark for one in seen if one.mark is not None and one.partition == (self.topic, partition)]


class Beside:
    """Does something beside a run in the main thread, then ends the run with SIGTERM, unless it ends by itself."""

    def __init__(self, do: Callable[[], None], *, stops: bool = True) -> None:
        self._do = do
        self._stops = stops
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._do()
        except BaseException as error:  # noqa: BLE001  # handed to the test below
            self.error = error
        # A run that has ended by itself handles signals no more: then it would end the tests.
        is_running = signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        if is_running and (self._stops or self.error is not None):
            os.kill(os.getpid(), signal.SIGTERM)

    def check(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive(), "what was to be done beside the run is not done"
        if self.error is not None:
            raise self.error


@pytest.fixture
def make_world(broker: Broker, spark: SparkSession, tmp_path: Path) -> Callable[..., World]:
    def make(partitions: int = 1, config: dict[str, str] | None = None) -> World:
        name = uuid.uuid4().hex[:8]
        kafka = tg.Kafka(broker.bootstrap)
        admin = Admin(kafka, 20.0)
        admin.create_topic(f"t-{name}", partitions, config)
        return World(kafka, admin, f"t-{name}", f"g-{name}", spark, Trail(tmp_path / f"trail-{name}"))

    return make


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()
