"""Shows that a Delta table has each record once after a crash, and again after a rewind. Run it by hand.

Usage: python tests/spark/delta_rounds.py JAR,JAR,...   (the jars of io.delta:delta-spark for the installed Spark)

No test of the suite: there is no Delta for the Spark that the suite runs on.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from typing import Any

from pyspark.sql import SparkSession

import tidegate as tg
from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.ops.produce import Message, produce

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def main(jars: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    builder = builder.config("spark.sql.extensions", EXTENSION).config("spark.sql.catalog.spark_catalog", CATALOG)
    spark = builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1").getOrCreate()
    seen: list[tg.FrameRound] = []
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        kafka = tg.Kafka(broker.bootstrap)
        Admin(kafka).create_topic("t", 2)
        produce("t", [Message(str(number), partition=number % 2) for number in range(100)], kafka=kafka)
        inner = tg.delta(folder)

        def write(df: Any, round_: tg.FrameRound) -> None:
            seen.append(round_)
            inner(df, round_)
            if len(seen) == 1:
                raise ValueError("after the write, before the commit")

        def ids() -> Counter[tuple[int, int]]:
            return Counter(
                (one["partition"], one["offset"]) for one in spark.read.format("delta").load(folder).collect()
            )

        pipeline = tg.from_kafka("t", group="g", kafka=kafka).dataframe(lambda df: df, records=60).sink(tg.write(write))
        every = Counter((number % 2, number // 2) for number in range(100))
        assert pipeline.run(until="caught-up", spark=spark).exit_code == 3
        assert pipeline.run(until="caught-up", spark=spark).settled == 100
        assert (seen[1].id, seen[1].is_repeat) == (seen[0].id, True)
        assert ids() == every, "each record once"
        tg.rewind("g", to="beginning", kafka=kafka)
        assert pipeline.run(until="caught-up", spark=spark).settled == 100
        assert ids() == every + every, "a rewind writes again"
    print(f"Delta on Spark {spark.version}: each record once, and once more after a rewind")  # noqa: T201  # run by hand
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
