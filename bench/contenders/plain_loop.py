"""A loop over confluent-kafka as most programs have it: consume, json.loads, the sink, commit.

Options: batch (500), threads (a pool by hand), gather (connections of an asyncio client by hand), client.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import Consumer

from bench.contenders.common import Job, Stop, read_job, say_ready, sink_of

Batch = Callable[[list[Any]], None]


def open_consumer(job: Job) -> Consumer:
    settings = {
        "bootstrap.servers": job.bootstrap,
        "group.id": job.group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer({**settings, **job.client})
    consumer.subscribe([job.topic])
    return consumer


def loop(job: Job, stop: Stop, work: Batch) -> None:
    consumer = open_consumer(job)
    most, wait = job.option("batch", 500), job.option("wait", 0.5)
    while not stop.asked:
        messages = [message for message in consumer.consume(most, wait) if message.error() is None]
        if messages:
            work(messages)
            consumer.commit(asynchronous=False)
    consumer.close()


def in_sequence(job: Job) -> Batch:
    sink, loads = sink_of(job), json.loads

    def work(messages: list[Any]) -> None:
        for message in messages:
            sink(loads(message.value()))

    return work


def with_threads(job: Job, count: int) -> Batch:
    sink, pool = sink_of(job), ThreadPoolExecutor(count)

    def work(messages: list[Any]) -> None:
        list(pool.map(lambda message: sink(json.loads(message.value())), messages))

    return work


async def gathering(job: Job, stop: Stop, connections: int) -> None:
    import aiohttp  # noqa: PLC0415  # only this way needs it

    connector = aiohttp.TCPConnector(limit=connections)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def send(value: bytes) -> None:
            async with session.post(job.url, data=json.dumps(json.loads(value))) as response:
                await response.read()
                assert response.status == 200

        async def gather(messages: list[Any]) -> None:
            await asyncio.gather(*(send(message.value()) for message in messages))

        running = asyncio.get_running_loop()

        def work(messages: list[Any]) -> None:
            asyncio.run_coroutine_threadsafe(gather(messages), running).result()

        await asyncio.to_thread(loop, job, stop, work)


def main() -> None:
    job, stop = read_job(), Stop()
    say_ready()
    if connections := job.option("gather"):
        asyncio.run(gathering(job, stop, connections))
    elif threads := job.option("threads"):
        loop(job, stop, with_threads(job, threads))
    else:
        loop(job, stop, in_sequence(job))


if __name__ == "__main__":
    main()
