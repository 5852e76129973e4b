"""Retriable-Kafka-Client. Options: pool ("process" or "thread"), workers, client."""

from __future__ import annotations

from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor

from retriable_kafka_client import BaseConsumer, ConsumerConfig, ConsumeTopicConfig
from retriable_kafka_client.orchestrate import ConsumerThread

from bench.contenders.common import Stop, read_job, say_ready, sink_of


def main() -> None:
    job = read_job()
    workers = job.option("workers", 2)
    pool: Executor = (ThreadPoolExecutor if job.option("pool") == "thread" else ProcessPoolExecutor)(workers)
    pool.submit(int).result()  # its processes are forked before SIGTERM means something here
    stop = Stop()
    say_ready()
    config = ConsumerConfig(
        kafka_hosts=[job.bootstrap],
        username="none",
        password="none",  # noqa: S106  # the plain broker asks for neither, the client insists
        group_id=job.group,
        target=sink_of(job),
        topics=[ConsumeTopicConfig(job.topic)],
        additional_settings={"security.protocol": "PLAINTEXT", "sasl.mechanisms": "PLAIN", **job.client},
    )
    # What consume_topics() does, with an end.
    thread = ConsumerThread(BaseConsumer(config=config, executor=pool, max_concurrency=workers))
    thread.start()
    stop.wait()
    thread.stop()
    pool.shutdown()


if __name__ == "__main__":
    main()
