"""Notes every record; one of them ends the process that runs it."""

import os

import tidegate as tg
from tidegate.testing import RecordLog

log = RecordLog(os.environ["LOG"])


def bite(value):
    if value == b"poison":
        log.fault("worker_died", worker=os.getpid())
        os._exit(1)
    return value


pipeline = tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"]).map(log.began).map(bite).sink(log.settled)
