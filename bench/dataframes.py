"""Kafka to Parquet through Spark SQL: a DataFrame pipeline beside Structured Streaming with foreachBatch, in one Spark.

Usage: python -m bench.dataframes [--records N] [--round R] [--connector JAR,JAR,...] [--json FILE]

Both decode JSON, add up by customer and write Parquet, with the same number of records per round or batch. Each runs
a small topic first, so that nobody pays for the start. Structured Streaming needs Spark's Kafka connector for the
installed Spark (spark-sql-kafka-0-10, spark-token-provider-kafka-0-10, kafka-clients, commons-pool2): without
`--connector` only Tidegate runs. Only the ratio within one run means anything: machines differ.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's own habit

import tidegate as tg
from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin

PARTITIONS = 4
SCHEMA = "id long, customer string, amount double"
SMALL = 5_000
LIMIT_SECONDS = 900


def produce(bootstrap: str, topic: str, count: int) -> None:
    Admin(tg.Kafka(bootstrap), 30.0).create_topic(topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for number in range(count):
        order = {"id": number, "customer": f"c{number % 1000}", "amount": 17.4, "note": "x" * 40}
        producer.produce(topic, orjson.dumps(order), partition=number % PARTITIONS)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()


def totals(values: Any) -> Any:
    return values.groupBy("customer").agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))


def by_tidegate(spark: SparkSession, bootstrap: str, topic: str, out: Path, most: int) -> None:
    pipeline = (
        tg.from_kafka(topic, group=f"bench-{topic}", kafka=bootstrap)
        .map(tg.json(schema=SCHEMA))
        .dataframe(lambda df: totals(df.select("value.*")), records=most)
        .sink(tg.parquet(str(out)))
    )
    report = pipeline.run(until="caught-up", spark=spark, settings={"history": "off"})
    assert report.exit_code == 0, report.failure


def by_streaming(spark: SparkSession, bootstrap: str, topic: str, out: Path, most: int) -> None:
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    rows = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", most).load()

    def write(batch: Any, number: int) -> None:
        decoded = batch.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("value")).select("value.*")
        totals(decoded).write.mode("overwrite").parquet(f"{out}/batch={number}")

    started = rows.writeStream.foreachBatch(write).option("checkpointLocation", f"{out}-checkpoint")
    query = started.trigger(availableNow=True).start()
    assert query.awaitTermination(LIMIT_SECONDS), "it did not end in time"


def counted(spark: SparkSession, out: Path) -> int:
    return int(spark.read.parquet(str(out)).agg(F.sum("orders")).collect()[0][0])


def session(connector: str | None) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.python.unix.domain.socket.enabled", "true")
    )
    return (builder if connector is None else builder.config("spark.jars", connector)).getOrCreate()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--records", type=int, default=1_000_000)
    options.add_argument("--round", type=int, default=200_000)
    options.add_argument("--connector", help="the jars of Spark's Kafka connector, with commas")
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    spark = session(given.connector)
    ways = {"Tidegate": by_tidegate}
    if given.connector is not None:
        ways["Structured Streaming"] = by_streaming
    rates: dict[str, float] = {}
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        for topic, count in (("small", SMALL), ("large", given.records)):
            produce(broker.bootstrap, topic, count)
        for name, run in ways.items():
            run(spark, broker.bootstrap, "small", Path(folder) / f"{name}-small", given.round)
            began, out = time.monotonic(), Path(folder) / f"{name}-large"
            run(spark, broker.bootstrap, "large", out, given.round)
            rates[name] = given.records / (time.monotonic() - began)
            assert counted(spark, out) == given.records, f"{name} lost or doubled records"
            print(f"{name}: {rates[name]:,.0f} records per second")
    if len(rates) == 2:
        print(f"Tidegate / Structured Streaming: {rates['Tidegate'] / rates['Structured Streaming']:.2f}")
    else:
        print(f"Structured Streaming: not compared (--connector with the jars for Spark {spark.version})")
    if given.json is not None:
        given.json.write_text(json.dumps(rates), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main()
