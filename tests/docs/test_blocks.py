"""Every code block of every page is run, built or parsed; one that nobody looks at is an error."""

from __future__ import annotations

import ast
import configparser
import json
import tomllib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

import tidegate as tg
from tests.docs import shell
from tests.docs.pages import BLOCKS, Block, text
from tests.postgres_server import Server
from tests.web.test_watching import NOW, RUN, group
from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.ops.model import View
from tidegate.settings import Settings
from tidegate.web.metrics import render

CHECKED = {"python", "sh", "toml", "yaml", "json", "ini", "sql", "dockerfile"}
SHOWN = {"text"}
"""What a program prints, or a sketch: nothing reads it."""
OTHERS_PACKAGES = {"waterhealer", "streamz", "retriable_kafka_client"}
"""What people come from: shown so that they know their own code again, and not installed here."""
ASK_THE_BROKER = {"tg.produce", "tg.offsets", "tg.lag", "tg.rewind", "tg.dead_letters", "tg.redrive", "Consumer"}


def of(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


def test_every_block_has_a_checker() -> None:
    nobody = [f"{block}: {block.language!r}" for block in BLOCKS if block.language not in CHECKED | SHOWN]
    assert nobody == []


# --- Python


def calls_at_the_top(code: str) -> Iterator[ast.Call]:
    """Give the calls that happen when a program is imported: not those in functions, or behind `if __name__`."""
    waiting: list[ast.AST] = [ast.parse(code)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Call):
            yield node
        waiting.extend(ast.iter_child_nodes(node))


def is_of_others(block: Block) -> bool:
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(block.code))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
    }
    return bool(imported & OTHERS_PACKAGES) or "readStream" in block.code


def needs_spark(block: Block) -> bool:
    """Whether it runs a pipeline: such blocks are run with the examples, in their one Spark."""
    return any(ast.unparse(call.func).endswith(".run") for call in calls_at_the_top(block.code))


def needs_broker(block: Block) -> bool:
    return any(ast.unparse(call.func) in ASK_THE_BROKER for call in calls_at_the_top(block.code))


PYTHON = [block for block in of("python") if not is_of_others(block)]
RUN_WITH_SPARK = [block for block in PYTHON if needs_spark(block)]
RUN_WITH_BROKER = [block for block in PYTHON if not needs_spark(block) and needs_broker(block)]
BUILT = [block for block in PYTHON if not needs_spark(block) and not needs_broker(block)]
CONSUMER_LOOP = "docs/how-to/come-from-a-consumer-loop.md"


def execute(block: Block, code: str | None = None) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(code or block.code, str(block), "exec", dont_inherit=True), names)  # noqa: S102  # our own page
    return names


def make_checkpoint(folder: Path) -> None:
    """What a query with one Kafka source leaves: batch 10 is finished, batch 11 was begun."""
    checkpoint = folder / "checkpoints" / "orders"
    for part in ("commits", "offsets"):
        (checkpoint / part).mkdir(parents=True)
    ends = {"9": '{"orders":{"1":3,"0":20}}', "10": '{"orders":{"1":7,"0":42}}', "11": '{"orders":{"1":9,"0":60}}'}
    for batch, end in ends.items():
        (checkpoint / "offsets" / batch).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{end}', encoding="utf-8")
    for batch in ("9", "10"):
        (checkpoint / "commits" / batch).write_text('v1\n{"nextBatchWatermarkMs":0}', encoding="utf-8")


