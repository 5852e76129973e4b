"""Notes every record; "bad" ones fail until a file appears, and the sink is away while another file is there."""

import os
import time
from pathlib import Path

import tidegate as tg
from tidegate.testing import RecordLog

log = RecordLog(os.environ["LOG"])
seconds = float(os.environ.get("SECONDS_EACH", "0"))
mended = Path(os.environ["LOG"] + ".mended")
away = Path(os.environ["LOG"] + ".away")

ROWS = {
    "dead": (tg.retry(1, wait="1ms"), tg.dead_letter()),
    "later": (tg.retry_later("4s"), tg.dead_letter()),
    "hold": (tg.hold(), tg.dead_letter()),
}


def refuse(value):
    if value.startswith(b"bad") and not mended.exists():
        raise ValueError("no good")
    return value


def write(value):
    if away.exists():
        raise tg.Unavailable("the sink is away")
    time.sleep(seconds)
    log.settled(value)


pipeline = (
    tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"])
    .map(log.began)
    .map(refuse)
    .sink(write)
    .parallel(order=os.environ.get("ORDER", "partition"))
    .on_error(*ROWS[os.environ["ROW"]])
)
