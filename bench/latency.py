"""End-to-end latency beside a plain confluent-kafka loop, with and without the live channel, in one run.

Usage: python bench/latency.py [--seconds N] [--json FILE]

A producer writes records with the time in them, at 20 and at 1,000 per second; the sink notes how old each is.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer

from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka

HERE = Path(__file__).parent
PARTITIONS = 4
WARM_UP = 20.0
"""Seconds at the beginning that do not count: the first record pays for connections and imports, and the first
plain rounds for a cold Java, which takes half a second to start a job that takes a tenth of one later."""


def produce_steadily(bootstrap: str, topic: str, rate: float, stop: threading.Event) -> None:
    """Write `rate` records per second, each with the time in it."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    began, sent = time.monotonic(), 0
    while not stop.is_set():
        if sent < (time.monotonic() - began) * rate:
            producer.produce(topic, repr(time.time()).encode(), partition=sent % PARTITIONS)
            producer.poll(0)
            sent += 1
        else:
            time.sleep(0.0005)
    producer.flush(10)


def plain_loop(bootstrap: str, topic: str, seconds: float, _folder: Path) -> list[tuple[float, float]]:
    """Return (when, latency) of each record in a plain poll loop that commits once a second."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"plain-{time.time()}",
            "auto.offset.reset": "latest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    seen, committed, until = [], time.monotonic(), time.monotonic() + seconds
    while time.monotonic() < until:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            now = time.time()
            seen.append((now, now - float(message.value() or b"0")))
        if time.monotonic() - committed > 1 and seen:
            consumer.commit(asynchronous=False)
            committed = time.monotonic()
    consumer.close()
    return seen


def tidegate(bootstrap: str, topic: str, seconds: float, folder: Path, *, live: bool) -> list[tuple[float, float]]:
    """Return (when, latency) of each record in a Tidegate run of so many seconds after its first record."""
    notes = folder / f"latency-{time.time()}"
    process = subprocess.Popen(
        [sys.executable, str(HERE / "latency_pipeline.py"), bootstrap, topic, str(notes), str(live)],
        stderr=subprocess.DEVNULL,
    )
    while not notes.exists() and process.poll() is None:
        time.sleep(0.1)
    time.sleep(seconds)
    process.terminate()
    process.wait(60)
    rows = [line.split() for line in notes.read_text(encoding="utf-8").splitlines()]
    return [(float(row[0]), float(row[1])) for row in rows if len(row) == 2]


def percentiles(seen: list[tuple[float, float]]) -> dict[str, float]:
    """Return p50, p95 and p99 in milliseconds, without the warm-up."""
    begin = min(when for when, _ in seen) + WARM_UP
    values = sorted(latency * 1000 for when, latency in seen if when >= begin)

    def pick(share: float) -> float:
        return round(values[min(len(values) - 1, int(len(values) * share))], 1)

    return {"p50": pick(0.5), "p95": pick(0.95), "p99": pick(0.99), "records": len(values)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: dict[str, dict[str, dict[str, float]]] = {}
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        for rate in (20, 1000):
            topic = f"latency-{rate}"
            Admin(Kafka(broker.bootstrap), 30.0).create_topic(topic, PARTITIONS)
            stop = threading.Event()
            # A process would be cleaner than a thread; at these rates the thread is idle nearly all the time.
            writer = threading.Thread(target=produce_steadily, args=(broker.bootstrap, topic, rate, stop))
            writer.start()
            row = results[f"{rate}/s"] = {}
            row["plain loop"] = percentiles(plain_loop(broker.bootstrap, topic, options.seconds, Path(folder)))
            for name, live in (("tidegate, live", True), ("tidegate, plain rounds", False)):
                row[name] = percentiles(tidegate(broker.bootstrap, topic, options.seconds, Path(folder), live=live))
            stop.set()
            writer.join()
            print(f"{rate} records per second, milliseconds")
            for name, found in row.items():
                print(f"  {name:<24} p50 {found['p50']:>7}  p95 {found['p95']:>7}  p99 {found['p99']:>7}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
