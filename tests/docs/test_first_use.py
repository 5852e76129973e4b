"""What the README shows is what happens, and the examples run."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tests.docs.pages import ROOT, blocks
from tests.postgres_server import Server
from tests.support import visible
from tidegate.cli.apps import load_app
from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.ops.produce import Message, produce
from tidegate.records import Partition

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LOG_TIME = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ", re.MULTILINE)


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def environment(broker: Broker) -> Mapping[str, str]:
    """Settings of whoever runs the tests must not change what they prove."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE_", "PYSPARK_"))}
    cache = {name: value for name, value in os.environ.items() if name == "TIDEGATE_CACHE"}
    return {
        **kept,
        **cache,
        "TIDEGATE_BOOTSTRAP": broker.bootstrap,
        "TIDEGATE_MASTER": "local[2]",
        "PYSPARK_PYTHON": sys.executable,
    }


def tidegate(words: list[str], folder: Path, broker: Broker) -> Ended:
    return run_python(["-m", "tidegate.cli", *words], folder, environment(broker))


def run_python(words: list[str], folder: Path, variables: Mapping[str, str]) -> Ended:
    answer = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    return Ended(answer.returncode, LOG_TIME.sub("", answer.stdout), LOG_TIME.sub("", answer.stderr))


def test_the_first_example_is_that_of_the_readme() -> None:
    assert (ROOT / "examples" / "first.py").read_text(encoding="utf-8") == blocks("README.md", "python")[0]


def test_the_first_use_is_short() -> None:
    [program] = blocks("README.md", "python")
    assert len(program.splitlines()) + len(blocks("README.md", "sh")[0].splitlines()) <= 20


@pytest.mark.timeout(300)
def test_the_first_use_does_what_the_readme_says(broker: Broker, tmp_path: Path) -> None:
    program = blocks("README.md", "python")[0]
    (tmp_path / "app.py").write_text(program, encoding="utf-8")
    *prepare, run = [shlex.split(line)[1:] for line in blocks("README.md", "sh")[0].splitlines()]
    for words in prepare:
        assert tidegate(words, tmp_path, broker).code == 0

    failed = tidegate([*run, "--until", "caught-up"], tmp_path, broker)
    printed = [*failed.out.splitlines(), *failed.err.splitlines()]
    what_appears, offsets = blocks("README.md", "text")
    assert [line for line in what_appears.splitlines() if line not in printed] == [], failed.err
    assert failed.code == 3
    assert mark(broker) == 3

    shown = tidegate(["offsets", "billing"], tmp_path, broker).out
    columns = [line.split()[:8] for line in offsets.splitlines()]
    assert [line.split()[:8] for line in shown.splitlines()] == columns

    mended = program.replace('order["amount"] > 0', 'order.get("amount", 0) > 0')
    assert mended != program
    (tmp_path / "app.py").write_text(mended, encoding="utf-8")
    done = tidegate([*run, "--until", "caught-up"], tmp_path, broker)
    assert done.code == 0, done.err
    assert "group billing: 1 record settled in this run" in done.out
    assert "with tax" not in done.err, "nothing before the failed record ran again"
    assert mark(broker) == 4


def mark(broker: Broker) -> int:
    return Admin(Kafka(broker.bootstrap)).committed("billing")[Partition("orders", 0)].mark


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_holds_one_pipeline(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, f"tidegate_app_{example.stem}", raising=False)
    assert load_app(str(example)).sinks
    assert example.stem not in sys.stdlib_module_names, "beside a program it would hide Python's own module"


WHAT_EXAMPLES_SHOW = {
    "several_sinks.py": "large order 2: 1500",
    "flat_map.py": "/1 1 x milk",
    "sqlite_resource.py": "",
    "current_record.py": "key=ann headers={'source': b'web'}",
    "exactly_once_copy.py": "",
    "to_postgres.py": "",
}

# One Spark for all of them: each start takes longer than all the work.
RUN_ALL = """
import logging, sys
from pyspark.sql import SparkSession
from tidegate.cli.apps import load_app

logging.basicConfig(level=logging.INFO)
SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
for path in sys.argv[1:]:
    report = load_app(path).run(until="caught-up")
    print(path, report.exit_code, report.settled, *report.marks.values())
"""


@pytest.mark.timeout(240)
def test_every_other_example_runs(broker: Broker, postgres: Server, tmp_path: Path) -> None:
    topic = f"docs-{uuid.uuid4().hex[:8]}"
    dsn = f"{postgres.uri}&options=-csearch_path%3D{topic.replace('-', '_')}"
    with psycopg.connect(dsn) as database:
        database.execute(f"create schema {topic.replace('-', '_')}".encode())
        database.execute("create table totals (name text primary key, amount numeric)")
    admin = Admin(Kafka(broker.bootstrap))
    admin.create_topic(topic)
    admin.create_topic(f"{topic}-invoices")
    orders = [
        {"id": 1, "amount": 10, "items": {"tea": 2, "milk": 1}},
        {"id": 2, "amount": 1500, "items": {"boat": 1}},
    ]
    messages = [Message(order, key="ann", headers={"source": "web"}) for order in orders]
    produce(topic, messages, kafka=Kafka(broker.bootstrap))
    for name in WHAT_EXAMPLES_SHOW:
        program = (ROOT / "examples" / name).read_text(encoding="utf-8")
        program = program.replace('"orders"', f'"{topic}"').replace('"invoices"', f'"{topic}-invoices"')
        (tmp_path / name).write_text(program, encoding="utf-8")

    ended = run_python(["-c", RUN_ALL, *WHAT_EXAMPLES_SHOW], tmp_path, {**environment(broker), "SHOP_DSN": dsn})
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == [f"{name} 0 2 2" for name in WHAT_EXAMPLES_SHOW]
    for name, shown in WHAT_EXAMPLES_SHOW.items():
        assert shown in ended.err, name
    assert len((tmp_path / "archive.jsonl").read_bytes().splitlines()) == 2
    with contextlib.closing(sqlite3.connect(tmp_path / "orders.db")) as database:
        rows = database.execute("SELECT stable_id, id FROM orders ORDER BY id").fetchall()
    assert rows == [(f"store:{topic}:0:0", 1), (f"store:{topic}:0:1", 2)]
    invoices = visible(admin, Kafka(broker.bootstrap), f"{topic}-invoices")
    assert [(one.key, one.value) for one in invoices] == [
        (b"1", b'{"order":1,"total":12.0}'),
        (b"2", b'{"order":2,"total":1800.0}'),
    ]
    with psycopg.connect(dsn) as bills:
        assert bills.execute("select id, amount, items from bills order by id").fetchall() == [
            (order["id"], order["amount"], order["items"]) for order in orders
        ]
        assert bills.execute("select amount from totals").fetchall() == [(1510,)]


def test_no_example_is_forgotten() -> None:
    assert {path.name for path in EXAMPLES} == {"first.py", *WHAT_EXAMPLES_SHOW}


@pytest.mark.timeout(240)
def test_the_test_of_the_how_to_passes(tmp_path: Path, broker: Broker) -> None:
    [whole_test] = [code for code in blocks("docs/how-to/test-your-pipeline.md", "python") if "Broker()" in code]
    (tmp_path / "test_orders.py").write_text(whole_test, encoding="utf-8")
    variables = {name: value for name, value in environment(broker).items() if name != "TIDEGATE_BOOTSTRAP"}
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_orders.py"]
    ended = run_python(words, tmp_path, variables)
    assert ended.code == 0, ended.out + ended.err
