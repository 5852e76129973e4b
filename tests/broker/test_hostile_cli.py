"""Records that nobody would write on purpose, on the command line: shown as they are, to no terminal's harm."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.broker.test_cli import Shell, shell
from tests.hostile import (
    LARGER,
    NAMED,
    UNKNOWN_TIMES,
    Content,
    as_written,
    assert_are_those_buried,
    bury,
    contents_of,
    write,
)
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka

if TYPE_CHECKING:
    from tidegate.dev.broker import Broker

__all__ = ["shell"]  # a fixture


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    """All of them in one topic, which nobody changes."""
    kafka, name = Kafka(broker.bootstrap), f"hostile-{uuid.uuid4().hex[:10]}"
    Admin(kafka).create_topic(name, 1, LARGER)
    write(kafka.bootstrap, name, NAMED)
    return name


@pytest.fixture(scope="module")
def group(broker: Broker) -> str:
    """A group with dead letters of all of them, and all of them where its dead letters are, by somebody else."""
    return bury(Kafka(broker.bootstrap))


def contents(output: str) -> list[Content]:
    return contents_of(map(json.loads, output.splitlines()))


def assert_printable(output: str) -> None:
    harmful = [line[:200] for line in output.split("\n") if not line.isprintable()]
    assert not harmful


def test_hostile_records_are_shown_as_they_are(shell: Shell, topic: str) -> None:
    output = shell.shown("tail", topic, "--json")
    assert_printable(output)
    assert contents(output) == as_written(NAMED)
    times = [json.loads(line)["timestamp"] for line in output.splitlines()]
    assert [at is None for at in times] == [one.timestamp in UNKNOWN_TIMES for one in NAMED]
    assert times[[one.name for one in NAMED].index("the year 9999")] == "9999-12-31T23:59:59+00:00"

    lines = shell.shown("tail", topic).split("\n")
    assert_printable("\n".join(lines))
    assert [line.split("  ")[0] for line in lines[:-1]] == [f"{topic}[0] {at}" for at in range(len(NAMED))]


def test_dead_letters_of_hostile_records_are_listed_and_shown_as_they_are(shell: Shell, group: str) -> None:
    count = len(NAMED)
    listed = shell.shown("dead", "list", group, "--json")
    assert_printable(listed)
    assert_are_those_buried(list(map(json.loads, listed.splitlines())))

    table = shell.shown("dead", "list", group)
    assert_printable(table)
    assert [line.split()[0] for line in table.splitlines()[1:]] == [f"0:{at}" for at in range(2 * count)]
    assert max(map(len, table.splitlines())) <= 120

    by_id = shell.shown("dead", "show", f"{group}", f"{group}:orders:0:0", "--json")
    assert_printable(by_id)
    assert contents(by_id) == as_written(NAMED)
    pages = shell.shown("dead", "show", group, f"{group}:orders:0:0")
    assert_printable(pages)
    assert pages.count(f"  id         {group}:orders:0:0\n") == count
    assert pages.count("\n  header     ") == sum(len(one.headers) for one in NAMED)
    foreign = shell.shown("dead", "show", group, f"0:{count}")
    assert_printable(foreign)
    assert "cannot be redriven" in foreign


def test_a_terminal_that_knows_few_letters_is_shown_them_all_the_same(shell: Shell, topic: str) -> None:
    text, lines = (shell.run("tail", topic, *form, PYTHONIOENCODING="ascii") for form in ((), ("--json",)))
    assert (text.returncode, text.stderr, lines.returncode, lines.stderr) == (0, "", 0, "")
    assert text.stdout.isascii()
    assert len(text.stdout.splitlines()) == len(NAMED)
    assert contents(lines.stdout) == as_written(NAMED)
