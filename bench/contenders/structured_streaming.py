"""Spark Structured Streaming with foreachBatch. Options: jars, cores ("2"), most, body ("arrow" or "rdd"), threads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.sql import SparkSession

from bench.contenders.common import Job, Stop, read_job, say_ready, sink_of


def work(text: str, values: Iterable[bytes]) -> int:
    """Run in Spark's Python workers."""
    job = Job(text)
    sink, loads, count = sink_of(job), json.loads, 0
    if threads := job.option("threads"):
        with ThreadPoolExecutor(threads) as pool:
            return sum(1 for _ in pool.map(lambda value: sink(loads(value)), values))
    for value in values:
        sink(loads(value))
        count += 1
    return count


def by_rdd(text: str, batch: Any) -> None:
    batch.select("value").rdd.mapPartitions(lambda rows: [work(text, (row[0] for row in rows))]).collect()


def by_arrow(text: str, batch: Any) -> None:
    def run(tables: Iterator[Any]) -> Iterator[Any]:
        import pyarrow  # noqa: PLC0415  # in the worker

        count = work(text, (value for table in tables for value in table.column(0).to_pylist()))
        yield pyarrow.RecordBatch.from_pydict({"count": [count]})

    batch.select("value").mapInArrow(run, "count long").collect()


def main() -> None:
    job, stop = read_job(), Stop()
    session = (
        SparkSession.builder.master(f"local[{job.option('cores', 2)}]")
        .config("spark.jars", job.option("jars"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.log.level", "ERROR")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    say_ready()
    source = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("subscribe", job.topic)
        .option("startingOffsets", "earliest")
    )
    if job.option("most"):
        source = source.option("maxOffsetsPerTrigger", job.option("most"))
    body, text = by_rdd if job.option("body") == "rdd" else by_arrow, job.text
    query = (
        source.load()
        .writeStream.foreachBatch(lambda batch, _number: body(text, batch))
        .option("checkpointLocation", f"{job.folder}/checkpoint")
        .start()
    )
    while not stop.asked and query.isActive:
        query.awaitTermination(1)
    query.stop()
    session.stop()


if __name__ == "__main__":
    main()
