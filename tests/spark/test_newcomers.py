"""Mistakes that only a broker and Spark can show: what is said, and where."""

from __future__ import annotations

import importlib
import logging
import sys
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer

import tidegate as tg
from tests.support import wait_until
from tidegate.cli.apps import load_app

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.conftest import World

HELPER = "def price(order):\n    return inner(order)\n\n\ndef inner(order):\n    return order['amount']\n"
PROGRAM = """import os
import tidegate as tg
import {helper}
p = tg.from_kafka({topic!r}, group={group!r}, kafka={kafka!r}).map(tg.json).map({helper}.price).sink(print)
"""


def test_a_function_that_fails_is_told_with_its_own_lines(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    helper = f"prices_{world.topic.removeprefix('t-')}"
    (tmp_path / f"{helper}.py").write_text(HELPER, encoding="utf-8")
    program = PROGRAM.format(helper=helper, topic=world.topic, group=world.group, kafka=world.kafka.bootstrap)
    (tmp_path / "app.py").write_text(program, encoding="utf-8")
    world.produce([b"{}"])

    report = load_app(str(tmp_path / "app.py")).run(until="caught-up", spark=world.spark)

    assert report.exit_code == 3
    [line] = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    where = f"({helper}.py line 2 in price, {helper}.py line 6 in inner)"
    assert line == f"{world.topic}[0] offset 0 failed: KeyError: 'amount' {where}"


class NeedsPackage:
    """A sink that can be made here, and only where a package is installed there."""

    def write(self, value: object) -> None: ...

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return importlib.import_module, ("no_such_package",)


def test_a_package_that_the_workers_lack_is_named_with_their_python(world: World) -> None:
    world.produce([b"1"])
    with pytest.raises(tg.SparkFailed) as raised:
        world.run(world.pipeline().sink(NeedsPackage()))
    assert "the workers cannot run this pipeline: ModuleNotFoundError: No module named 'no_such_package'" in str(
        raised.value
    )
    assert f"install it for the Python of Spark's workers, {sys.executable}" in raised.value.cure
    assert world.mark() == 0


def test_a_group_of_somebody_elses_running_consumers_is_refused(world: World) -> None:
    theirs = Consumer({"bootstrap.servers": world.kafka.bootstrap, "group.id": world.group})
    theirs.subscribe([world.topic])

    def has_joined() -> bool:
        theirs.poll(0.1)
        return bool(theirs.assignment())

    try:
        wait_until(has_joined, within=30, what="their consumer has joined")
        with pytest.raises(tg.TidegateError, match="used by clients of another kind: choose another group"):
            world.run(world.pipeline().sink(print))
    finally:
        theirs.close()


def test_a_group_that_has_read_other_topics_is_pointed_out(world: World, caplog: pytest.LogCaptureFixture) -> None:
    other = f"{world.topic}-other"
    world.admin.create_topic(other)
    elsewhere = tg.from_kafka(other, group=world.group, kafka=world.kafka).sink(print)
    world.run(elsewhere)
    assert not [one for one in caplog.records if "has never read" in one.getMessage()], "it was its first topic"
    world.run(world.pipeline().sink(print))
    world.run(world.pipeline().sink(print))
    [said] = [one.getMessage() for one in caplog.records if "has never read" in one.getMessage()]
    assert said == (
        f"group {world.group} has never read {world.topic}, but {other}: if it is another program's, "
        "choose a group of your own"
    )


def test_a_session_that_is_there_is_used_and_the_master_that_was_chosen_is_named(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.run(world.pipeline().sink(print))
    assert "a Spark already" not in caplog.text, "nobody has chosen another one"
    world.settings["master"] = "local[7]"
    world.run(world.pipeline().sink(print))
    assert "a Spark already, on local[2]: it is used, and master=local[7] (argument) is not" in caplog.text
