"""Single rounds on a Connect server, without Kafka: what comes back from each is printed as JSON."""

import json
import os
import sys
import threading
import time
from pathlib import Path

import tidegate as tg
from tidegate.engine import spark_connect
from tidegate.engine.spark import open_spark
from tidegate.engine.spark_connect import ConnectSpark
from tidegate.engine.spark_queries import Queries
from tidegate.frames import FrameRound

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
