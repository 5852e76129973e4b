"""Notes every record, a little slowly, so that a kill or a signal finds it at work, until `Scene.hurry`."""

import os
import time
from pathlib import Path

import tidegate as tg
from tidegate.testing import RecordLog

log = RecordLog(os.environ["LOG"])
seconds = float(os.environ.get("SECONDS_EACH", "0"))
hurry = Path(os.environ["LOG"] + ".hurry")


def write(value):
    if not hurry.exists():
        time.sleep(seconds)
    log.settled(value)


pipeline = tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"]).sink(write)
