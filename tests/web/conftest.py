"""Servers over the run's own broker, and groups with known marks."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support import wait_until
from tests.web.client import Client
from tidegate.dev.broker import Broker
from tidegate.engine.control import Control
from tidegate.history.store import History
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.ops.cluster import Cluster
from tidegate.ops.produce import Message, produce
from tidegate.ops.sampler import Sampler
from tidegate.records import Partition
from tidegate.web.app import make_app
from tidegate.web.auth import Tokens
from tidegate.web.server import start_in_thread
from tidegate.web.services import Services

Start = Callable[..., Client]


class Scene:
    """A topic of two partitions with ten records each, and a group that stands at 4 and 10 of them."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.admin = Admin(kafka, 20.0)
        self.group = self.topic = f"web-{uuid.uuid4().hex[:10]}"
        self.admin.create_topic(self.topic, partitions=2)
        self.write(10)
        self.places = [Partition(self.topic, number) for number in range(2)]
        self.stand(4, 10)

    def write(self, records: int) -> None:
        produce(self.topic, [Message(str(n), partition=p) for p in range(2) for n in range(records)], kafka=self.kafka)

    def stand(self, *marks: int) -> None:
        moves = {place: (mark, "") for place, mark in zip(self.places, marks, strict=True)}
        self.admin.commit_for_empty_group(self.group, moves)

    def marks(self) -> list[int]:
        found = self.admin.committed(self.group, self.places)
        return [found[place].mark for place in self.places]


@pytest.fixture(scope="module")
def kafka(broker: Broker) -> Kafka:
    return Kafka(broker.bootstrap)


@pytest.fixture
def scene(kafka: Kafka) -> Scene:
    return Scene(kafka)


@pytest.fixture(scope="module")
def start(kafka: Kafka) -> Iterator[Start]:
    """Start a server; it answers from a sampler that has looked once."""
    with ExitStack() as stack:

        def start_one(
            tokens: Tokens | None = None,
            history: History | None = None,
            control: Control | None = None,
            at: Kafka | None = None,
            timeout: float = 10.0,
        ) -> Client:
            cluster = Cluster(at or kafka, timeout)
            sampler = stack.enter_context(Sampler(cluster, every=0.5))
            services = Services(cluster, sampler, history, control, tokens or Tokens())
            running = start_in_thread(make_app(services))
            stack.callback(running.stop)
            wait_until(lambda: sampler.view().at is not None, within=30, what="a first look at the cluster")
            return Client(running.address)

        yield start_one


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    opened = History(str(tmp_path / "history.db"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def client(start: Start) -> Client:
    """A server without tokens or history."""
    return start()
