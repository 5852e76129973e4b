"""Moving groups and sending dead letters back: what was shown is what is done, or nothing is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer

from tests.broker.graveyard import Graveyard, Letter
from tests.support import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.web.client import Client
    from tests.web.conftest import Scene
    from tidegate.kafka.connection import Kafka


def address(scene: Scene) -> str:
    return f"/api/v1/groups/{scene.group}/offsets"


PLACES = [
    # to,        partition, marks afterwards
    ("beginning", None, [0, 0]),
    ("end", None, [10, 10]),
    ("end", 0, [10, 10]),
    ("beginning", 1, [4, 0]),
    ("7", None, [7, 7]),
    ("99", None, [10, 10]),
    ("-3", None, [1, 7]),
    ("+3", 0, [7, 10]),
    ("2001-01-01T00:00:00Z", None, [0, 0]),
    ("FUTURE", None, [10, 10]),
]


@pytest.mark.parametrize(("to", "partition", "marks"), PLACES)
def test_a_rewind_does_what_its_plan_shows(
    client: Client, scene: Scene, to: str, partition: int | None, marks: list[int]
) -> None:
    place = f"{datetime.now(UTC).year + 1}-01-01T00:00:00+01:00" if to == "FUTURE" else to
    body = {"to": place, "topic": scene.topic, "partition": partition}
    plan = client.put(address(scene), body).json
    assert scene.marks() == [4, 10], "a plan moves nothing"

    done = client.put(address(scene), {**body, "dry_run": False, "fingerprint": plan["fingerprint"]}).json
    assert scene.marks() == marks
    assert [(one["topic"], one["to"]) for one in done["moves"]] == [
        (scene.topic, marks[one["partition"]]) for one in done["moves"]
    ]
    assert {**done, "is_done": False, "fingerprint": plan["fingerprint"]} == plan


def test_without_a_fingerprint_nothing_is_moved(client: Client, scene: Scene) -> None:
    found = client.put(address(scene), {"to": "end", "dry_run": False})
    assert (found.status, found.error) == (422, "plan_missing")
    found = client.put(address(scene), {"to": "end", "dry_run": False, "fingerprint": "0" * 32})
    assert (found.status, found.error) == (409, "plan_changed")
    assert scene.marks() == [4, 10]


def shown(client: Client, scene: Scene, **body: Any) -> dict[str, Any]:
    """Ask for a plan; return what carries it out."""
    plan = client.put(address(scene), body).json
    return {**body, "dry_run": False, "fingerprint": plan["fingerprint"]}


def test_a_plan_is_carried_out_once(client: Client, scene: Scene) -> None:
    body = shown(client, scene, to="-1")
    assert client.put(address(scene), body).status == 200
    assert (client.put(address(scene), body).status, scene.marks()) == (409, [3, 9])


def test_a_plan_for_a_group_that_has_moved_since_is_not_carried_out(client: Client, scene: Scene) -> None:
    body = shown(client, scene, to="beginning")
    scene.stand(5, 10)
    found = client.put(address(scene), body)

    assert (found.status, found.error) == (409, "plan_changed")
    assert scene.marks() == [5, 10]


def test_a_fingerprint_is_good_for_its_own_plan_alone(client: Client, scene: Scene) -> None:
    body = shown(client, scene, to="beginning")
    assert client.put(address(scene), {**body, "to": "end"}).error == "plan_changed"
    assert client.put("/api/v1/groups/another/offsets", body).error == "plan_changed"
    assert scene.marks() == [4, 10]
    assert client.put(address(scene), body).status == 200


def test_to_the_end_is_the_end_that_was_shown(client: Client, scene: Scene) -> None:
    body = shown(client, scene, to="end")
    scene.write(3)
    assert client.put(address(scene), body).status == 200
    assert scene.marks() == [10, 10]


def test_a_group_with_members_is_not_moved(client: Client, scene: Scene) -> None:
    body = shown(client, scene, to="beginning")
    consumer = Consumer({"bootstrap.servers": scene.kafka.bootstrap, "group.id": scene.group})
    consumer.subscribe([scene.topic])
    try:
        wait_until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), within=60, what="an assignment")
        for asked in ({"to": "end"}, body):
            found = client.put(address(scene), asked)
            assert (found.status, found.error) == (409, "group_has_members")
            assert "stop every process" in found.json["error"]["cure"]
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({"to": "somewhere"}, 422, "settings_error"),
        ({"to": ""}, 422, "invalid"),
        ({"to": "end", "dry_run": "no"}, 422, "invalid"),
        ({"to": "end", "more": 1}, 422, "invalid"),
        ({"to": "end", "partition": 0}, 422, "settings_error"),
        ({"to": "end", "topic": "no-such-topic"}, 404, "topic_missing"),
        ({"to": "end", "topic": "a b"}, 422, "invalid"),
        ({"to": "2026-01-01T00:00:00"}, 422, "settings_error"),
        ([], 422, "invalid"),
    ],
)
def test_a_rewind_that_cannot_be_is_refused(client: Client, scene: Scene, body: object, status: int, word: str) -> None:
    found = client.put(address(scene), body)
    assert (found.status, found.error) == (status, word)


# --- redrive


@pytest.fixture
def graveyard(kafka: Kafka, tmp_path: Path) -> Graveyard:
    made = Graveyard(kafka, tmp_path)
    made.bury(*(Letter(number, number % 2, error=("ValueError", f"amount {number}")) for number in range(6)))
    return made


def test_a_redrive_sends_what_its_plan_shows_once(client: Client, graveyard: Graveyard) -> None:
    where = f"/api/v1/groups/{graveyard.group}/redrive"
    plan = client.post(where).json
    assert (plan["is_dry_run"], plan["to_send"], plan["sent"]) == (True, 6, 0)
    assert graveyard.redriven_ids() == [], "a plan sends nothing"

    body = {"dry_run": False, "fingerprint": plan["fingerprint"]}
    done = client.post(where, body).json
    assert (done["is_dry_run"], done["sent"], done["fingerprint"]) == (False, 6, None)
    assert sorted(graveyard.redriven_ids()) == graveyard.ids(range(6))
    assert client.post(where, body).error == "plan_changed"
    assert len(graveyard.redriven_ids()) == 6


def test_pressing_twice_sends_once_even_what_may_be_sent_again(client: Client, graveyard: Graveyard) -> None:
    where = f"/api/v1/groups/{graveyard.group}/redrive"
    body = {"again": True, "dry_run": False, "fingerprint": client.post(where, {"again": True}).json["fingerprint"]}
    assert client.post(where, body).json["sent"] == 6
    found = client.post(where, body)

    assert (found.status, found.error) == (409, "plan_changed")
    assert sorted(graveyard.redriven_ids()) == graveyard.ids(range(6))


@pytest.mark.parametrize(
    ("body", "numbers"),
    [
        ({"error": "amount 3"}, [3]),
        ({"partition": 1, "offset": 2}, [5]),
        ({"limit": 2}, [0, 2]),
        ({"since": "1h", "origin": "orders", "error": "amount 4"}, [4]),
    ],
)
def test_letters_to_send_are_chosen(
    client: Client, graveyard: Graveyard, body: dict[str, Any], numbers: list[int]
) -> None:
    where = f"/api/v1/groups/{graveyard.group}/redrive"
    plan = client.post(where, body).json
    assert plan["to_send"] == len(numbers)
    assert client.post(where, {**body, "dry_run": False, "fingerprint": plan["fingerprint"]}).status == 200
    assert sorted(graveyard.redriven_ids()) == graveyard.ids(numbers)


def test_a_letter_that_came_after_the_plan_is_not_sent(client: Client, graveyard: Graveyard) -> None:
    where = f"/api/v1/groups/{graveyard.group}/redrive"
    plan = client.post(where).json
    graveyard.bury(Letter(77))
    done = client.post(where, {"dry_run": False, "fingerprint": plan["fingerprint"]})

    assert (done.status, done.json["sent"]) == (200, 6)
    assert sorted(graveyard.redriven_ids()) == graveyard.ids(range(6))


def test_letters_that_somebody_else_sent_since_are_not_sent_again(client: Client, graveyard: Graveyard) -> None:
    where = f"/api/v1/groups/{graveyard.group}/redrive"
    plan = client.post(where).json
    graveyard.send(error="amount 3")
    found = client.post(where, {"dry_run": False, "fingerprint": plan["fingerprint"]})

    assert (found.status, found.error) == (409, "plan_changed")
    assert graveyard.redriven_ids() == graveyard.ids([3])


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({"limit": 0}, 422, "invalid"),
        ({"limit": 10_001}, 422, "invalid"),
        ({"partition": 1}, 422, "settings_error"),
        ({"since": "soon"}, 422, "settings_error"),
        ({"dry_run": False}, 422, "plan_missing"),
    ],
)
def test_a_redrive_that_cannot_be_is_refused(
    client: Client, graveyard: Graveyard, body: dict[str, Any], status: int, word: str
) -> None:
    found = client.post(f"/api/v1/groups/{graveyard.group}/redrive", body)
    assert (found.status, found.error) == (status, word)
