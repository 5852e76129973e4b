"""How a group shares several topics when a copy joins later: docs/how-to/run-as-a-service.md tells of it."""

from __future__ import annotations

import uuid

import pytest

from tests.support import wait_until
from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.kafka.member import Callbacks, Joining, Member
from tidegate.records import Partition

pytestmark = pytest.mark.broker


class Copy:
    """A member that keeps nothing but the account of what it has."""

    def __init__(self, kafka: Kafka, joining: Joining, topics: list[str]) -> None:
        self.owned: set[Partition] = set()
        callbacks = Callbacks(self.owned.update, self.owned.difference_update, self.owned.difference_update, print)
        self.member = Member(kafka, joining, callbacks)
        self.member.join(topics)

    def count(self, topic: str) -> int:
        return sum(one.topic == topic for one in self.owned)


@pytest.mark.parametrize(
    ("is_broker_led", "client", "share"),
    [
        (False, {}, [0, 4]),
        (True, {}, [0, 4]),
        (True, {"group.remote.assignor": "range"}, [2, 2]),
    ],
    ids=["classic", "broker-led", "broker-led, range"],
)
def test_a_newcomer_has_a_part_of_each_topic_only_where_the_broker_divides_by_range(
    broker: Broker, is_broker_led: bool, client: dict[str, str], share: list[int]
) -> None:
    kafka = Kafka(broker.bootstrap, client)
    name = f"orders-{uuid.uuid4().hex[:10]}"
    topics = [name, f"{name}.redrive"]
    for topic in topics:
        Admin(kafka).create_topic(topic, partitions=4)
    copies: list[Copy] = []

    def shared() -> list[list[int]]:
        """How many partitions each copy has of one topic and of the other, the smaller number first."""
        for copy in copies:
            copy.member.poll(0.05)
        return [sorted(map(copy.count, topics)) for copy in copies]

    try:
        for expected in ([[4, 4]], [share, share]):
            copies.append(Copy(kafka, Joining(name, 10.0, is_broker_led=is_broker_led), topics))
            wait_until(lambda: shared() == expected, within=40, what=f"{expected}")  # noqa: B023  # it is over by then
    finally:
        for copy in copies:
            copy.member.leave(10.0)
