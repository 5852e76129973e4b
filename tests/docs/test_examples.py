"""Every example runs and does what it says, and so do the programs of pages that run a pipeline: in one Spark."""

from __future__ import annotations

import contextlib
import functools
import json
import pickle
import re
import runpy
import sqlite3
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tests.docs.pages import ROOT, text
from tests.docs.programs import Ended, environment, run_python
from tests.docs.test_blocks import RUN_WITH_SPARK
from tests.http_server import Server as HttpServer
from tests.postgres_server import Server
from tests.support import visible
from tidegate.cli.apps import load_app
from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.ops.produce import Message, produce

# Whichever test comes first waits for all the runs.
pytestmark = pytest.mark.timeout(400)

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
AS_PROGRAM = "rewind_reports.py"
"""The one example that is more than a pipeline."""
ORDERS = [
    {"id": 1, "amount": 10, "items": {"tea": 2, "milk": 1}},
    {"id": 2, "amount": 1500, "items": {"boat": 1}},
]
TOPICS = (
    "orders",
    "refunds",
    "invoices",
    "all-orders",
    "small-orders",
    "large-orders",
    "orders-avro",
    "orders-pickled",
)

# Each start of Spark takes longer than all the work. Examples are loaded as `tidegate run` loads them, programs as
# Python does.
RUN_ALL = """
import logging, runpy, sys
from pyspark.sql import SparkSession
from tidegate.cli.apps import load_app

logging.basicConfig(level=logging.INFO)
SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
for path in sys.argv[1:]:
    if path.startswith("program:"):
        runpy.run_path(path.removeprefix("program:"), run_name="__main__")
        print(path, "ended")
    else:
        report = load_app(path).run(until="caught-up")
        print(path, report.exit_code, report.settled, report.dead, sum(report.marks.values()))
"""


