"""Quix Streams. Options: guarantee, threads (a batching sink with a pool by hand), client."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from quixstreams import Application
from quixstreams.sinks import BatchingSink

from bench.contenders.common import Sink, read_job, say_ready, sink_of


class Pooled(BatchingSink):  # type: ignore[misc]  # no types here: it has an environment of its own
    """What one writes for a slow server: a batch at a checkpoint, sent by a pool of threads."""

    def __init__(self, sink: Sink, threads: int) -> None:
        super().__init__()
        self._sink = sink
        self._pool = ThreadPoolExecutor(threads)

    def write(self, batch: Any) -> None:
        list(self._pool.map(lambda item: self._sink(item.value), batch))


def main() -> None:
    job = read_job()
    say_ready()
    app = Application(
        broker_address=job.bootstrap,
        consumer_group=job.group,
        auto_offset_reset="earliest",
        processing_guarantee=job.option("guarantee", "at-least-once"),
        consumer_extra_config=job.client,
        loglevel="WARNING",
        state_dir=f"{job.folder}/state",
        auto_create_topics=False,
        **job.option("application", {}),
    )
    frame, sink = app.dataframe(app.topic(job.topic, value_deserializer="json")), sink_of(job)
    if threads := job.option("threads"):
        frame.sink(Pooled(sink, threads))
    else:
        frame.update(sink)
    app.run()  # it ends in order on SIGTERM by itself


if __name__ == "__main__":
    main()
