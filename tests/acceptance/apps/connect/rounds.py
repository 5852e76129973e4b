"""Single rounds on a Connect server, without Kafka: what comes back from each is printed as JSON."""

import json
import os
import queue
import sys
import threading
import time
from pathlib import Path

import tidegate as tg
from tidegate.engine import spark_connect
from tidegate.engine.lanes import Lanes
from tidegate.engine.spark import open_spark
from tidegate.engine.spark_connect import ConnectSpark
from tidegate.engine.spark_queries import Queries
from tidegate.frames import FrameRound
from tidegate.records import Lease, Limits

url, signs = sys.argv[1], Path(sys.argv[2])
said = {}


def which_worker(job, _attempt):
    return str(os.getpid()).encode(), job == b"healthy"


def slow(job, _attempt):
    for number in range(300):
        Path(job.decode()).write_text(str(number), encoding="utf-8")
        time.sleep(0.1)
    return b"", True


def needs_what_is_missing(_job, _attempt):
    import tidegate_has_no_such_module  # noqa: PLC0415

    return tidegate_has_no_such_module, True


def raises(_job, _attempt):
    raise ValueError("as it was told to")


def what_it_raises(do):
    try:
        return do()
    except Exception as error:  # noqa: BLE001  # the test looks at it
        return [type(error).__name__, str(error), getattr(error, "cure", "")]


def run(task, job=b"", lane="one"):
    return spark.run_round(task, job, name=lane, description="a round")


def wait_until(check):
    deadline = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline, "waited a minute"
        time.sleep(0.05)


spark = open_spark(None, master=url, app_name="rounds", debug=False)
said["about"] = [spark.slots, spark.master, spark.driver_address]
said["workers"] = [run(which_worker, job).decode() for job in (b"healthy", b"healthy", b"ill", b"healthy")]
said["raised"] = what_it_raises(lambda: run(raises))
said["missing"] = what_it_raises(lambda: run(needs_what_is_missing))

came = []
sign = signs / "slow"
thread = threading.Thread(
    target=lambda: came.append(what_it_raises(lambda: run(slow, str(sign).encode(), "two, three")))
)
thread.start()
wait_until(sign.exists)
wait_until(lambda: spark.progress("two, three") is not None)
said["progress"] = spark.progress("two, three")
spark.cancel("two, three")
thread.join(60)
cancelled_at = time.time()
said["cancelled"] = came[0]
wait_until(lambda: time.time() - sign.stat().st_mtime > 2)
said["lived on"] = sign.stat().st_mtime - cancelled_at


class Waits:
    """A job that is on its way to the server until it is let go."""

    def __init__(self, sign):
        self.sign, self.is_on_its_way, self.may_go = str(sign), threading.Event(), threading.Event()

    def __reduce__(self):
        self.is_on_its_way.set()
        assert self.may_go.wait(60)
        return bytes, (self.sign.encode(),)


interrupts = []
interrupt = spark.session.interruptTag
spark.session.interruptTag = lambda tag: interrupts.append(interrupt(tag))
job = Waits(signs / "overtaken")
overtaken = []
thread = threading.Thread(target=lambda: overtaken.append(what_it_raises(lambda: run(slow, job, "four"))))
thread.start()
assert job.is_on_its_way.wait(60)
spark.cancel("four")
wait_until(lambda: interrupts)
said["interrupted"] = interrupts[0]
job.may_go.set()
let_go_at = time.time()
thread.join(60)
spark.forget("four")
said["overtaken"] = overtaken[0]
overtaken_sign = Path(job.sign)
wait_until(lambda: not overtaken_sign.exists() or time.time() - overtaken_sign.stat().st_mtime > 2)
said["overtaken lived"] = overtaken_sign.stat().st_mtime - let_go_at if overtaken_sign.exists() else 0
spark.session.interruptTag = interrupt


def lanes_of(spark):
    """The lanes of a run whose rounds are asked for and then have to wait."""
    asked, go_on, ended = threading.Event(), threading.Event(), queue.SimpleQueue()

    def slowly(_lease):
        asked.set()
        assert go_on.wait(60)
        return b"no job: a task that begins cannot read it, and says so"

    return Lanes(spark, "group", slowly, ended.put, None), asked, go_on, ended


lanes, asked, go_on, ended = lanes_of(spark)
limits = Limits(5.0, 1.0, 3.0, 20.0)
lanes.start(Lease(0, 1, (), limits))
assert asked.wait(60)
lanes.cancel(0)
go_on.set()
said["early"] = type(ended.get(timeout=60).error).__name__
lanes.start(Lease(0, 2, (), limits))
said["the next one"] = type(ended.get(timeout=60).error).__name__
lanes.close()

session = spark.session
frame, round_ = session.range(1), FrameRound("id", 1, "group", (), 1, is_repeat=False)
said["parquet"] = what_it_raises(lambda: tg.parquet("/nowhere")(frame, round_))
said["jdbc"] = what_it_raises(lambda: tg.jdbc("jdbc:postgresql://nowhere/shop", "orders")(frame, round_))
session.client.disable_reattachable_execute()
said["not reattachable"] = what_it_raises(lambda: ConnectSpark(session, owned=False))
session.client.enable_reattachable_execute()

batches = []
query = session.readStream.format("rate").load().writeStream.format("noop").start()
queries = Queries(query, lambda text: batches.append(json.loads(text)["id"]))
wait_until(lambda: batches)
queries.close()
query.stop()
said["followed"] = set(batches) == {query.id}
spark.stop()
spark_connect.GONE_AFTER["max_retries"] = 1
said["nobody there"] = what_it_raises(lambda: open_spark(None, master="sc://127.0.0.1:1", app_name="", debug=False))
sys.stdout.write(json.dumps(said) + "\n")
