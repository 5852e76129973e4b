"""The broker's clock, read from the broker: what is due goes by it, whatever clock this machine has."""

from __future__ import annotations

import logging
import time
import uuid

import pytest

from tidegate.dev.broker import Broker
from tidegate.engine.clock import BrokerClock
from tidegate.engine.own_topics import prepare
from tidegate.errors import BrokerRefused, TidegateError
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.kafka.writer import Writer
from tidegate.names import redrive_topic, retry_topic
from tidegate.policy import Policy
from tidegate.settings import resolve


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


def test_a_topic_that_does_not_keep_the_brokers_time_is_refused_since_nothing_would_ever_be_due(broker: Broker) -> None:
    name = f"clock-{uuid.uuid4().hex[:8]}"
    Admin(Kafka(broker.bootstrap)).create_topic(name, config={"message.timestamp.type": "CreateTime"})
    with pytest.raises(BrokerRefused, match=r"does not say when.*LogAppendTime"):
        clock_on(broker, name).read()


def test_the_topic_by_which_the_time_is_read_is_set_right_where_only_retries_of_earlier_rows_are_left(
    broker: Broker,
) -> None:
    admin, group = Admin(Kafka(broker.bootstrap)), f"g-{uuid.uuid4().hex[:8]}"
    for name in (retry_topic(group, 60), redrive_topic(group)):
        admin.create_topic(name, config={"message.timestamp.type": "CreateTime"})
    own = prepare(admin, group, Policy(), resolve({}).values, {})
    assert own.delays == {retry_topic(group, 60): 60.0, redrive_topic(group): 0.0}
    clock_on(broker, redrive_topic(group)).read()
