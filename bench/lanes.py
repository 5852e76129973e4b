"""How it grows: record rounds with 1 and 2 lanes, and over 4 to 256 partitions, with the driver's cost per partition.

Usage: python -m bench.lanes [--records N] [--partitions 4,64,256] [--repeats K] [--json FILE]

One broker, one Spark; every run reads the same number of records with `json.loads` and a sink that does nothing. The
rate counts from the first settled record that was seen. The driver's cost is the CPU time of this Python process in
which the loop runs: Spark's JVM and the workers are other processes. Only ratios within one run mean anything.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import SparkSession

import tidegate as tg
from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin

LANES = 2
LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class Run:
    """What one run showed."""

    lanes: int
    partitions: int
    records_per_second: float
    driver_cpu_share: float
    """CPU time of the driver's process per second of the run."""


def produce(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    Admin(tg.Kafka(bootstrap), 60.0).create_topic(topic, partitions)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for number in range(count):
        value = b'{"id": %d, "customer": "c%d", "pad": "%s"}' % (number, number % 1000, b"x" * 50)
        producer.produce(topic, value, partition=number % partitions)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()


def nothing(_value: object) -> None:
    """Be the sink."""


class Watch:
    """Notes when the run was first seen to have settled something, and how much."""

    def __init__(self, control: tg.Control) -> None:
        self._control = control
        self._is_over = threading.Event()
        self.first: tuple[float, int] | None = None
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while self.first is None and not self._is_over.wait(LOOK_SECONDS):
            status = self._control.status
            if status is not None and status.counts.settled:
                self.first = (time.time(), status.counts.settled)

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()


def measure(spark: SparkSession, bootstrap: str, topic: str, lanes: int, partitions: int, group: str) -> Run:
    pipeline = tg.from_kafka(topic, group=group, kafka=bootstrap).map(json.loads).sink(nothing).lanes(lanes)
    control = tg.Control()
    watch = Watch(control)
    cpu, began = time.process_time(), time.monotonic()
    report = pipeline.run(until="caught-up", spark=spark, settings={"history": "off"}, control=control)
    cpu, took = time.process_time() - cpu, time.monotonic() - began
    watch.end()
    assert report.exit_code == 0, report.failure
    # What was settled at once was never seen on its way: the rate is then that of the whole run.
    at, before = watch.first or (report.began_at.timestamp(), 0)
    seconds = max(1e-3, report.ended_at.timestamp() - at)
    rate = (report.settled - before) / seconds if before < report.settled else report.settled / took
    return Run(lanes, partitions, rate, cpu / took)


def session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{LANES}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "ERROR")
    return builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()


def middle(runs: list[Run]) -> Run:
    first = runs[0]
    rate = statistics.median(one.records_per_second for one in runs)
    return Run(first.lanes, first.partitions, rate, statistics.median(one.driver_cpu_share for one in runs))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--records", type=int, default=1_000_000)
    options.add_argument("--partitions", default="4,64,256")
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    counts = [int(one) for one in given.partitions.split(",")]
    spark = session()
    found: list[Run] = []
    with Broker() as broker:
        for count in counts:
            produce(broker.bootstrap, f"t{count}", count, given.records)
        shapes = [(1, counts[0]), *((LANES, count) for count in counts)]
        measure(spark, broker.bootstrap, f"t{counts[0]}", LANES, counts[0], "warm-up")
        for lanes, count in shapes:
            topic = f"t{count}"
            groups = [f"g{lanes}-{count}-{again}" for again in range(given.repeats)]
            runs = [measure(spark, broker.bootstrap, topic, lanes, count, group) for group in groups]
            found.append(middle(runs))
            print(
                f"{lanes} lane(s), {count} partitions: {found[-1].records_per_second:,.0f} records per second, "
                f"driver {found[-1].driver_cpu_share:.1%} of a core",
                flush=True,
            )
    one, two, most = found[0], found[1], found[-1]
    print(f"2 lanes / 1 lane: {two.records_per_second / one.records_per_second:.2f}")
    print(f"{most.partitions} / {two.partitions} partitions: {most.records_per_second / two.records_per_second:.2f}")
    if most.partitions > two.partitions:
        each = (most.driver_cpu_share - two.driver_cpu_share) / (most.partitions - two.partitions)
        print(f"the driver's cost per partition: {each * 1000:.2f} ms of CPU per second")
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(run) for run in found], indent=2), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main()
