"""Every address that only looks: true values, the same as on the command line, and errors of one shape."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer

from tests.broker.graveyard import Graveyard, Letter
from tests.support import wait_until
from tidegate.history.rows import Batch, FailureRow, MarkRow, RunRow
from tidegate.ops.cluster import Cluster
from tidegate.records import Counts

if TYPE_CHECKING:
    from pathlib import Path

    from tests.web.client import Client
    from tests.web.conftest import Scene, Start
    from tidegate.history.store import History
    from tidegate.kafka.connection import Kafka

NOW = datetime.now(UTC).replace(microsecond=0)


def printed(kafka: Kafka, *words: str) -> Any:
    """What the command line prints as JSON."""
    command = [sys.executable, "-m", "tidegate.cli", *words, "--bootstrap", kafka.bootstrap, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines[0] if len(lines) == 1 else lines


# --- groups


def test_offsets_are_those_of_the_command_line(client: Client, scene: Scene) -> None:
    found = client.get(f"/api/v1/groups/{scene.group}/offsets").json

    assert found.pop("table") is None
    assert found == printed(scene.kafka, "offsets", scene.group)
    assert [(one["topic"], one["partition"], one["mark"], one["lag"]) for one in found["partitions"]] == [
        (scene.topic, 0, 4, 6),
        (scene.topic, 1, 10, 0),
    ]


def test_a_group_is_that_of_the_command_line(client: Client, scene: Scene) -> None:
    address = f"/api/v1/groups/{scene.group}"
    wait_until(lambda: client.get(address).json.get("lag_seconds") is not None, within=30, what="times of records")
    found = client.get(address).json
    shown = printed(scene.kafka, "lag", scene.group)

    assert (found["group"], found["lag"], found["state"], found["members"]) == (scene.group, 6, "empty", [])
    for each in (found, shown):  # what passes with time
        for one in (each, *each["partitions"]):
            for name in ("at", "waiting_seconds", "still_seconds", "why", "retention_hours", "expiry_days"):
                one.pop(name, None)
    assert found.pop("partitions") == shown.pop("partitions")
    assert found == shown


def test_the_overview_has_every_group_with_its_lag_and_how_old_that_is(client: Client, scene: Scene) -> None:
    wait_until(lambda: bool(client.get(f"/api/v1/groups?name={scene.group}").json["groups"]), within=30, what="a look")
    page = client.get(f"/api/v1/groups?name={scene.group}").json
    (group,) = page["groups"]

    assert (group["group"], group["lag"], group["partition_count"], group["member_count"]) == (scene.group, 6, 2, 0)
    assert page["problem"] is None
    assert page["age_seconds"] < 60
    assert datetime.fromisoformat(page["at"]).utcoffset() == timedelta(0)


def test_the_overview_comes_in_pages_that_leave_nothing_out(client: Client, scene: Scene) -> None:
    names = sorted(f"{scene.group}-{number}" for number in range(5))
    for name in names:
        scene.admin.commit_for_empty_group(name, dict.fromkeys(scene.places, (1, "")))
    address = f"/api/v1/groups?name={scene.group}-&limit=2"
    wait_until(
        lambda: len(client.get(f"/api/v1/groups?name={scene.group}-").json["groups"]) == 5, within=30, what="a look"
    )

    seen, after = [], ""
    for _ in range(3):
        page = client.get(address + (f"&after={after}" if after else "")).json
        seen.append([one["group"] for one in page["groups"]])
        after = page["next"]
    assert seen == [names[:2], names[2:4], names[4:]]
    assert after is None


def test_members_are_shown_with_their_partitions(client: Client, scene: Scene) -> None:
    consumer = Consumer(
        {"bootstrap.servers": scene.kafka.bootstrap, "group.id": scene.group, "client.id": "a foreign one"}
    )
    consumer.subscribe([scene.topic])
    try:
        wait_until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), within=60, what="an assignment")
        (member,) = client.get(f"/api/v1/groups/{scene.group}/offsets").json["members"]
    finally:
        consumer.close()

    assert member["client_id"] == "a foreign one"
    assert member["partitions"] == [{"topic": scene.topic, "partition": number} for number in range(2)]


def test_lag_over_time_grows_when_records_come(client: Client, scene: Scene) -> None:
    address = f"/api/v1/groups/{scene.group}/lag"
    wait_until(lambda: bool(client.get(address).json["points"]), within=30, what="a first point")
    scene.write(5)
    wait_until(lambda: client.get(address).json["points"][-1]["lag"] == 16, within=30, what="the new lag")

    points = client.get(address).json["points"]
    assert points[0]["lag"] == 6
    assert [one["at"] for one in points] == sorted(one["at"] for one in points)


@pytest.mark.parametrize("name", ["a/b", "über & co", "50%", "a.b-c", "<b>", "..", "a/offsets"])
def test_a_group_may_have_any_name(client: Client, scene: Scene, name: str) -> None:
    group = f"{name}{scene.group}"
    scene.admin.commit_for_empty_group(group, {scene.places[0]: (3, "")})

    found = client.get(f"/api/v1/groups/{quote(group, safe='')}/offsets")
    assert (found.status, found.json["group"], found.json["lag"]) == (200, group, 7)
    assert client.get(f"/api/v1/groups/{quote(group, safe='')}").json["group"] == group


# --- the history


def written(history: History, scene: Scene) -> str:
    """Write a run of the scene's group with two commits and a failure; return the cluster."""
    cluster = Cluster(scene.kafka, 10.0).cluster_id
    run = RunRow("run1", cluster, scene.group, NOW, NOW, host="here", topics=(scene.topic,), counts=Counts(settled=4))
    failure = FailureRow(scene.places[0], 4, "ValueError", "<script>alert(1)</script>", NOW, fate="dead_letter")
    for mark in (2, 4):
        at = NOW + timedelta(minutes=mark)
        history.write(Batch(run, {scene.places[0]: MarkRow(mark, at)}, (failure,)))
    return cluster


