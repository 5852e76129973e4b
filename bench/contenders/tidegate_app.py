"""Tidegate. Options: decoder ("json.loads" or "tg.json"), width (of parallel), lanes (2), settings."""

from __future__ import annotations

import json

import tidegate as tg
from bench.contenders.common import read_job, sink_of


def main() -> None:
    job = read_job()
    lanes = job.option("lanes", 2)
    decoder = json.loads if job.option("decoder") == "json.loads" else tg.json
    source = tg.from_kafka(job.topic, group=job.group, kafka=job.bootstrap).map(decoder)
    if width := job.option("width"):
        pipeline = source.sink(tg.http(job.url, connections=width)).parallel(width, order="none")
    else:
        pipeline = source.sink(sink_of(job))
    # It says "reads" when Spark has started, and ends in order on SIGTERM, by itself.
    pipeline.run(settings={"master": f"local[{lanes}]", "history": "off", **job.option("settings", {})})


if __name__ == "__main__":
    main()
