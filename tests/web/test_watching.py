"""Probes and metrics: what machines ask, without end."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support import wait_until
from tests.web.client import OPERATOR, Client
from tidegate.dev.broker import Broker
from tidegate.engine.control import Control, PartitionStatus, RunStatus
from tidegate.kafka.connection import Kafka
from tidegate.ops.model import GroupLag, PartitionLag, View
from tidegate.records import Counts, Partition
from tidegate.web.auth import Tokens
from tidegate.web.metrics import render
from tidegate.web.probes import unready

if TYPE_CHECKING:
    from tests.web.conftest import Scene, Start

NOW = datetime.now(UTC)
QUIET = PartitionStatus(
    partition=Partition("orders", 0),
    mark=5,
    committed=5,
    replay=0,
    end_offset=9,
    is_leased=False,
    parked_seconds=None,
    open_failures=0,
    stalled_seconds=0.0,
)
RUN = RunStatus(
    run="r1",
    group="billing",
    member="tidegate-1",
    state="running",
    at=NOW,
    began_at=NOW,
    counts=Counts(settled=100, retried=4, dead=3, skipped=2, again=10, held=1),
    rounds=7,
    round_seconds=3.5,
    commits=6,
    commit_seconds=0.25,
    lost=0,
    partitions=(
        QUIET,
        replace(QUIET, partition=Partition("orders", 1), parked_seconds=3.0, open_failures=2, stalled_seconds=12.5),
    ),
    failures=(),
    mishaps=(),
    error=None,
)


def figures(text: bytes) -> dict[str, dict[tuple[str, ...], float]]:
    """Read metrics with Prometheus' own parser: by name, then by their labels' values, in the order of their names."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


def test_metrics_have_the_lag_of_every_partition(client: Client, scene: Scene) -> None:
    def look() -> dict[str, dict[tuple[str, ...], float]]:
        return figures(client.get("/metrics").body)

    wait_until(lambda: (scene.group, "0", scene.topic) in look().get("tidegate_lag", {}), within=30, what="a look")
    found = look()
    assert found["tidegate_lag"][scene.group, "0", scene.topic] == 6
    assert found["tidegate_lag"][scene.group, "1", scene.topic] == 0
    assert found["tidegate_group_lag"][scene.group,] == 6
    assert found["tidegate_group_members"][scene.group,] == 0
    assert found["tidegate_broker_up"][()] == 1
    assert found["tidegate_series_left_out"] == {("groups",): 0, ("partitions",): 0}


def test_metrics_have_what_the_run_does() -> None:
    found = figures(render(View(NOW, 1.5, (), None), RUN))
    assert {
        name: value for name, one in found.items() for value in one.values() if name.startswith("tidegate_run_")
    } == {
        "tidegate_run_settled_total": 100,
        "tidegate_run_retried_total": 4,
        "tidegate_run_dead_total": 3,
        "tidegate_run_skipped_total": 2,
        "tidegate_run_failed_total": 19,
        "tidegate_run_held_total": 1,
        "tidegate_run_lost_total": 0,
        "tidegate_run_rounds_total": 7,
        "tidegate_run_round_seconds_total": 3.5,
        "tidegate_run_commits_total": 6,
        "tidegate_run_commit_seconds_total": 0.25,
        "tidegate_run_partitions": 2,
        "tidegate_run_parked_partitions": 1,
        "tidegate_run_open_failures": 2,
        "tidegate_run_stall_seconds": 12.5,
        "tidegate_run_began_timestamp_seconds": pytest.approx(NOW.timestamp()),
        "tidegate_run_state": 1,
    }


def group(name: str, partitions: int) -> GroupLag:
    one = PartitionLag(
        partition=Partition("t", 0),
        mark=0,
        beginning=0,
        end_offset=1,
        lag=1,
        lag_seconds=2.5,
        waiting_seconds=1.0,
        lost=0,
        retention_hours=None,
        member=None,
        metadata="",
        verdict="ok",
        why="",
    )
    many = tuple(replace(one, partition=Partition("t", number)) for number in range(partitions))
    return GroupLag(name, NOW, "empty", False, (), partitions, 2.5, 1.0, None, "ok", "", many)  # as above


def test_the_number_of_series_is_bounded_and_what_is_left_out_is_counted() -> None:
    found = figures(render(View(NOW, 0.0, tuple(group(f"g{n}", 11) for n in range(2100)), None), None))
    assert len(found["tidegate_group_lag"]) == 2000
    assert len(found["tidegate_lag"]) == len(found["tidegate_lag_seconds"]) == 20_000
    assert found["tidegate_series_left_out"] == {("groups",): 100, ("partitions",): 2000}
    assert set(found["tidegate_group_lag"].values()) == {11}


