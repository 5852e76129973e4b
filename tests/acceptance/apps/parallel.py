"""Notes every record; many are in work at a time, and they take differently long, or wait while a file is there."""

import asyncio
import os
import random
import time
from pathlib import Path

import tidegate as tg
from tidegate.testing import RecordLog

log = RecordLog(os.environ["LOG"])
most = float(os.environ.get("MOST_SECONDS", "0.05"))
held = Path(os.environ["LOG"] + ".held")


def some_time():
    return random.Random(tg.current().stable_id).random() ** 4 * most


def write(value):
    time.sleep(some_time())
    while held.exists():
        time.sleep(0.02)
    log.settled(value)


async def write_async(value):
    await asyncio.sleep(some_time())
    while held.exists():
        await asyncio.sleep(0.02)
    log.settled(value)


pipeline = (
    tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"])
    .map(log.began)
    .sink(write if os.environ.get("KIND") == "threads" else write_async)
    .parallel(16, order=os.environ.get("ORDER", "none"))
)
