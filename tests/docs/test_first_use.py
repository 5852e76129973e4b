"""What the README shows is what happens, and the test of the how-to passes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.programs import environment, run_python, tidegate
from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.records import Partition


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


@pytest.mark.timeout(240)
def test_the_test_of_the_how_to_passes(tmp_path: Path, broker: Broker) -> None:
    [whole_test] = [code for code in blocks("docs/how-to/test-your-pipeline.md", "python") if "caught-up" in code]
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tidegate.testing.fixtures"]\n', encoding="utf-8")
    (tmp_path / "test_orders.py").write_text(whole_test, encoding="utf-8")
    variables = {name: value for name, value in environment(broker).items() if name != "TIDEGATE_BOOTSTRAP"}
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_orders.py"]
    ended = run_python(words, tmp_path, variables)
    assert ended.code == 0, ended.out + ended.err
