"""What the member tells the client, which refusals pass, and when it lets another client join."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from confluent_kafka import KafkaError

from tidegate.beside import Beside
from tidegate.kafka.connection import Kafka
from tidegate.kafka.member import AWAY_SECONDS, Callbacks, Joining, Member


@dataclass
class Brokers:
    """What `list_topics` answers."""

    brokers: dict[int, int] = field(default_factory=lambda: {1: 1})


class Silent:
    """A client that the group never answers; Kafka itself does."""

    def subscribe(self, *_: object, **__: object) -> None:
        pass

    def poll(self, _seconds: float) -> None:
        return None

    def incremental_assign(self, _partitions: object) -> None:
        pass

    def list_topics(self, timeout: float) -> Brokers:
        assert timeout > 0
        return Brokers()

    def close(self) -> None:
        pass


def ignored(*_: object) -> None:
    pass


class Scene:
    def __init__(self, joining: Joining) -> None:
        self.now = 0.0
        self.settings: list[dict[str, object]] = []
        beside = Beside(lambda: self.now, lambda _: None)
        callbacks = Callbacks(ignored, ignored, ignored, ignored)
        self.member = Member(Kafka("there:1"), joining, callbacks, beside, self._open)  # type: ignore[arg-type]

    def _open(self, settings: dict[str, object]) -> Silent:
        self.settings.append(settings)
        return Silent()

    def poll_for(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            self.member.poll()


@pytest.mark.parametrize("is_broker_led", [False, True])
@pytest.mark.parametrize(("busy", "least"), [(30.0, 300_000), (900.0, 900_000)])
def test_the_client_waits_for_a_poll_longer_than_giving_back_may_take(
    busy: float, least: int, is_broker_led: bool
) -> None:
    scene = Scene(Joining("g", 10.0, is_broker_led=is_broker_led, busy_seconds=busy))
    longest = scene.settings[0]["max.poll.interval.ms"]
    assert isinstance(longest, int)
    assert longest >= least


@pytest.mark.parametrize(
    ("code", "is_passing"),
    [
        (KafkaError.STALE_MEMBER_EPOCH, True),
        (KafkaError.ILLEGAL_GENERATION, True),
        (KafkaError.UNKNOWN_MEMBER_ID, True),
        (KafkaError.REBALANCE_IN_PROGRESS, True),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, True),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, False),
        (KafkaError.OFFSET_METADATA_TOO_LARGE, False),
    ],
)
def test_a_refused_commit_is_sent_again_unless_that_cannot_help(code: int, is_passing: bool) -> None:
    assert Scene(Joining("g", 10.0)).member._refused(KafkaError(code)).is_passing is is_passing


def test_a_client_whose_first_join_is_never_answered_is_replaced() -> None:
    scene = Scene(Joining("g", 10.0))
    scene.member.join(["t"])
    scene.poll_for(round(AWAY_SECONDS) + 5)
    assert len(scene.settings) == 1, "others may be giving partitions back, and that may take a while"
    scene.poll_for(300)
    assert len(scene.settings) == 2


def test_a_client_that_the_group_has_answered_stays() -> None:
    scene = Scene(Joining("g", 10.0))
    scene.member.join(["t"])
    scene.member._on_assign(scene.member._consumer, [])
    scene.member.join(["t", "u"])
    scene.poll_for(1000)
    assert len(scene.settings) == 1
