"""The same examples over a Spark Connect server, unchanged: functions, a transaction, DataFrames."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from tests.connect_server import ConnectServer
from tests.docs.pages import ROOT
from tests.docs.programs import environment, run_python
from tests.support import visible
from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.ops.produce import Message, produce

EXAMPLES = ("custom_sink.py", "exactly_once_copy.py", "daily_totals.py")
ORDERS = [{"id": 1, "amount": 10}, {"id": 2, "amount": 1500}]

# In one session: a session that is there is used, whichever kind it is.
RUN_ALL = """
import sys
from pyspark.sql import SparkSession
from tidegate.cli.apps import load_app

url, *paths = sys.argv[1:]
session = SparkSession.builder.remote(url).getOrCreate()
for path in paths:
    report = load_app(path).run(until="caught-up")
    print(path, report.exit_code, report.settled, report.dead, sum(report.marks.values()))
print("still there:", session.range(3).count())
"""


@pytest.mark.timeout(400)
def test_examples_do_the_same_over_connect(broker: Broker, connect_server: ConnectServer, tmp_path: Path) -> None:
    kafka, mine = Kafka(broker.bootstrap), uuid.uuid4().hex[:8]
    topics = {name: f"{mine}-{name}" for name in ("orders", "invoices")}
    for topic in topics.values():
        Admin(kafka).create_topic(topic)
    produce(topics["orders"], [Message(order) for order in ORDERS], kafka=kafka)
    for name in EXAMPLES:
        code = (ROOT / "examples" / name).read_text(encoding="utf-8")
        for known, topic in topics.items():
            code = code.replace(f'"{known}"', f'"{topic}"')
        (tmp_path / name).write_text(code, encoding="utf-8")

    ended = run_python(["-c", RUN_ALL, connect_server.url, *EXAMPLES], tmp_path, environment(broker), within=350)

    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == [*(f"{name} 0 2 0 2" for name in EXAMPLES), "still there: 3"]
    lines = [line for file in (tmp_path / "lines").iterdir() for line in file.read_bytes().splitlines()]
    assert [json.loads(line) for line in lines] == ORDERS
    invoices = [(one.key, one.value) for one in visible(Admin(kafka), kafka, topics["invoices"])]
    assert invoices == [(b"1", b'{"order":1,"total":12.0}'), (b"2", b'{"order":2,"total":1800.0}')]
    [totals] = (tmp_path / "totals").iterdir()
    assert [row[1:] for row in json.loads(totals.read_text(encoding="utf-8"))] == [[2, 1510.0]]
