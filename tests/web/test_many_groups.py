"""The overview of a large cluster comes from memory: it does not get slower with the cluster."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.support import wait_until
from tests.web.client import Client
from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka

if TYPE_CHECKING:
    from tests.web.conftest import Start

GROUPS = int(os.environ.get("PROOF_GROUPS", "200"))
PARTITIONS = int(os.environ.get("PROOF_PARTITIONS", "50"))


@pytest.mark.timeout(900)
def test_the_overview_of_many_groups_answers_within_two_seconds(start: Start) -> None:
    with Broker() as own:
        kafka = Kafka(own.bootstrap)
        admin = Admin(kafka, 60.0)
        admin.create_topic("orders", PARTITIONS)
        places = admin.describe(["orders"])["orders"].each_partition()
        names = sorted(f"group-{number:04}" for number in range(GROUPS))
        for name in names:
            admin.commit_for_empty_group(name, dict.fromkeys(places, (0, "")))
        client = start(at=kafka)
        wait_until(lambda: len(overview(client)[0]) == GROUPS, within=300, what="a look at all of them")

        for _ in range(3):
            seen, seconds = overview(client)
            assert seen == names
            assert seconds < 2
        began = time.monotonic()
        text = client.get("/metrics").body.decode()
        assert time.monotonic() - began < 10
        assert text.count("\ntidegate_lag{") == GROUPS * PARTITIONS


def overview(client: Client) -> tuple[list[str], float]:
    """Return the groups, and how long the answer took."""
    began = time.monotonic()
    page = client.get("/api/v1/groups?limit=1000").json
    return [one["group"] for one in page["groups"]], time.monotonic() - began
