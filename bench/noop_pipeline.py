"""The pipeline that `throughput.py` measures: json.loads and a sink that does nothing but count."""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import tidegate as tg

BOOTSTRAP, TOPIC, GROUP = sys.argv[1:4]
LANES = 2
SAMPLES = Path(tempfile.mkdtemp(prefix="tidegate-bench-"))


def make_sink(folder: str):  # type: ignore[no-untyped-def]
    """Make a sink that notes the time of every 10,000th record and the worker's memory."""
    seen = 0

    def count(_value: object) -> None:
        nonlocal seen
        seen += 1
        if seen % 10_000 == 1:
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            with open(f"{folder}/{os.getpid()}", "a", encoding="utf-8") as file:  # noqa: PTH123  # cheap
                file.write(f"{time.time()} {memory}\n")

    return count


if __name__ == "__main__":
    pipeline = (
        tg.from_kafka(TOPIC, group=GROUP, kafka=BOOTSTRAP).map(json.loads).sink(make_sink(str(SAMPLES))).lanes(LANES)
    )
    report = pipeline.run(until="caught-up", settings={"master": f"local[{LANES}]"})
    ended = report.ended_at.timestamp()
    samples = [tuple(map(float, line.split())) for file in SAMPLES.iterdir() for line in file.read_text().splitlines()]
    samples.sort()
    took = ended - samples[0][0]
    quarter = len(samples) // 4
    print(
        json.dumps(
            {
                "rate": report.settled / took,
                "outside_rounds": max(0.0, 1 - report.round_seconds / (LANES * took)),
                "worker_mb_early": max(memory for _, memory in samples[: quarter + 1]),
                "worker_mb_late": max(memory for _, memory in samples[-quarter - 1 :]),
            }
        )
    )
