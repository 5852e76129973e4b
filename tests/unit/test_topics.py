"""Which topics a pattern means, and what a second look at them shows."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tidegate.engine import own_topics
from tidegate.engine.topics import GONE_SECONDS, Change, Topics, expand
from tidegate.errors import TopicExists
from tidegate.kafka.admin import TopicInfo
from tidegate.names import is_own

OWN = ["billing.dead", "billing.redrive", "billing.retry.1m", "a.b.retry.200ms", "orders.retry.1.5h", "g.retry.2d"]
USERS = ["orders", "dead", "orders-dead", ".dead", "orders.retry", "orders.retry.soon", "retry.1m", "orders.deadline"]


def topic(name: str, topic_id: str = "x", *, internal: bool = False) -> TopicInfo:
    return TopicInfo(name, topic_id, 1, 1, internal)


@pytest.mark.parametrize("name", OWN)
def test_tidegates_own_topics_are_known_by_their_names(name: str) -> None:
    assert is_own(name)


@pytest.mark.parametrize("name", USERS)
def test_other_topics_are_not_taken_for_its_own(name: str) -> None:
    assert not is_own(name)


def test_a_pattern_means_whole_names_and_nothing_internal_or_own() -> None:
    known = [topic(name) for name in ("orders-1", "orders-2", "old-orders-1", "orders-1.dead", "orders-x.retry.1m")]
    assert list(expand(re.compile(r"orders-.*"), known)) == ["orders-1", "orders-2"]
    assert list(expand(re.compile(r".*"), [topic("__consumer_offsets", internal=True), topic("a")])) == ["a"]


def test_a_topic_with_another_id_was_made_anew() -> None:
    topics = Topics({"a": topic("a"), "b": topic("b")})
    assert topics.see({"a": topic("a", "y"), "b": topic("b")}, 0) == Change(anew=("a",))
    assert topics.see({"a": topic("a", "y"), "b": topic("b")}, 1) == Change(), "told once"


def test_a_topic_is_gone_only_after_a_time_and_one_that_returns_is_not() -> None:
    topics = Topics({"a": topic("a"), "b": topic("b")})
    assert topics.see({"b": topic("b")}, 0) == Change()
    assert topics.see({"a": topic("a", "y"), "b": topic("b")}, 5) == Change(anew=("a",))
    assert topics.see({"b": topic("b")}, 100) == Change(), "the time begins anew"
    assert topics.see({"b": topic("b")}, 100 + GONE_SECONDS) == Change(gone=("a",))
    assert topics.names == ["b"]


def test_a_topic_found_later_begins_at_its_beginning() -> None:
    topics = Topics({"a": topic("a")})
    assert topics.see({"a": topic("a"), "b": topic("b")}, 0) == Change(found=("b",))
    assert topics.names == ["a", "b"]
    assert topics.begins_at_its_beginning("b")
    assert not topics.begins_at_its_beginning("a")


def test_a_topic_of_the_groups_own_that_was_made_on_the_way_is_looked_for_and_read() -> None:
    topics = Topics({"a": topic("a")})
    topics.expect("g.redrive")
    assert topics.looked_for == ["a", "g.redrive"]
    assert topics.see({"a": topic("a")}, 0) == Change(), "it is not there yet, and nobody misses it"
    assert topics.see({"a": topic("a"), "g.redrive": topic("g.redrive")}, 1) == Change(found=("g.redrive",))
    assert topics.is_own("g.redrive")
    assert topics.begins_at_its_beginning("g.redrive")


class OthersWereFaster:
    """A cluster in which another copy has just made the topic, and the broker that is asked has not heard of it yet."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def create_topic(self, name: str, *_: object) -> None:
        raise TopicExists(f"Topic {name} already exists", "choose another name")

    def existing(self, names: list[str]) -> dict[str, TopicInfo]:
        self.looks -= 1
        return {name: topic(name) for name in names} if self.looks < 0 else {}


def test_a_topic_that_another_copy_has_just_made_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_topics, "NAP_SECONDS", 0.0)
    cluster: Any = OthersWereFaster(looks=3)
    own_topics.make_topic(cluster, "g.retry.1s", 4, {})
    assert cluster.looks == -1, "it looked until it was there"

    monkeypatch.setattr(own_topics, "HEARD_OF_SECONDS", 0.0)
    never: Any = OthersWereFaster(looks=10**9)
    with pytest.raises(TopicExists):
        own_topics.make_topic(never, "g.retry.1s", 4, {})


def test_a_topic_that_was_just_made_is_there_though_the_broker_that_is_asked_has_not_heard_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_topics, "NAP_SECONDS", 0.0)
    cluster: Any = OthersWereFaster(looks=3)
    names = ["g.redrive", "g.dead"]
    assert own_topics.made_topics(cluster, names) == {name: topic(name) for name in names}
    assert cluster.looks == -1, "it looked until it was there"
