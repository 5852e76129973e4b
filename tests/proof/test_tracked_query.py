"""`tg.track` on real Structured Streaming queries: Spark's own connector, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.installed import build_wheel, install
from tests.proof.spark_connector import PYSPARK, fetch_connector
from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.kafka.commits import read_commits
from tidegate.kafka.connection import Kafka
from tidegate.ops.offsets import offsets
from tidegate.ops.produce import Message, produce

APP = Path(__file__).parent / "apps" / "tracked_query.py"
pytestmark = pytest.mark.timeout(900)


class World:
    """A topic with 25 records in each of two partitions, and a program of queries over it."""

    def __init__(self, broker: Broker, folder: Path, python: Path, jars: list[Path]) -> None:
        self.kafka = Kafka(broker.bootstrap)
        self.name = f"tracked-{uuid.uuid4().hex[:8]}"
        self._folder, self._python, self._jars = folder, python, jars
        Admin(self.kafka, 30.0).create_topic(self.name, 2)
        produce(self.name, (Message(str(one), partition=one % 2) for one in range(50)), kafka=self.kafka)

    def run(self, part: str) -> tuple[list[Any], str]:
        """Run a part of the program; return what it printed, and what it warned of."""
        own = {"BOOTSTRAP": self.kafka.bootstrap, "TOPIC": self.name, "GROUP": self.name, "FOLDER": str(self._folder)}
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
        done = subprocess.run(
            [str(self._python), str(APP), part],
            env={**kept, **own, "JARS": ",".join(map(str, self._jars))},
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")], done.stderr

    def committed(self) -> dict[int, list[int]]:
        """All marks that the group was ever given, by partition."""
        found: dict[int, list[int]] = {0: [], 1: []}
        for commit in read_commits(self.kafka, self.name):
            if commit.mark is not None:
                found[commit.partition.number].append(commit.mark)
        return found

    def check_committed(self) -> None:
        """Every commit was the end of a batch, in their order, up to the last; quick ones may have become one."""
        for marks in self.committed().values():
            assert marks == sorted(set(marks))
            assert set(marks) <= {5, 10, 15, 20, 25}
            assert marks[-1] == 25


@pytest.fixture(scope="module")
def spark_42(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    folder = tmp_path_factory.mktemp("pyspark-4.2")
    return install(build_wheel(folder), folder, pyspark=PYSPARK) / "python", fetch_connector(folder)


@pytest.fixture
def world(broker: Broker, tmp_path: Path, spark_42: tuple[Path, list[Path]]) -> World:
    return World(broker, tmp_path, *spark_42)


def test_each_finished_batch_is_committed_the_last_one_too(world: World) -> None:
    batches, _ = world.run("one")
    assert [len(one["seen"]) for one in batches] == [10] * 5
    world.check_committed()
    assert offsets(world.name, kafka=world.kafka).lag == 0
    metadata = json.loads(offsets(world.name, kafka=world.kafka).partitions[0].metadata)
    assert metadata["batch"] == 4


def test_a_query_that_goes_on_is_seen_without_lag_when_it_has_none(world: World) -> None:
    said, _ = world.run("running")
    assert said[-1] == {"committed": 51, "active": True}
    assert world.committed()[0][-1] == 26


def test_a_second_query_over_the_same_topic_is_not_mixed_in(world: World) -> None:
    said, warned = world.run("two")
    assert {one["query"] for one in said} == {"first", "second"}
    assert "track each of them in a group of its own" in warned
    world.check_committed()