@dataclass(frozen=True)
class Stage:
    """What the examples ran on, and what they said."""

    folder: Path
    kafka: Kafka
    topics: dict[str, str]
    dsn: str
    http: HttpServer
    ended: Ended

    def seen(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        records = visible(Admin(self.kafka), self.kafka, self.topics[topic])
        return [(record.key, record.value) for record in records]


def test_every_example_is_listed_and_no_other() -> None:
    listed = set(re.findall(r"^\| \[(\w+\.py)\]", text("examples/README.md"), re.MULTILINE))
    assert listed == {path.name for path in EXAMPLES}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_holds_one_pipeline(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, f"tidegate_app_{example.stem}", raising=False)
    assert load_app(str(example)).sinks
    assert example.stem not in sys.stdlib_module_names, "beside a program it would hide Python's own module"


@pytest.fixture(scope="module")
def stage(broker: Broker, postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("examples")
    mine = uuid.uuid4().hex[:8]
    topics = {name: f"{mine}-{name}" for name in TOPICS}
    dsn = f"{postgres.uri}&options=-csearch_path%3Ddocs_{mine}"
    with psycopg.connect(dsn) as database:
        database.execute(f"create schema docs_{mine}".encode())
        database.execute("create table totals (name text primary key, amount numeric)")
    with contextlib.closing(sqlite3.connect(folder / "customers.db")) as customers, customers:
        customers.execute("CREATE TABLE customers (id TEXT PRIMARY KEY, name TEXT)")
        customers.execute("INSERT INTO customers VALUES ('ann', 'Ann Lind')")
    kafka = Kafka(broker.bootstrap)
    fill(kafka, topics)
    http = HttpServer()
    http.start()
    changed = {f'"{name}"': f'"{topic}"' for name, topic in topics.items()}
    # Groups of pages are those of other tests too; a page's minute would be a minute of every run.
    changed |= {'"billing"': f'"{mine}-billing"', "http://localhost:8080": http.url, "Timer(60,": "Timer(2,"}
    programs = {path.name: path.read_text(encoding="utf-8") for path in EXAMPLES if path.name != "first.py"}
    programs |= {f"page_{number}.py": block.code for number, block in enumerate(RUN_WITH_SPARK)}
    for name, program in programs.items():
        adapted = functools.reduce(lambda code, change: code.replace(*change), changed.items(), program)
        (folder / name).write_text(adapted, encoding="utf-8")
    words = [f"program:{name}" if name == AS_PROGRAM or name.startswith("page_") else name for name in programs]
    ended = run_python(["-c", RUN_ALL, *words], folder, {**environment(broker), "SHOP_DSN": dsn}, within=350)
    yield Stage(folder, kafka, topics, dsn, http, ended)
    http.stop()


def fill(kafka: Kafka, topics: dict[str, str]) -> None:
    for topic in topics.values():
        Admin(kafka).create_topic(topic)
    messages = [Message(order, key="ann", headers={"source": "web"}) for order in ORDERS]
    produce(topics["orders"], messages, kafka=kafka)
    to_avro = tg.to_avro(runpy.run_path(str(ROOT / "examples" / "avro_orders.py"))["WRITTEN"])
    avro = [to_avro({"id": order["id"], "amount": order["amount"], "note": "-"}) for order in ORDERS]
    produce(topics["orders-avro"], avro, kafka=kafka)
    # The second wants a function of its reader's: it must not get it.
    produce(topics["orders-pickled"], [pickle.dumps({"id": 1}), pickle.dumps(print)], kafka=kafka)


def test_every_example_settles_its_records(stage: Stage) -> None:
    assert stage.ended.code == 0, stage.ended.err
    said = stage.ended.out.splitlines()
    for path in EXAMPLES:
        if path.name == "pickled_values.py":
            assert f"{path.name} 0 1 1 2" in said
        elif path.name not in ("first.py", AS_PROGRAM):
            assert f"{path.name} 0 2 0 2" in said
    programs = [f"program:{AS_PROGRAM}", *(f"program:page_{number}.py" for number in range(len(RUN_WITH_SPARK)))]
    assert [line for line in said if line.endswith(" ended")] == [f"{program} ended" for program in programs]


@pytest.mark.parametrize(
    "shown",
    [
        "large order 2: 1500",
        "/1 1 x milk",
        "key=ann headers={'source': b'web'}",
        "order 2 of Ann Lind",
        "risk of order 2 known, stock of order 2 known",
        "avro order 2: 1500.00 EUR",
        "pickled order 1",
    ],
)
def test_examples_show_what_they_should(stage: Stage, shown: str) -> None:
    assert shown in stage.ended.err


def test_the_rewind_runs_the_last_record_again(stage: Stage) -> None:
    assert f"{stage.topics['orders']}[0]: 2 -> 1, 1 to run again" in stage.ended.out
    assert "first 2, then 1 again" in stage.ended.out


def test_the_pickle_that_wants_a_function_is_a_dead_letter(stage: Stage) -> None:
    [letter] = tg.dead_letters("pickled", origin=stage.topics["orders-pickled"], kafka=stage.kafka)
    assert (letter.error_type, letter.error_message) == ("Undecodable", "a pickle that wants builtins.print")


def test_dataframes_were_written_once(stage: Stage) -> None:
    [files] = (stage.folder / "bills").glob("tidegate_round=*")
    assert sorted(pq.ParquetDataset(files).read().column("id").to_pylist()) == [1, 2]
    [totals] = (stage.folder / "totals").iterdir()
    assert [row[1:] for row in json.loads(totals.read_text(encoding="utf-8"))] == [[2, 1510.0]]


def test_files_hold_every_order(stage: Stage) -> None:
    assert len((stage.folder / "archive.jsonl").read_bytes().splitlines()) == 2
    lines = [line for file in (stage.folder / "lines").iterdir() for line in file.read_bytes().splitlines()]
    assert [json.loads(line) for line in lines] == ORDERS


@pytest.mark.parametrize(("file", "group"), [("orders.db", "store"), ("batches.db", "batches")])
def test_rows_are_keyed_by_stable_ids(stage: Stage, file: str, group: str) -> None:
    with contextlib.closing(sqlite3.connect(stage.folder / file)) as database:
        rows = database.execute("SELECT stable_id, id FROM orders ORDER BY id").fetchall()
    topic = stage.topics["orders"]
    assert rows == [(f"{group}:{topic}:0:0", 1), (f"{group}:{topic}:0:1", 2)]


def test_topics_hold_what_was_copied_and_fanned_out(stage: Stage) -> None:
    assert stage.seen("invoices") == [(b"1", b'{"order":1,"total":12.0}'), (b"2", b'{"order":2,"total":1800.0}')]
    ids = {name: [json.loads(value or b"")["id"] for _, value in stage.seen(f"{name}-orders")] for name in FANNED}
    assert ids == FANNED


FANNED = {"all": [1, 2], "small": [1], "large": [2]}


def test_the_server_took_each_invoice_once_with_its_id(stage: Stage) -> None:
    topic = stage.topics["orders"]
    taken = sorted((request.id, json.loads(request.body)["order"]) for request in stage.http.taken)
    assert taken == [(f"to-http:{topic}:0:0", 1), (f"to-http:{topic}:0:1", 2)]


def test_rows_and_totals_are_in_postgresql(stage: Stage) -> None:
    with psycopg.connect(stage.dsn) as bills:
        assert bills.execute("select id, amount, items from bills order by id").fetchall() == [
            (order["id"], order["amount"], order["items"]) for order in ORDERS
        ]
        assert bills.execute("select amount from totals").fetchall() == [(1510,)]
