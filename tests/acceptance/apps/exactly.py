"""Numbers to a topic or a table, exactly once; some of them fail once, some always, where that is asked for."""

import os
import time

import tidegate as tg
from tidegate.testing import RecordLog

log = RecordLog(os.environ["LOG"])
seconds = float(os.environ.get("SECONDS_EACH", "0"))
failing = bool(os.environ.get("FAILING"))

ROWS = {
    "stop": (tg.stop(),),
    "hold": (tg.hold(), tg.dead_letter()),
    "later": (tg.retry_later("1s"), tg.dead_letter()),
}
row = os.environ.get("ROW", "stop")


def work(value):
    import edges  # noqa: F401, PLC0415  # it changes the stores of this worker

    time.sleep(seconds)
    number = int(value)
    fails_always, fails_once = number % 50 == 7, number % 50 == 14
    if failing and (fails_always or (fails_once and tg.current().attempt == 1)):
        raise ValueError("no good")
    return {"id": number}


if "DSN" in os.environ:
    sink = tg.postgres(os.environ["DSN"], table="orders", columns={"id": "bigint not null"})
else:
    sink = tg.kafka(os.environ["OUT"], exactly_once=True)

pipeline = (
    tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"])
    .map(log.began)
    .map(work)
    .sink(sink)
    .parallel(4 if row == "later" else 1, order="none" if row == "later" else "partition")
    .on_error(*ROWS[row])
)