def test_the_table_has_settled_and_requested_offsets(start: Start, scene: Scene, history: History) -> None:
    replay = history.ask(written(history, scene), scene.group, {scene.places[0]: 1}, by="somebody")
    (row,) = start(history=history).get(f"/api/v1/groups/{scene.group}/offsets").json["table"]

    assert (row["topic"], row["partition"], row["mark"]) == (scene.topic, 0, 4)
    assert (row["requested"], row["replay"], row["requested_by"], row["applied_at"]) == (1, replay, "somebody", None)


def test_commits_runs_and_failures_come_from_the_history(start: Start, scene: Scene, history: History) -> None:
    written(history, scene)
    client = start(history=history)
    group = f"/api/v1/groups/{scene.group}"

    commits = client.get(f"{group}/history").json["commits"]
    assert [(one["partition"], one["mark"]) for one in commits] == [(0, 2), (0, 4)]
    assert datetime.fromisoformat(commits[1]["settled_at"]) == NOW + timedelta(minutes=4)
    assert client.get(f"{group}/history?limit=1").json["commits"] == commits[1:]
    assert client.get(f"{group}/history?topic={scene.topic}&partition=1").json["commits"] == []
    since = quote((NOW + timedelta(minutes=3)).isoformat())
    assert client.get(f"{group}/history?since={since}").json["commits"] == commits[1:]

    (run,) = client.get(f"{group}/runs").json["runs"]
    assert (run["run_id"], run["host"], run["counts"]["settled"]) == ("run1", "here", 4)
    assert client.get("/api/v1/runs").json["runs"] == [run]
    (failure,) = client.get(f"{group}/failures").json["failures"]
    assert (failure["record_offset"], failure["message"]) == (4, "<script>alert(1)</script>")


@pytest.mark.parametrize("what", ["groups/some/history", "groups/some/runs", "groups/some/failures", "runs"])
def test_without_a_history_it_says_how_to_have_one(client: Client, what: str) -> None:
    found = client.get(f"/api/v1/{what}")
    assert (found.status, found.error) == (404, "no_history")


def test_a_broken_history_is_an_error_with_its_cure_and_breaks_nothing_else(
    start: Start, scene: Scene, history: History, tmp_path: Path
) -> None:
    (tmp_path / "history.db").write_bytes(b"this is no database" * 1000)
    client = start(history=history)

    found = client.get("/api/v1/runs")
    assert (found.status, found.error) == (503, "history_broken")
    assert client.get(f"/api/v1/groups/{scene.group}").status == 200


# --- dead letters


@pytest.fixture
def graveyard(kafka: Kafka, tmp_path: Path) -> Graveyard:
    made = Graveyard(kafka, tmp_path)
    made.bury(
        *(Letter(number, number % 2, error=("ValueError", f"amount {number}")) for number in range(7)),
        Letter(7, 1, error=("KeyError", "nothing"), key=b"k7", value=b"\xff\xfe"),
    )
    return made


def test_dead_letters_are_those_of_the_command_line(client: Client, graveyard: Graveyard) -> None:
    page = client.get(f"/api/v1/groups/{graveyard.group}/dead-letters").json

    assert page["letters"] == printed(graveyard.kafka, "dead", "list", graveyard.group)
    assert [one["origin_offset"] for one in page["letters"]] == [0, 2, 4, 6, 1, 3, 5, 7]
    assert page["next"] is None


def test_pages_of_dead_letters_leave_nothing_out_and_repeat_nothing(client: Client, graveyard: Graveyard) -> None:
    address = f"/api/v1/groups/{graveyard.group}/dead-letters?limit=3"
    seen, after = [], ""
    for _ in range(3):
        page = client.get(address + after).json
        seen.append([one["origin_offset"] for one in page["letters"]])
        after = f"&after={page['next']}"
    assert seen == [[0, 2, 4], [6, 1, 3], [5, 7]]
    assert page["next"] is None


