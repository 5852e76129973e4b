"""Kafka to an HTTP server that answers after 5 ms, beside what people write by hand, in one run.

Usage: python bench/slow_sink.py [--records N] [--rounds N] [--json FILE]

The peers: a plain confluent-kafka loop, the same with a pool of 32 threads by hand, and the same with an asyncio
gather of 32 connections. All commit what they have sent. The server itself says how long it took, from the first
request to the last, so that nobody's start counts; the share of the machine that it takes is the same for all.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiohttp
import orjson
from confluent_kafka import Consumer, Producer

from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka

HERE = Path(__file__).parent
PARTITIONS = 4
WIDTH = 32


def consumer(bootstrap: str, topic: str) -> Consumer:
    made = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"peer-{uuid.uuid4().hex[:8]}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 10,
        }
    )
    made.subscribe([topic])
    return made


def drain(bootstrap: str, topic: str, count: int, send_all: Callable[[list[bytes]], None]) -> None:
    """Read everything in batches, send each batch, commit it."""
    reading = consumer(bootstrap, topic)
    done = 0
    while done < count:
        batch = [one for one in reading.consume(500, 1.0) if one.error() is None]
        if not batch:
            continue
        send_all([one.value() or b"" for one in batch])
        reading.commit(asynchronous=False)
        done += len(batch)
    reading.close()


def seconds_seen(port: int, count: int) -> float:
    """Ask the server how long all these requests took, the first to the last."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/")
    number, seconds = connection.getresponse().read().decode().split()
    assert int(number) >= count, f"{number} of {count} requests have come"
    return float(seconds)


def by_hand_in_sequence(bootstrap: str, topic: str, count: int, port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def send_all(values: list[bytes]) -> None:
        for value in values:
            connection.request("POST", "/x", orjson.dumps(orjson.loads(value)))
            connection.getresponse().read()

    drain(bootstrap, topic, count, send_all)


def by_hand_with_threads(bootstrap: str, topic: str, count: int, port: int) -> None:
    own = threading.local()

    def send(value: bytes) -> None:
        if not hasattr(own, "connection"):
            own.connection = http.client.HTTPConnection("127.0.0.1", port)
        own.connection.request("POST", "/x", orjson.dumps(orjson.loads(value)))
        own.connection.getresponse().read()

    with ThreadPoolExecutor(WIDTH) as pool:

        def send_all(values: list[bytes]) -> None:
            list(pool.map(send, values))

        drain(bootstrap, topic, count, send_all)


def by_hand_with_gather(bootstrap: str, topic: str, count: int, port: int) -> None:
    async def run() -> None:
        connector = aiohttp.TCPConnector(limit=WIDTH)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def send(value: bytes) -> None:
                body = orjson.dumps(orjson.loads(value))
                async with session.post(f"http://127.0.0.1:{port}/x", data=body) as response:
                    await response.read()

            async def gather(values: list[bytes]) -> None:
                await asyncio.gather(*map(send, values))

            loop = asyncio.get_running_loop()

            def send_all(values: list[bytes]) -> None:
                asyncio.run_coroutine_threadsafe(gather(values), loop).result()

            await asyncio.to_thread(drain, bootstrap, topic, count, send_all)

    asyncio.run(run())


def tidegate(bootstrap: str, topic: str, count: int, port: int, width: int = WIDTH) -> None:
    command = [sys.executable, str(HERE / "slow_sink_pipeline.py"), bootstrap, topic, f"tg-{uuid.uuid4().hex[:8]}"]
    answer = subprocess.run(
        [*command, f"http://127.0.0.1:{port}/x", str(width)], check=True, capture_output=True, text=True, timeout=600
    )
    assert int(answer.stdout.split()[0]) == count, answer.stdout


PEERS: dict[str, Callable[[str, str, int, int], None]] = {
    "plain loop + 32 threads by hand": by_hand_with_threads,
    "plain loop + gather of 32 by hand": by_hand_with_gather,
    "tidegate, parallel(32)": tidegate,
    "tidegate, parallel(128)": lambda bootstrap, topic, count, port: tidegate(bootstrap, topic, count, port, 128),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: dict[str, list[float]] = {name: [] for name in PEERS}
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder) / "port"
        server = subprocess.Popen([sys.executable, str(HERE / "slow_server.py"), str(port_file)])
        Admin(Kafka(broker.bootstrap), 30.0).create_topic("b", PARTITIONS)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(options.records):
            producer.produce("b", b'{"id": %d, "amount": 12.5}' % number, partition=number % PARTITIONS)
            producer.poll(0)
        producer.flush(30)
        while not port_file.exists() or not port_file.read_text():
            time.sleep(0.05)
        port = int(port_file.read_text())
        few = min(1000, options.records)
        by_hand_in_sequence(broker.bootstrap, "b", few, port)
        print(f"plain loop, one at a time: {few / seconds_seen(port, few):,.0f}/s", flush=True)
        for number in range(options.rounds):
            for name, run in PEERS.items():
                run(broker.bootstrap, "b", options.records, port)
                rate = options.records / seconds_seen(port, options.records)
                results[name].append(rate)
                print(f"round {number + 1}: {name}: {rate:,.0f}/s", flush=True)
        server.terminate()
    best = max(statistics.median(rates) for name, rates in results.items() if not name.startswith("tidegate"))
    print("\nmedian records per second, and the ratio to the best by hand")
    for name, rates in results.items():
        print(f"  {name:<36} {statistics.median(rates):>8,.0f}   {statistics.median(rates) / best:.2f}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
