"""Many questions at once: one that cannot be answered does not cost the others their answer."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate.kafka.bulk import unless


def asked(answer: int | Exception) -> Future[int]:
    future: Future[int] = Future()
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
    return future


def test_an_answer_stays_what_it_is() -> None:
    assert unless(asked(7), {KafkaError.LEADER_NOT_AVAILABLE}).result(0) == 7


def test_an_error_that_was_expected_is_no_answer() -> None:
    no_leader = KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    assert unless(asked(no_leader), {KafkaError.LEADER_NOT_AVAILABLE}).result(0) is None


@pytest.mark.parametrize("error", [KafkaException(KafkaError(KafkaError._TIMED_OUT)), ValueError("no")])
def test_any_other_error_is_raised(error: Exception) -> None:
    with pytest.raises(type(error)):
        unless(asked(error), {KafkaError.LEADER_NOT_AVAILABLE}).result(0)