def test_a_hostile_name_stays_a_label() -> None:
    name = 'a"} 1\ntidegate_lag{x="\\'
    found = figures(render(View(NOW, 0.0, (group(name, 1),), None), None))
    assert found["tidegate_lag"] == {(name, "0", "t"): 1}


UNREADY = [
    # view,                         run,                                     why not
    (View(NOW, 1.0, (), None), None, False, None),
    (View(None, None, (), None), None, False, "not been looked at"),
    (View(NOW, 1.0, (), "no broker"), None, False, "no broker"),
    (View(NOW, 500.0, (), None), None, False, "500s ago"),
    (View(NOW, 1.0, (), None), None, True, "waiting"),
    (View(NOW, 1.0, (), None), RUN, True, None),
    (View(NOW, 1.0, (), None), replace(RUN, state="paused"), True, None),
    (View(NOW, 1.0, (), None), replace(RUN, state="starting"), True, "starting"),
    (View(NOW, 1.0, (), None), replace(RUN, member=""), True, "not joined"),
    (View(NOW, 1.0, (), None), replace(RUN, state="failed"), True, "failed"),
    (View(NOW, 1.0, (), None), replace(RUN, partitions=(replace(QUIET, stalled_seconds=91.0),)), True, "stood still"),
]


@pytest.mark.parametrize(("view", "status", "has_run", "why"), UNREADY)
def test_when_it_is_ready(view: View, status: RunStatus | None, has_run: bool, why: str | None) -> None:
    found = unready(view, status, has_run=has_run)
    assert found is None if why is None else why in str(found)


# --- a run in the same process


class Steered:
    """A control to which a run is attached that notes what is asked of it, and does it."""

    def __init__(self, state: RunStatus) -> None:
        self.control = Control()
        self.control.attach(self._take)
        self.control.publish(state)

    def _take(self, asked: object) -> None:
        status = self.control.status
        assert status is not None
        if hasattr(asked, "is_paused"):
            self.control.publish(replace(status, state="paused" if asked.is_paused else "running"))


def test_a_run_is_shown_paused_and_resumed(start: Start) -> None:
    steered = Steered(RUN)
    client = start(control=steered.control)

    found = client.get("/api/v1/run").json
    assert (found["group"], found["state"], found["counts"]["settled"]) == ("billing", "running", 100)
    assert found["partitions"][1]["parked_seconds"] == 3.0
    assert client.post("/api/v1/run/pause").json["state"] == "paused"
    assert client.get("/api/v1/run").json["state"] == "paused"
    assert client.post("/api/v1/run/resume").json["state"] == "running"
    assert client.get("/readyz").json == {"status": "ready"}
    steered.control.detach()
    assert client.post("/api/v1/run/pause").error == "not_running"


def test_before_a_run_begins_it_is_not_ready(start: Start) -> None:
    client = start(control=Control())
    assert (client.get("/api/v1/run").status, client.get("/api/v1/run").error) == (503, "not_begun")
    assert client.get("/readyz").error == "not_ready"
    assert client.get("/healthz").json == {"status": "alive"}


# --- the broker goes away


def test_the_server_lives_through_the_brokers_absence(start: Start) -> None:
    with Broker() as own:
        client = start(tokens=Tokens(OPERATOR), at=Kafka(own.bootstrap), timeout=3.0)
        operator = client.as_(OPERATOR)
        assert client.get("/readyz").status == 200
        own.stop()
        wait_until(lambda: client.get("/readyz").status == 503, within=60, what="that it notices")

        assert own.bootstrap not in client.get("/readyz").body.decode(), "strangers are not told where Kafka is"
        assert own.bootstrap in operator.get("/readyz").json["error"]["message"]
        assert client.get("/healthz").status == 200
        assert own.bootstrap in operator.get("/api/v1/groups").json["problem"]
        assert figures(operator.get("/metrics").body)["tidegate_broker_up"][()] == 0
        found = operator.get("/api/v1/groups/any/offsets")
        assert (found.status, found.error, "retry-after" in found.headers) == (503, "broker_unreachable", True)

        own.start()
        wait_until(lambda: client.get("/readyz").status == 200, within=60, what="that it recovers by itself")
        assert operator.get("/api/v1/groups/any/offsets").error == "group_missing"


def test_requests_that_wait_do_not_hold_up_others(start: Start) -> None:
    with Broker() as own:
        client = start(at=Kafka(own.bootstrap), timeout=3.0)
        own.stop()
        slow: list[int] = []
        threads = [
            threading.Thread(target=lambda: slow.append(client.get("/api/v1/groups/any/offsets").status))
            for _ in range(12)
        ]
        for one in threads:
            one.start()
        for _ in range(5):
            assert client.get("/api/v1/groups").status == 200
            assert client.get("/healthz").status == 200
        still_waiting = any(one.is_alive() for one in threads)
        for one in threads:
            one.join(90)
    assert still_waiting, "the quick ones were answered while the slow ones waited"
    assert slow == [503] * 12