FILTERS = [
    # asked                               origins of the letters
    ("error=KeyError", [7]),
    ("error=amount%203", [3]),
    ("key=k7", [7]),
    ("origin=orders&error=ValueError&limit=2", [0, 2]),
    ("origin=nothing", []),
    ("since=1h", [0, 2, 4, 6, 1, 3, 5, 7]),
    ("until=1h", []),
]


@pytest.mark.parametrize(("asked", "origins"), FILTERS)
def test_dead_letters_are_chosen_by_filters(
    client: Client, graveyard: Graveyard, asked: str, origins: list[int]
) -> None:
    page = client.get(f"/api/v1/groups/{graveyard.group}/dead-letters?{asked}").json
    assert [one["origin_offset"] for one in page["letters"]] == origins


def test_a_page_is_bounded_in_bytes_too(client: Client, graveyard: Graveyard) -> None:
    graveyard.bury(*(Letter(number, 0, value=b"x" * 900_000) for number in (20, 21, 22)))
    page = client.get(f"/api/v1/groups/{graveyard.group}/dead-letters?limit=50").json

    assert [one["origin_offset"] for one in page["letters"]] == [0, 2, 4, 6, 20, 21]
    page = client.get(f"/api/v1/groups/{graveyard.group}/dead-letters?after={page['next']}").json
    assert [one["origin_offset"] for one in page["letters"]] == [22, 1, 3, 5, 7]


def test_one_letter_is_that_of_the_command_line(client: Client, graveyard: Graveyard) -> None:
    found = client.get(f"/api/v1/groups/{graveyard.group}/dead-letters/1/3").json

    assert found == printed(graveyard.kafka, "dead", "show", graveyard.group, "1:3")
    assert found["value"] == {"base64": "//4="}


# --- errors


ERRORS = [
    # method, address,                                     status, word
    ("GET", "/api/v1/groups/nobody", 404, "group_missing"),
    ("GET", "/api/v1/groups/nobody/offsets", 404, "group_missing"),
    ("GET", "/api/v1/groups/nobody/dead-letters", 404, "topic_missing"),
    ("GET", "/api/v1/groups/nobody/dead-letters/0/0", 404, "topic_missing"),
    ("GET", "/api/v1/run", 404, "no_run"),
    ("POST", "/api/v1/run/pause", 404, "no_run"),
    ("GET", "/api/v1/nothing", 404, "no_such_page"),
    ("GET", "/nothing", 404, "no_such_page"),
    ("DELETE", "/api/v1/groups", 405, "wrong_method"),
    ("POST", "/healthz", 405, "wrong_method"),
    ("GET", "/api/v1/groups?limit=0", 422, "invalid"),
    ("GET", "/api/v1/groups?limit=100000", 422, "invalid"),
    ("GET", "/api/v1/groups?verdict=fine", 422, "invalid"),
    ("GET", f"/api/v1/groups/{'x' * 256}/offsets", 422, "invalid"),
    ("GET", "/api/v1/groups/a%00b/offsets", 422, "invalid"),
    ("GET", "/api/v1/groups/x/dead-letters?limit=201", 422, "invalid"),
    ("GET", "/api/v1/groups/x/dead-letters?since=yesterday", 422, "settings_error"),
    ("GET", "/api/v1/groups/x/dead-letters/0/x", 422, "invalid"),
    ("GET", "/api/v1/groups/x/lag?within=long", 422, "settings_error"),
    ("PUT", "/api/v1/groups/x/offsets", 422, "invalid"),
]


@pytest.mark.parametrize(("method", "address", "status", "word"), ERRORS)
def test_every_error_has_one_shape(client: Client, method: str, address: str, status: int, word: str) -> None:
    found = client.send(method, address, b"{}", {"content-type": "application/json"})
    assert (found.status, found.error) == (status, word)


def test_a_letter_that_is_not_there_is_missing(client: Client, graveyard: Graveyard) -> None:
    found = client.get(f"/api/v1/groups/{graveyard.group}/dead-letters/0/99")
    assert (found.status, found.error) == (404, "letter_missing")
    found = client.get(f"/api/v1/groups/{graveyard.group}/dead-letters?after=somewhere")
    assert (found.status, found.error) == (422, "settings_error")


def test_a_wrong_name_is_answered_with_the_right_one(client: Client, scene: Scene) -> None:
    found = client.get(f"/api/v1/groups/{scene.group}x/offsets")
    assert f"did you mean {scene.group}?" in found.json["error"]["cure"]


def test_the_reference_names_every_address_and_loads_nothing_from_elsewhere(client: Client) -> None:
    document = client.get("/api/v1/openapi.json").json
    page = client.get("/api/v1").body.decode()

    assert len(document["paths"]) == 17
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"{method.upper()} {path}" in page
    assert "://" not in page
    assert "<script" not in page
    assert client.get("/style.css").headers["content-type"].startswith("text/css")


def test_a_group_that_was_never_used_is_missing_whatever_it_is_called(client: Client) -> None:
    assert client.get(f"/api/v1/groups/{uuid.uuid4().hex}/offsets").error == "group_missing"
