"""Kafka to Kafka in one run on one broker: by hand, Tidegate and Quix Streams, at least once and exactly once.

Usage: python -m bench.exactly_once [--records N] [--rounds K] [--no-quix] [--json FILE]

All read the same JSON records, parse them, and write them again as JSON to a topic of their own. A witness then reads
that topic as `read_committed`, sees that every record is there once, and takes the rate from the broker's own times of
writing, without the first tenth: starting up counts for nobody. Tidegate has two lanes, the others one process, as
they come. Quix Streams is installed by name into an environment of its own in Tidegate's cache; where that is not
possible it is left out. Only the ratios within one run mean anything: machines differ, and this one may be busy.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import orjson
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from bench.environments import NotInstalled, python_of
from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka

HERE = Path(__file__).parent
PARTITIONS = 4
BYTES = 100
SOURCE = "source"
LIMIT_SECONDS = 900
BY_HAND = "by hand, exactly once"

Copying = Callable[[str, str, int], None]
"""Copies the source to the topic of that name; both are on this broker. The last is the number of records."""


def produce(bootstrap: str, count: int) -> None:
    """Write `count` JSON records of about 100 bytes, evenly over the partitions."""
    Admin(Kafka(bootstrap), 30.0).create_topic(SOURCE, PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for number in range(count):
        body = json.dumps({"id": number, "customer": f"c{number % 1000}"})
        value = (body[:-1] + ', "pad": "' + "x" * (BYTES - len(body) - 11) + '"}').encode()
        queue_one(producer, SOURCE, value, number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()


def queue_one(producer: Producer, topic: str, value: bytes, partition: int = -1) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=partition)
        except BufferError:
            producer.poll(0.1)
        else:
            return


# --- the copies


def by_hand(bootstrap: str, out: str, count: int, *, exactly_once: bool) -> None:
    """What a careful program does: a list of records, their outputs, their offsets, tuned."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"group-{out}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.subscribe([SOURCE])
    transactional = {"transactional.id": f"by-hand-{out}"} if exactly_once else {"enable.idempotence": True}
    producer = Producer({"bootstrap.servers": bootstrap, "delivery.report.only.error": True, **transactional})
    if exactly_once:
        producer.init_transactions(30)
    done = 0
    while done < count:
        messages = [message for message in consumer.consume(5000, 0.1) if message.error() is None]
        if not messages:
            continue
        if exactly_once:
            producer.begin_transaction()
        for message in messages:
            queue_one(producer, out, orjson.dumps(orjson.loads(message.value() or b"null")))
        if exactly_once:
            offsets = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
            producer.commit_transaction(30)
        else:
            assert producer.flush(30) == 0
            consumer.commit(asynchronous=False)
        done += len(messages)
    consumer.close()


def tidegate(bootstrap: str, out: str, _count: int, *, exactly_once: bool) -> None:
    """Run Tidegate as a process of its own."""
    command = [sys.executable, str(HERE / "copy_pipeline.py"), bootstrap, SOURCE, out]
    run([*command, "exactly-once" if exactly_once else "at-least-once"], dict(os.environ))


def quix(bootstrap: str, out: str, count: int, *, python: Path, guarantee: str, commit_seconds: float) -> None:
    """Run Quix Streams as a process of its own, in its own environment."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(python), str(HERE / "quix_copy.py"), bootstrap, SOURCE, out]
    run([*command, guarantee, str(commit_seconds), str(count)], variables)


def run(command: list[str], variables: dict[str, str]) -> None:
    quiet = None if os.environ.get("BENCH_VERBOSE") else subprocess.DEVNULL
    subprocess.run(command, check=True, stdout=quiet, stderr=quiet, env=variables, timeout=LIMIT_SECONDS)


def quix_python() -> Path | None:
    """Return the Python of the environment with Quix Streams, made where it is missing; None if that fails."""
    try:
        return python_of("quix")
    except NotInstalled as error:
        print(f"quix streams is left out: {error}", flush=True)
        return None


def copies(*, with_quix: bool) -> dict[str, Copying]:
    found: dict[str, Copying] = {
        "by hand, at least once": functools.partial(by_hand, exactly_once=False),
        BY_HAND: functools.partial(by_hand, exactly_once=True),
        "tidegate, at least once": functools.partial(tidegate, exactly_once=False),
        "tidegate, exactly once": functools.partial(tidegate, exactly_once=True),
    }
    python = quix_python() if with_quix else None
    if python is not None:
        for name, guarantee, seconds in (
            ("quix, at least once, 5 s", "at-least-once", 5.0),
            ("quix, exactly once, 5 s", "exactly-once", 5.0),
            ("quix, exactly once, 0.1 s", "exactly-once", 0.1),
        ):
            found[name] = functools.partial(quix, python=python, guarantee=guarantee, commit_seconds=seconds)
    return found


# --- the witness


def witness(bootstrap: str, topic: str, count: int) -> float:
    """Return the records per second that the broker has written, and see that each is there once."""
    ids, times = read_all(bootstrap, topic)
    assert len(ids) == count, f"{topic}: {len(ids)} outputs of {count} records"
    assert len(set(ids)) == count, f"{topic}: some records are there twice, others are missing"
    times.sort()
    first = count // 10
    return (count - first) / max(0.001, (times[-1] - times[first]) / 1000)


def read_all(bootstrap: str, topic: str) -> tuple[list[int], list[int]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"witness-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    ids, times, ended = [], [], 0
    while ended < PARTITIONS:
        for message in consumer.consume(5000, 1.0):
            error = message.error()
            if error is None:
                ids.append(orjson.loads(message.value() or b"null")["id"])
                times.append(message.timestamp()[1])
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1
    consumer.close()
    return ids, times


def measure(bootstrap: str, name: str, copy: Copying, count: int) -> float:
    out = f"out-{uuid.uuid4().hex[:8]}"
    admin = Admin(Kafka(bootstrap), 30.0)
    admin.create_topic(out, PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
    began = time.monotonic()
    copy(bootstrap, out, count)
    took = time.monotonic() - began
    rate = witness(bootstrap, out, count)
    admin.delete_topic(out)
    print(f"  {name}: {rate:,.0f}/s ({took:.1f} s in all)", flush=True)
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-quix", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    compared = copies(with_quix=not options.no_quix)
    results: dict[str, list[float]] = {name: [] for name in compared}
    with Broker() as broker:
        print(f"producing {options.records} records", flush=True)
        produce(broker.bootstrap, options.records)
        for number in range(options.rounds):
            print(f"round {number + 1}", flush=True)
            for name, copy in compared.items():
                results[name].append(measure(broker.bootstrap, name, copy, options.records))
    middle = {name: statistics.median(rates) for name, rates in results.items()}
    print(f"\nmedian records per second, and the ratio to {BY_HAND}")
    for name, rate in middle.items():
        print(f"  {name:<26} {rate:>10,.0f}   {rate / middle[BY_HAND]:.2f}")
    if options.json:
        options.json.write_text(json.dumps({"median": middle, "all": results}, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
