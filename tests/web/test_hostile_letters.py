"""Dead letters of records that nobody would write on purpose: served as they are, in pages that are bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.hostile import NAMED, UNKNOWN_TIMES, as_written, assert_are_those_buried, bury, contents_of

if TYPE_CHECKING:
    from tests.web.client import Client
    from tidegate.kafka.connection import Kafka


@pytest.fixture(scope="module")
def group(kafka: Kafka) -> str:
    return bury(kafka)


@pytest.mark.timeout(60)
def test_pages_of_hostile_letters_hold_them_all_as_they_are(client: Client, group: str) -> None:
    letters: list[dict[str, Any]] = []
    address, pages = f"/api/v1/groups/{group}/dead-letters", 0
    after: str | None = ""
    while after is not None:
        answer = client.get(f"{address}?after={after}" if after else address)
        assert answer.status == 200
        page = answer.json
        letters += page["letters"]
        after, pages = page["next"], pages + 1
    assert_are_those_buried(letters)
    assert pages > 2, "they are too many bytes for one page"


@pytest.mark.timeout(60)
def test_each_hostile_letter_is_served_as_it_is(client: Client, group: str) -> None:
    shown = [client.get(f"/api/v1/groups/{group}/dead-letters/0/{at}") for at in range(len(NAMED))]
    assert {answer.status for answer in shown} == {200}
    assert contents_of(answer.json for answer in shown) == as_written(NAMED)
    for one, answer in zip(NAMED, shown, strict=True):
        assert (answer.json["origin_timestamp"] is None) == (one.timestamp in UNKNOWN_TIMES), one.name
        assert answer.json["stable_id"] == f"{group}:orders:0:0"
