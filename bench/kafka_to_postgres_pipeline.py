"""Tidegate's part of bench/kafka_to_postgres.py.

Usage: BENCH_DSN=... python bench/kafka_to_postgres_pipeline.py BOOTSTRAP SOURCE KEY (an empty KEY stands for none)
"""

from __future__ import annotations

import sys
import uuid

import tidegate as tg

LANES = 2

if __name__ == "__main__":
    bootstrap, source, key = sys.argv[1:4]
    sink = tg.postgres(tg.secret("env:BENCH_DSN"), table="orders", key=key or None)
    group = f"bench-{uuid.uuid4().hex}"
    pipeline = tg.from_kafka(source, group=group, kafka=bootstrap).map(tg.json).sink(sink).lanes(LANES)
    report = pipeline.run(until="caught-up", settings={"master": f"local[{LANES}]"})
    print(report.settled)
