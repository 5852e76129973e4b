"""Numbers to a topic, exactly once, a little slowly."""

import os
import time

import tidegate as tg
from tidegate.testing import RecordLog

log = RecordLog(os.environ["LOG"])
seconds = float(os.environ["SECONDS_EACH"])


def work(value):
    time.sleep(seconds)
    return value


pipeline = (
    tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"])
    .map(log.began)
    .map(work)
    .sink(tg.kafka(os.environ["OUT"], exactly_once=True))
)
