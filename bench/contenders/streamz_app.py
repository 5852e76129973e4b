"""streamz, batches from Kafka. Options: poll ("1s"), most (10,000 per batch and partition), threads, client."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

from streamz import Stream

from bench.contenders.common import Stop, read_job, say_ready, sink_of


def main() -> None:
    job, stop = read_job(), Stop()
    sink, loads = sink_of(job), json.loads
    pool = ThreadPoolExecutor(job.option("threads")) if job.option("threads") else None

    def work(batch: list[bytes]) -> int:
        if pool is not None:
            list(pool.map(lambda value: sink(loads(value)), batch))
        else:
            for value in batch:
                sink(loads(value))
        return len(batch)

    say_ready()
    settings = {"bootstrap.servers": job.bootstrap, "group.id": job.group, "auto.offset.reset": "earliest"}
    source = Stream.from_kafka_batched(
        job.topic,
        {**settings, **job.client},
        poll_interval=job.option("poll", "1s"),
        max_batch_size=job.option("most", 10_000),
        asynchronous=False,
    )
    source.map(work).sink(lambda _: None)
    source.start()
    stop.wait()
    time.sleep(1.0)  # its commits go out in the background
    source.stop()
    os._exit(0)  # its own threads do not end


if __name__ == "__main__":
    main()
