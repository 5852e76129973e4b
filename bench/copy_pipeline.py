"""Tidegate's part of bench/exactly_once.py. Usage: copy_pipeline.py BOOTSTRAP SOURCE OUT exactly-once|at-least-once"""

from __future__ import annotations

import sys

import tidegate as tg

LANES = 2

if __name__ == "__main__":
    bootstrap, source, out, guarantee = sys.argv[1:5]
    sink = tg.kafka(out, exactly_once=guarantee == "exactly-once")
    pipeline = tg.from_kafka(source, group=f"group-{out}", kafka=bootstrap).map(tg.json).sink(sink).lanes(LANES)
    report = pipeline.run(until="caught-up", settings={"master": f"local[{LANES}]"})
    print(report.settled)
