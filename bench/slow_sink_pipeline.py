"""Tidegate's part of bench/slow_sink.py. Usage: slow_sink_pipeline.py BOOTSTRAP TOPIC GROUP URL WIDTH"""

from __future__ import annotations

import sys
import time

import tidegate as tg

bootstrap, topic, group, url, width = sys.argv[1:6]
pipeline = (
    tg.from_kafka(topic, group=group, kafka=bootstrap)
    .map(tg.json)
    .sink(tg.http(url, connections=int(width)))
    .parallel(int(width), order="none")
)

if __name__ == "__main__":
    began = time.monotonic()
    report = pipeline.run(until="caught-up", settings={"master": "local[2]"})
    took = (report.ended_at - report.began_at).total_seconds()
    print(f"{report.settled} {took:.3f} {time.monotonic() - began:.3f}")
