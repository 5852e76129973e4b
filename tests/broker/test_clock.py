"""The broker's clock, read from the broker: what is due goes by it, whatever clock this machine has."""

from __future__ import annotations

import logging
import time
import uuid

import pytest

from tidegate.dev.broker import Broker
from tidegate.engine.clock import BrokerClock
from tidegate.errors import TidegateError
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.kafka.writer import Writer


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"clock-{uuid.uuid4().hex[:8]}"
    Admin(Kafka(broker.bootstrap)).create_topic(name, config={"message.timestamp.type": "LogAppendTime"})
    return name


def clock_on(broker: Broker, topic: str) -> BrokerClock:
    kafka = Kafka(broker.bootstrap)
    return BrokerClock(lambda: Writer(kafka, delivery_seconds=10), topic, 11)


def test_the_brokers_time_is_known_to_the_moment_and_never_ahead(broker: Broker, topic: str) -> None:
    clock = clock_on(broker, topic)
    assert clock.now_ms is None, "nothing is due before it is known"
    clock.read()
    assert clock.now_ms is not None
    # Broker and test share a machine, and so its clock.
    behind = time.time() * 1000 - clock.now_ms
    assert -1 <= behind < 2000
    clock.close()


@pytest.mark.parametrize("skew", [-600.0, 600.0])
def test_a_machine_whose_clock_is_wrong_changes_nothing_and_is_told(
    broker: Broker, topic: str, skew: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    true_time = time.time
    monkeypatch.setattr("tidegate.engine.clock.time.time", lambda: true_time() + skew)
    clock = clock_on(broker, topic)
    with caplog.at_level(logging.WARNING, "tidegate.clock"):
        clock.read()
        clock.read()
    assert clock.now_ms is not None
    assert -1 <= true_time() * 1000 - clock.now_ms < 2000
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1, "once is enough"
    assert f"600 s {'ahead of' if skew > 0 else 'behind'} the broker's" in told[0]
    clock.close()


def test_a_topic_that_is_not_there_says_so(broker: Broker) -> None:
    with pytest.raises(TidegateError):
        clock_on(broker, f"no-such-{uuid.uuid4().hex[:8]}").read()
