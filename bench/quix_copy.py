"""Quix Streams' part of bench/exactly_once.py, run in an environment of its own.

Usage: quix_copy.py BOOTSTRAP SOURCE OUT at-least-once|exactly-once COMMIT_SECONDS COUNT
"""

from __future__ import annotations

import sys
import tempfile

from quixstreams import Application

if __name__ == "__main__":
    bootstrap, source, out, guarantee, commit_seconds, count = sys.argv[1:7]
    app = Application(
        broker_address=bootstrap,
        consumer_group=f"group-{out}",
        auto_offset_reset="earliest",
        processing_guarantee=guarantee,
        commit_interval=float(commit_seconds),
        consumer_extra_config={"fetch.queue.backoff.ms": 10},
        loglevel="WARNING",
        state_dir=tempfile.mkdtemp(prefix="tidegate-quix-"),
        auto_create_topics=False,
    )
    copied = app.dataframe(app.topic(source, value_deserializer="json"))
    copied.to_topic(app.topic(out, value_serializer="json"))
    app.run(count=int(count))
