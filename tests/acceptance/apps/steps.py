"""Notes every record when it has been through its functions and when its sink has it, and stands still at one of them.

`STAND` names the step and the record: `read` is before the first function, `ran` before the sink, `settled` when the
sink has it, before it returns. `SIGN` is there as soon as it stands.
"""

import os
import time
from pathlib import Path

import tidegate as tg
from tidegate.testing import RecordLog

log = RecordLog(os.environ["LOG"])
where, _, which = os.environ.get("STAND", "").partition(" ")
sign = Path(os.environ.get("SIGN", ""))


def come_to(step, value):
    if (step, value) == (where, which.encode()):
        sign.touch()
        while True:
            time.sleep(0.02)


def read(value):
    come_to("read", value)
    return value


def write(value):
    come_to("ran", value)
    log.settled(value)
    come_to("settled", value)


pipeline = (
    tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"], starting=os.environ.get("STARTING", "earliest"))
    .map(read)
    .map(log.began)
    .sink(write)
)
