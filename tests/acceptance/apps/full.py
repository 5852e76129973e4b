"""Some records wait while a switch is on, and all others go on: what is settled beyond the mark fills the commits."""

import os

import tidegate as tg
from tidegate.testing import RecordLog, Switch

log = RecordLog(os.environ["LOG"])
switch = Switch(os.environ["LOG"])


def write(value):
    if tg.current().offset % 8 == 0 and switch.is_on("fill metadata"):
        raise ValueError("this one waits")
    log.settled(value)


pipeline = (
    tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"])
    .map(log.began)
    .sink(write)
    .parallel(8, order="none")
    .on_error(tg.retry(1000, wait="1s", factor=1, limit="1s"), tg.stop())
)