@pytest.mark.parametrize("block", BUILT, ids=str)
def test_every_program_can_be_built(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invoice = {"type": "record", "name": "Invoice", "fields": [{"name": "id", "type": "long"}]}
    (tmp_path / "invoice.avsc").write_text(json.dumps(invoice), encoding="utf-8")
    make_checkpoint(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, value in {"LOG": str(tmp_path / "log"), "TOPIC": "orders", "GROUP": "billing"}.items():
        monkeypatch.setenv(name, value)
    for one in execute(block).values():
        if isinstance(one, tg.Pipeline) and one.sinks:
            assert one.plan().sinks


@pytest.fixture(scope="module")
def shop(broker: Broker) -> dict[str, str]:
    """The topics and the group that programs of the pages name, under names of this run's own."""
    mine = uuid.uuid4().hex[:8]
    names = {name: f"{mine}-{name}" for name in ("orders", "refunds", "billing")}
    kafka = tg.Kafka(broker.bootstrap)
    for topic in (names["orders"], names["refunds"], f"{names['billing']}.dead"):
        Admin(kafka).create_topic(topic)
    tg.produce(names["orders"], [{"id": number, "amount": 10} for number in range(3)], kafka=kafka)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": names["billing"]})
    consumer.commit(offsets=[TopicPartition(names["orders"], 0, 1)], asynchronous=False)
    consumer.close()
    return names


def under_other_names(code: str, names: dict[str, str]) -> str:
    for name, mine in names.items():
        code = code.replace(f'"{name}"', f'"{mine}"')
    return code


@pytest.mark.parametrize("block", [block for block in RUN_WITH_BROKER if block.page != CONSUMER_LOOP], ids=str)
def test_every_program_that_asks_kafka_gets_an_answer(
    block: Block, shop: dict[str, str], broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_BOOTSTRAP", broker.bootstrap)
    execute(block, under_other_names(block.code, shop))


def test_the_loop_with_auto_commit_loses_the_record_that_failed(broker: Broker) -> None:
    """What the page says of it: four orders, the last without an amount, and the group stands behind it."""
    [loop] = [block for block in RUN_WITH_BROKER if block.page == CONSUMER_LOOP]
    names = {name: f"loop-{uuid.uuid4().hex[:8]}" for name in ("orders", "billing")}
    kafka = tg.Kafka(broker.bootstrap)
    Admin(kafka).create_topic(names["orders"])
    orders = [{"id": 1, "amount": 10}, {"id": 2, "amount": 0}, {"id": 3, "amount": 5}, {"id": 4}]
    tg.produce(names["orders"], orders, kafka=kafka)
    with pytest.raises(KeyError):
        execute(loop, under_other_names(loop.code, names | {"localhost:9092": broker.bootstrap}))
    stands = tg.offsets(names["billing"], kafka=kafka)
    assert [(one.mark, one.lag) for one in stands.partitions] == [(4, 0)]


def test_programs_of_others_are_python_at_least() -> None:
    """That the other kinds are not empty shows that the sorting works."""
    foreign = [block for block in of("python") if is_of_others(block)]
    for block in foreign:
        compile(block.code, str(block), "exec", dont_inherit=True)
    assert foreign
    assert RUN_WITH_SPARK
    assert RUN_WITH_BROKER


# --- the shell, and what starts programs


@pytest.mark.parametrize("block", of("sh"), ids=str)
def test_every_command_of_a_page_exists_with_its_options(block: Block) -> None:
    found = list(shell.commands(block.code))
    assert found, "no command was found"
    for words in found:
        shell.check(words)


def test_the_check_of_commands_can_fail() -> None:
    for wrong in ("tidegate rnu app.py", "tidegate run app.py --untill caught-up", "pip install '.[htp]'", "rm -r /"):
        [words] = shell.commands(wrong)
        with pytest.raises(Exception):  # noqa: B017, PT011  # each parser has errors of its own
            shell.check(words)


@pytest.mark.parametrize("block", of("ini"), ids=str)
def test_every_unit_starts_a_command_that_exists(block: Block) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # systemd's names have capitals
    unit.read_string(block.code)
    [words] = shell.commands(unit["Service"]["ExecStart"])
    shell.check(words)


@pytest.mark.parametrize("block", of("dockerfile"), ids=str)
def test_every_image_starts_a_command_that_exists(block: Block) -> None:
    lines = [line for line in block.code.replace("\\\n", " ").splitlines() if line]
    assert {line.split()[0] for line in lines} <= {"FROM", "RUN", "COPY", "WORKDIR", "USER", "ENTRYPOINT", "ENV"}
    [entry] = [line for line in lines if line.startswith("ENTRYPOINT")]
    assert json.loads(entry.removeprefix("ENTRYPOINT")) == ["tidegate"]


# --- data


def known_metrics() -> set[str]:
    figures = render(View(NOW, 1.0, (group("billing", 1),), None), RUN).decode()
    return {sample.name for family in text_string_to_metric_families(figures) for sample in family.samples}


def test_every_metric_of_the_page_about_them_exists() -> None:
    named = {word for word in _words(text("docs/how-to/monitor-with-prometheus.md")) if word.startswith("tidegate_")}
    assert len(named) > 10
    assert named - {"tidegate_run_"} <= known_metrics()


def inside(data: object, key: str) -> Iterator[Any]:
    """Give every value under this key, however deep."""
    children = list(data.values()) if isinstance(data, dict) else data if isinstance(data, list) else []
    if isinstance(data, dict) and key in data:
        yield data[key]
    for child in children:
        yield from inside(child, key)


@pytest.mark.parametrize("block", of("yaml"), ids=str)
def test_every_yaml_names_what_exists(block: Block) -> None:
    documents = list(yaml.safe_load_all(block.code))
    assert all(isinstance(one, dict) for one in documents)
    for expression in inside(documents, "expr"):
        used = {word for word in _words(expression) if word.startswith("tidegate_")}
        assert used <= known_metrics(), expression
    for probe in inside(documents, "httpGet"):
        assert probe["path"] in ("/healthz", "/readyz")
    for container in (one for many in inside(documents, "containers") for one in many):
        shell.parse(container["args"])


def _words(expression: str) -> list[str]:
    return "".join(sign if sign.isalnum() or sign == "_" else " " for sign in expression).split()


@pytest.mark.parametrize("block", of("toml"), ids=str)
def test_every_toml_names_settings(block: Block) -> None:
    assert set(tomllib.loads(block.code)) - {"client"} <= set(Settings.model_fields)


@pytest.mark.parametrize("block", of("json"), ids=str)
def test_every_json_is_json(block: Block) -> None:
    assert json.loads(block.code)


@pytest.mark.parametrize("block", of("sql"), ids=str)
def test_every_statement_runs(block: Block, postgres: Server) -> None:
    schema = f"page_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres.uri) as database:
        database.execute(f"create schema {schema}; set search_path to {schema}".encode())
        database.execute(block.code.encode())


# --- what a page says of its own statements


DUPLICATES = "docs/how-to/duplicates-from-producers.md"


def test_statements_that_know_repeats_do(postgres: Server) -> None:
    [count] = [block for block in BUILT if block.page == DUPLICATES and "COUNT" in block.code]
    [newer] = [block for block in BUILT if block.page == DUPLICATES and "NEWER" in block.code]
    schema = f"page_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres.uri) as database:
        database.execute(f"create schema {schema}; set search_path to {schema}".encode())
        database.execute("create table seen (id bigint primary key)")
        database.execute("create table stock (article text, pieces integer)")
        database.execute("create table prices (article text primary key, price numeric, at timestamptz)")
        database.execute("insert into stock values ('tea', 10)")
        for _ in range(2):
            database.execute(execute(count)["COUNT"], {"id": 7, "article": "tea", "pieces": 3})
        assert database.execute("select pieces from stock").fetchall() == [(7,)]
        for price, at in ((2, "2026-01-02"), (1, "2026-01-01")):
            database.execute(execute(newer)["NEWER"], {"article": "tea", "price": price, "at": at})
        assert database.execute("select price from prices").fetchall() == [(2,)]
        database.execute(f"drop schema {schema} cascade".encode())


def test_the_place_of_a_query_is_read_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [block] = [
        block for block in BUILT if "checkpoint" in block.code and block.page.endswith("structured-streaming.md")
    ]
    make_checkpoint(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert execute(block)["ends"](Path("checkpoints/orders")) == {"orders": {0: 42, 1: 7}}
