"""Structured Streaming queries as people have them, followed by `tg.track`. What is seen goes to stdout as JSON."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import Any

from pyspark.sql import SparkSession

import tidegate as tg

BOOTSTRAP, TOPIC, GROUP, JARS, FOLDER = (os.environ[name] for name in ("BOOTSTRAP", "TOPIC", "GROUP", "JARS", "FOLDER"))
CLUSTER = tg.Kafka(BOOTSTRAP)

spark = (
    SparkSession.builder.master("local[2]").config("spark.jars", JARS).config("spark.ui.enabled", "false").getOrCreate()
)


def say(what: dict[str, Any]) -> None:
    """Print what was seen."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def committed() -> int:
    """Count the records that the group is past."""
    return sum(one.mark or 0 for one in tg.offsets(GROUP, kafka=CLUSTER).partitions)


def wait_for(count: int) -> None:
    """Wait until the group is past so many records."""
    deadline = time.monotonic() + 120
    while committed() != count and time.monotonic() < deadline:
        time.sleep(0.2)


def start(name: str, **trigger: Any) -> Any:
    """Start a query that notes which records its batches got."""

    def write(frame: Any, batch: int) -> None:
        seen = sorted([row.partition, row.offset] for row in frame.select("partition", "offset").collect())
        say({"query": name, "batch": batch, "seen": seen})

    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 10)
        .load()
    )
    query = records.writeStream.foreachBatch(write).option("checkpointLocation", f"{FOLDER}/{name}")
    return query.trigger(**trigger).start() if trigger else query.start()


def one_query() -> None:
    """All that is there, in batches of ten, and the last batch too."""
    query = start("once", availableNow=True)
    with tg.track(query, group=GROUP, kafka=CLUSTER):
        query.awaitTermination()


def running_query() -> None:
    """A query that goes on: what comes is committed while it runs, without a stop and without a flush."""
    query = start("running")
    tracker = tg.track(query, group=GROUP, kafka=CLUSTER)
    wait_for(50)
    tg.produce(TOPIC, [tg.Message("one more", partition=0)], kafka=CLUSTER)
    wait_for(51)
    say({"committed": committed(), "active": query.isActive})
    query.stop()
    tracker.close()


def two_queries() -> None:
    """A session with two queries over one topic."""
    with tg.track(spark, group=GROUP, kafka=CLUSTER):
        for name in ("first", "second"):
            start(name, availableNow=True).awaitTermination()


logging.basicConfig(level=logging.WARNING)
{"one": one_query, "running": running_query, "two": two_queries}[sys.argv[1]]()
spark.stop()
