"""Notes every record; one takes a minute, and one holds the whole interpreter for that long."""

import ctypes
import os
import time

import tidegate as tg
from tidegate.testing import RecordLog

log = RecordLog(os.environ["LOG"])


def dawdle(value):
    if value == b"slow":
        time.sleep(60)
    if value == b"frozen":
        ctypes.PyDLL(None).sleep(60)  # unlike time.sleep, it keeps every other thread of the worker waiting
    return value


pipeline = tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"]).map(log.began).map(dawdle).sink(log.settled)
