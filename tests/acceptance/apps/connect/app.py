"""Notes every record, a little slowly; "bad" ones go to the dead letters."""

import os
import time

import checks

import tidegate as tg
from tidegate.testing import RecordLog

log = RecordLog(os.environ["LOG"])
seconds = float(os.environ.get("SECONDS_EACH", "0"))


def write(value):
    from checks import note_origins  # noqa: PLC0415  # a worker must find it by itself, late too

    time.sleep(seconds)
    log.settled(value)
    note_origins(log.path + ".origins")


pipeline = (
    tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"])
    .map(log.began)
    .map(checks.refuse)
    .sink(write)
    .on_error(tg.retry(2, wait="1ms"), tg.dead_letter())
)
