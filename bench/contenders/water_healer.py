"""water-healer. Options: source ("single" or "batched"), batch, interval (10), quiet, poll, client."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

from bench.contenders.common import Stop, read_job, say_ready, sink_of

job = read_job()
os.environ["HEALING_GOT_DASK"] = "false"
if job.option("quiet"):
    os.environ.update(ENABLE_EMIT_LOGGING="false", ENABLE_CHECKPOINTING="false", LOGLEVEL="ERROR")

import waterhealer  # noqa: E402  # it reads the variables when it is imported

sink = sink_of(job)


def one(row: Any) -> Any:
    sink(json.loads(row[1]))
    return row


def many(rows: Any) -> Any:
    for row in rows:
        sink(json.loads(row[1]))
    return rows


def main() -> None:
    stop = Stop()
    say_ready()
    settings = {"bootstrap.servers": job.bootstrap, "group.id": job.group, "auto.offset.reset": "earliest"}
    settings |= job.client
    interval = job.option("interval", 10)
    if job.option("source", "single") == "single":
        poll = {"poll_interval": job.option("poll")} if job.option("poll") else {}
        source = waterhealer.from_kafka([job.topic], settings, **poll)
        source.map(one).healing(interval=interval)
    else:
        source = waterhealer.from_kafka_batched(
            [job.topic], settings, batch_size=job.option("batch", 100), batch_timeout=1.0
        )
        source.map(many).flatten().healing(interval=interval)
    source.start()
    threading.Thread(target=end_when_asked, args=[stop], daemon=True).start()
    waterhealer.auto_shutdown(source, got_error=True, interval=1)


def end_when_asked(stop: Stop) -> None:
    stop.wait()
    os._exit(0)  # it has no other end


if __name__ == "__main__":
    main()
