"""`tidegate history` and `check`, as processes: what runs wrote down, for people and for programs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.broker.test_cli import NOWHERE, Shell
from tidegate.history.rows import Batch, FailureRow, MarkRow, RunRow
from tidegate.history.store import History
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.records import Counts, Partition

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.dev.broker import Broker

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
P0, P1 = Partition("orders", 0), Partition("orders", 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


@pytest.fixture
def shell(broker: Broker, tmp_path: Path, path: Path) -> Shell:
    made = Shell(broker.bootstrap, tmp_path)
    made.environment["TIDEGATE_HISTORY"] = str(path)
    return made


@pytest.fixture
def cluster(broker: Broker) -> str:
    return Admin(Kafka(broker.bootstrap)).cluster_id()


@pytest.fixture
def replay(path: Path, cluster: str) -> int:
    """A group with a run, a failure, two commits and a request."""
    run = RunRow("run-1", cluster, "billing", NOON, NOON, "stopped", "here", 4711, counts=Counts(7, 0, 2))
    failed = FailureRow(P1, 8, "ValueError", "no amount\nat all", NOON, fate="dead_letter")
    with History(str(path)) as history:
        history.write(Batch(run, {P0: MarkRow(5, NOON), P1: MarkRow(9, NOON)}, (failed,)))
        history.write(Batch(run, {P0: MarkRow(6, NOON + timedelta(seconds=5))}))
        return history.ask(cluster, "billing", {P1: 3}, by="anna")


def test_the_offset_table_is_shown_with_what_is_settled_and_what_was_requested(shell: Shell, replay: int) -> None:
    lines = [line.split() for line in shell.shown("history", "billing").splitlines()]
    assert lines[0] == ["TOPIC", "PARTITION", "SETTLED", "SETTLED", "AT", "REQUESTED", "BY", "REQUESTED", "AT", "STATE"]
    assert lines[1] == ["orders", "0", "6", "2026-01-31", "12:00:05+00:00", "-", "-", "-", "-"]
    assert lines[2][:7] == ["orders", "1", "9", "2026-01-31", "12:00:00+00:00", "3", "anna"]
    assert lines[2][-1] == "waiting"

    found = json.loads(shell.shown("history", "billing", "--json"))
    assert found["group"] == "billing"
    first, second = found["offsets"]
    assert (first["topic"], first["partition"], first["mark"], first["requested"]) == ("orders", 0, 6, None)
    assert first["settled_at"] == "2026-01-31T12:00:05+00:00"
    assert (second["requested"], second["replay"], second["requested_by"]) == (3, replay, "anna")


def test_runs_failures_and_commits_are_shown(shell: Shell, replay: int) -> None:
    assert replay
    shown = shell.shown("history", "billing", "--runs", "--failures", "--commits")
    assert "stopped" in shown
    assert "ValueError: no amount\\nat all" in shown, "a record's own text cannot disturb the terminal"

    found = json.loads(shell.shown("history", "billing", "--runs", "--failures", "--commits", "--json"))
    assert [(run["run_id"], run["counts"]["settled"], run["counts"]["dead"]) for run in found["runs"]] == [
        ("run-1", 7, 2)
    ]
    assert [(one["topic"], one["partition"], one["record_offset"], one["fate"]) for one in found["failures"]] == [
        ("orders", 1, 8, "dead_letter")
    ]
    assert sorted((one["partition"], one["mark"]) for one in found["commits"]) == [(0, 5), (0, 6), (1, 9)]
    assert "offsets" not in found
    latest = json.loads(shell.shown("history", "billing", "--commits", "--limit", "1", "--json"))
    assert [one["mark"] for one in latest["commits"]] == [6]


def test_without_a_group_the_known_ones_are_listed(shell: Shell, replay: int, cluster: str) -> None:
    assert replay
    assert json.loads(shell.shown("history", "--json")) == {
        "cluster": cluster,
        "groups": [
            {
                "group": "billing",
                "partitions": 2,
                "requested": 1,
                "settled_at": "2026-01-31T12:00:05+00:00",
                "state": "stopped",
                "seen_at": "2026-01-31T12:00:00+00:00",
            }
        ],
    }
    assert shell.shown("history").splitlines()[1].split()[:3] == ["billing", "2", "1"]


def test_an_empty_history_says_so_and_stays_away(shell: Shell, path: Path) -> None:
    assert shell.shown("history") == f"the history {path} is empty: a run fills it\n"
    assert not path.exists()


def test_a_group_that_is_not_known_is_an_error_with_a_guess(shell: Shell, replay: int) -> None:
    assert replay
    done = shell.run("history", "biling")
    assert (done.returncode, done.stdout) == (1, "")
    assert "knows nothing of the group biling; did you mean billing?" in done.stderr


def test_where_kafka_is_away_a_history_of_one_cluster_is_shown(shell: Shell, replay: int) -> None:
    assert replay
    done = shell.run("history", "billing", "--json", "--bootstrap", NOWHERE, TIDEGATE_BROKER_TIMEOUT="500ms")
    assert done.returncode == 0, done.stderr
    assert "the only one in it" in done.stderr
    assert [row["mark"] for row in json.loads(done.stdout)["offsets"]] == [6, 9]


def test_a_history_that_is_off_or_broken_is_told(shell: Shell, path: Path) -> None:
    done = shell.run("history", TIDEGATE_HISTORY="off")
    assert (done.returncode, "the setting history is off" in done.stderr) == (1, True)
    path.write_bytes(b"no database at all" * 1000)
    done = shell.run("history")
    assert done.returncode == 1
    assert "move the file away" in done.stderr


def test_check_shows_the_history_and_never_its_password(shell: Shell, path: Path) -> None:
    shown = shell.shown("check")
    assert f"setting history: {path} (TIDEGATE_HISTORY)" in shown
    assert f"history: {path} can be read" in shown

    url = "postgresql://anna:geheim-4711@127.0.0.1:1/x?sslpassword=geheim-4711"
    for words in (("check",), ("check", "--json"), ("history",), ("--debug", "history")):
        done = shell.run(*words, TIDEGATE_HISTORY=url)
        assert done.returncode == 1
        assert "geheim-4711" not in done.stdout + done.stderr
        assert "anna:***@127.0.0.1:1" in done.stdout + done.stderr
