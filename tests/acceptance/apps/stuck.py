"""Notes every record; some take long: by the clock, holding the whole interpreter, or until a file is there."""

import ctypes
import os
import time
from pathlib import Path

import tidegate as tg
from tidegate.testing import RecordLog

log = RecordLog(os.environ["LOG"])
seconds = int(os.environ.get("STUCK_SECONDS", "60"))
sign = Path(os.environ.get("SIGN", ""))


def dawdle(value):
    if value == b"slow":
        time.sleep(seconds)
    if value == b"frozen":
        ctypes.PyDLL(None).sleep(seconds)  # unlike time.sleep, it keeps every other thread of the worker waiting
    while value == b"waits" and not sign.exists():
        time.sleep(0.02)
    return value


pipeline = tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"]).map(log.began).map(dawdle).sink(log.settled)
