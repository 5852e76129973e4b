"""The pipeline that `latency.py` measures: a sink that notes how old each record is."""

from __future__ import annotations

import os
import sys
import time

import tidegate as tg

BOOTSTRAP, TOPIC, NOTES, LIVE = sys.argv[1:5]
notes = tg.resource(lambda: os.open(NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT))


def note(value: bytes) -> None:
    now = time.time()
    os.write(notes.get(), b"%f %f\n" % (now, now - float(value)))


if __name__ == "__main__":
    tg.from_kafka(TOPIC, group=f"latency-{time.time()}", kafka=BOOTSTRAP, starting="latest").sink(note).run(
        settings={"master": "local[2]", "live": LIVE == "True"}
    )
