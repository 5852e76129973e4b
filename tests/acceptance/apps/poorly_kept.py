"""A pipeline whose Python is taken away while it runs, as by somebody who installs anew."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import tidegate as tg
from tidegate.testing import RecordLog

log = RecordLog(os.environ["LOG"])
gone = Path(os.environ["GONE"])


def work(value: bytes) -> bytes:
    if gone.exists():
        os.kill(os.getppid(), signal.SIGKILL)  # the process that workers are forked from
        os._exit(1)
    time.sleep(0.005)
    return value


pipeline = (
    tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"])
    .map(work)
    .sink(log.settled)
    .on_error(tg.retry(1, wait="1ms"), tg.dead_letter())
)
