"""Throughput of a no-op sink beside a single-process confluent-kafka loop, in one run on one broker.

Usage: python bench/throughput.py [--records N] [--rounds K] [--json FILE]

Only the ratios within one run mean anything: machines differ, and this one may be busy.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer

from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka

HERE = Path(__file__).parent
PARTITIONS = 4
BYTES = 100


def produce(bootstrap: str, topic: str, count: int) -> None:
    """Write `count` JSON records of about 100 bytes, evenly over the partitions."""
    Admin(Kafka(bootstrap), 30.0).create_topic(topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for number in range(count):
        body = json.dumps({"id": number, "customer": f"c{number % 1000}"})
        value = (body[:-1] + ', "pad": "' + "x" * (BYTES - len(body) - 11) + '"}').encode()
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()


def plain_loop(bootstrap: str, topic: str, group: str, count: int, *, tuned: bool) -> float:
    """Read, json.loads and commit in one process, as most programs do; return records per second."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer({**settings, "fetch.queue.backoff.ms": 10} if tuned else settings)
    consumer.subscribe([topic])
    batch = 5000 if tuned else 500
    done, first = 0, 0.0
    while done < count:
        messages = [message for message in consumer.consume(batch, 1.0) if message.error() is None]
        if messages and not first:
            first = time.monotonic()
        for message in messages:
            json.loads(message.value() or b"null")
        done += len(messages)
        if messages:
            consumer.commit(asynchronous=False)
    rate = done / (time.monotonic() - first)
    consumer.close()
    return rate


def tidegate_run(bootstrap: str, topic: str, group: str) -> dict[str, float]:
    """Run Tidegate as a process of its own and read what it measured about itself."""
    answer = subprocess.run(
        [sys.executable, str(HERE / "noop_pipeline.py"), bootstrap, topic, group],
        check=True,
        stdout=subprocess.PIPE,
        stderr=None if os.environ.get("BENCH_VERBOSE") else subprocess.DEVNULL,
    )
    found: dict[str, float] = json.loads(answer.stdout.decode().strip().splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: dict[str, list[float]] = {"plain loop": [], "tuned loop": [], "tidegate": []}
    outside, memory = [], []
    with Broker() as broker:
        print(f"producing {options.records} records", flush=True)
        produce(broker.bootstrap, "bench", options.records)
        for number in range(options.rounds):
            for name, tuned in (("plain loop", False), ("tuned loop", True)):
                rate = plain_loop(broker.bootstrap, "bench", f"{name}-{number}", options.records, tuned=tuned)
                results[name].append(rate)
                print(f"round {number + 1}: {name}: {rate:,.0f}/s", flush=True)
            found = tidegate_run(broker.bootstrap, "bench", f"tidegate-{number}")
            results["tidegate"].append(found["rate"])
            outside.append(found["outside_rounds"])
            memory.append((found["worker_mb_early"], found["worker_mb_late"]))
            print(
                f"round {number + 1}: tidegate: {found['rate']:,.0f}/s, {found['outside_rounds']:.1%} of the lanes' "
                f"time outside rounds, worker memory {found['worker_mb_early']:.0f} then "
                f"{found['worker_mb_late']:.0f} MB",
                flush=True,
            )
    middle = {name: statistics.median(rates) for name, rates in results.items()}
    print("\nmedian records per second, and the ratio to the plain loop")
    for name, rate in middle.items():
        print(f"  {name:<12} {rate:>10,.0f}   {rate / middle['plain loop']:.2f}")
    if options.json:
        facts = {"median": middle, "all": results, "outside_rounds": outside, "worker_mb": memory}
        options.json.write_text(json.dumps(facts, indent=2), encoding="utf-8")
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"  (cpu of all children: {usage.ru_utime + usage.ru_stime:.0f} s)")


if __name__ == "__main__":
    main()
