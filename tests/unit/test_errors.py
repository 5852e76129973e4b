"""Errors: one sentence with the cure, an exit code, and a safe trip between processes."""

from __future__ import annotations

import inspect
import pickle

import pytest

from tidegate import errors
from tidegate.errors import DeliveryFailed, StoppedAtRecord, TidegateError
from tidegate.ops.produce import Delivered, Delivery
from tidegate.records import Failure, Partition

OURS = [
    found
    for _, found in inspect.getmembers(errors, inspect.isclass)
    if issubclass(found, Exception) and found.__module__ == errors.__name__
]
SENTENCES = [found for found in OURS if issubclass(found, TidegateError) and found is not StoppedAtRecord]
FAILURE = Failure(Partition("orders", 3), 42, "ValueError", "no amount")


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_every_error_is_in_the_tree_that_opens_the_module(kind: type[Exception]) -> None:
    assert any(line.split()[:1] == [kind.__name__] for line in (errors.__doc__ or "").splitlines())


@pytest.mark.parametrize("kind", SENTENCES, ids=lambda kind: kind.__name__)
def test_an_error_is_one_sentence_of_what_happened_and_the_cure(kind: type[TidegateError]) -> None:
    error = kind("the broker slept", "wake it")

    assert str(error) == "the broker slept; wake it"
    assert (error.happened, error.cure) == ("the broker slept", "wake it")
    assert error.exit_code == 1


@pytest.mark.parametrize("kind", SENTENCES, ids=lambda kind: kind.__name__)
def test_an_error_survives_a_trip_between_processes(kind: type[TidegateError]) -> None:
    back = pickle.loads(pickle.dumps(kind("the broker slept", "wake it")))  # noqa: S301  # our own bytes

    assert type(back) is kind
    assert (str(back), back.happened, back.cure) == ("the broker slept; wake it", "the broker slept", "wake it")


def test_a_stop_names_the_record_and_its_failure_and_has_its_own_exit_code() -> None:
    error = StoppedAtRecord(FAILURE)

    assert str(error).startswith("stopped at orders[3] offset 42: ValueError: no amount; the group stays at this")
    assert error.exit_code == 3


def test_a_stop_survives_a_trip_between_processes() -> None:
    back = pickle.loads(pickle.dumps(StoppedAtRecord(FAILURE)))  # noqa: S301  # our own bytes

    assert back.failure == FAILURE
    assert str(back) == str(StoppedAtRecord(FAILURE))


def test_a_failed_delivery_carries_its_report_everywhere() -> None:
    report = Delivery("orders", 1, (Delivered(Partition("orders", 0), 1, 5, 5),), ("too large",))
    back = pickle.loads(pickle.dumps(DeliveryFailed("1 of 2", "less", report)))  # noqa: S301  # our own bytes

    assert back.delivery == report
    assert str(back) == "1 of 2; less"
