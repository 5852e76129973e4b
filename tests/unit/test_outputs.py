"""Outputs at least once: what ended their producer is said, also where the client tells it in a roundabout way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate.errors import BrokerUnreachable, Unavailable
from tidegate.kafka import outputs
from tidegate.kafka.connection import Kafka
from tidegate.kafka.outputs import Outputs
from tidegate.store import Effect, Outgoing

NO_RIGHT = KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no", fatal=True))
ENDED = KafkaException(KafkaError(KafkaError._FATAL, "Local: Fatal error"))
COUNT = KafkaException(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "lost count", fatal=True))


def tripped() -> SystemError:
    """As Python says it where a callback is called with an error still raised."""
    error = SystemError("<method 'code'> returned a result with an exception set")
    error.__cause__ = NO_RIGHT
    return error


class Ended:
    """A producer that has ended: the first calls tell it."""

    def __init__(self, produce: Exception | None, flush: Exception | None, poll: Exception | None) -> None:
        self._produce, self._flush, self._poll = produce, flush, poll

    def produce(self, *_: object) -> None:
        _raise(self._produce)

    def flush(self, _seconds: float) -> int:
        _raise(self._flush)
        return 0

    def poll(self, _seconds: float) -> int:
        _raise(self._poll)
        return 0


def _raise(error: Exception | None) -> None:
    if error is not None:
        raise error


@pytest.mark.parametrize(
    "ended",
    [
        lambda: Ended(None, NO_RIGHT, None),
        lambda: Ended(None, tripped(), None),
        lambda: Ended(ENDED, None, NO_RIGHT),
        lambda: Ended(ENDED, None, tripped()),
    ],
)
def test_who_may_write_to_no_topic_is_told_so_as_where_the_right_to_one_is_missing(
    ended: Callable[[], Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise: it is taken for a broker that is away, and tried every second for ever, with no word of the right."""
    monkeypatch.setattr(outputs, "Producer", lambda _settings: ended())
    with pytest.raises(Unavailable, match="your user may write to no topic"):
        Outputs(Kafka("nowhere:9092")).seal([Effect([Outgoing("out", b"1")])], {})


@pytest.mark.parametrize("poll", [COUNT, None])
def test_another_end_of_a_producer_is_waited_for(poll: Exception | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "Producer", lambda _settings: Ended(ENDED, None, poll))
    with pytest.raises(BrokerUnreachable, match="Fatal error" if poll is None else "lost count"):
        Outputs(Kafka("nowhere:9092")).seal([Effect([Outgoing("out", b"1")])], {})
