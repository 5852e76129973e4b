"""Lists into sinks: whatever a sink answers, each record's fate is known, and nothing overtakes a failed one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

import tidegate as tg
from tidegate.errors import BatchFailed, NeverAwaited, Unavailable
from tidegate.lists import Part, write_lists
from tidegate.policy import Again, Policy, decide
from tidegate.records import Tries


def deliver(parts: Sequence[Part], *sinks: Callable[[list[object]], object]) -> list[tuple[int, list[object]]]:
    """Do what a pool does; return every call that was made."""
    made = []
    calls = write_lists(parts, len(sinks))
    call = next(calls, None)
    while call is not None:
        number, items = call
        values = [value for _, _, value in items]
        made.append((number, values))
        answer: object
        try:
            answer = sinks[number](values)
        except BaseException as error:  # noqa: BLE001  # what a pool does
            answer = error
        try:
            call = calls.send(answer)
        except StopIteration:
            call = None
    return made


def records(*values: str, queues: Callable[[int], object] = lambda place: place) -> list[Part]:
    return [Part(queues(place), [(0, value)]) for place, value in enumerate(values)]


def take(_values: list[object]) -> None:
    return None


def refuse(bad: set[str]) -> Callable[[list[object]], None]:
    def write(values: list[object]) -> None:
        if bad & set(values):
            raise ValueError("something in here")

    return write


def test_a_list_that_is_taken_is_one_call() -> None:
    parts = records("a", "b", "c")
    assert deliver(parts, take) == [(0, ["a", "b", "c"])]
    assert all(part.done == {(0, 0)} for part in parts)


def test_a_list_that_fails_as_a_whole_is_halved_until_the_culprit_stands_alone() -> None:
    parts = records(*"abcdefgh")
    made = deliver(parts, refuse({"f"}))
    assert [part.error is not None for part in parts] == [value == "f" for value in "abcdefgh"]
    assert [values for _, values in made] == [
        list("abcdefgh"), list("abcd"), list("efgh"), list("ef"), list("e"), list("f"), list("gh"),
    ]  # fmt: skip
    assert all(part.done == {(0, 0)} for part in parts if part.error is None)


@pytest.mark.parametrize("answer", ["list", "raised"])
def test_a_sink_may_answer_for_each_value(answer: str) -> None:
    parts = records("a", "b", "c")
    wrong = KeyError("b")

    def write(_values: list[object]) -> object:
        if answer == "raised":
            raise BatchFailed({1: wrong})
        return [None, wrong, None]

    assert len(deliver(parts, write)) == 1
    assert [part.error for part in parts] == [None, wrong, None]


def test_a_sink_that_is_away_is_away_for_the_whole_list() -> None:
    parts = records("a", "b")

    def write(_values: list[object]) -> None:
        raise Unavailable("away")

    assert len(deliver(parts, write)) == 1
    assert all(isinstance(part.error, Unavailable) for part in parts)


def test_the_second_sink_gets_what_the_first_took_and_only_what_it_does_not_have() -> None:
    parts = records("a", "b", "c")
    parts[2].before = frozenset({(0, 1)})
    made = deliver(parts, refuse({"b"}), take)
    assert made[-1] == (1, ["a"])
    assert (parts[1].sink, parts[1].done) == (0, set())


def test_children_of_one_record_are_never_parted() -> None:
    parts = [Part(1, [(0, "a"), (1, "b"), (2, "c")]), Part(2, [(0, "d")])]
    made = deliver(parts, refuse({"d"}))
    assert [values for _, values in made] == [["a", "b", "c", "d"], ["a", "b", "c"], ["d"]]


@pytest.mark.parametrize("seed", range(200))
def test_nothing_overtakes_a_failed_record_of_its_queue(seed: int) -> None:
    chance = random.Random(seed)
    values = [f"v{place}" for place in range(chance.randint(1, 20))]
    keys = [chance.randint(0, 3) for _ in values]
    bad = {value for value in values if chance.random() < 0.2}
    parts = records(*values, queues=lambda place: keys[place])
    delivered: list[str] = []

    def write(given: list[object]) -> None:
        refuse(bad)(given)
        delivered.extend(map(str, given))

    deliver(parts, write)
    for place, (value, part) in enumerate(zip(values, parts, strict=True)):
        earlier_failed = any(parts[other].error for other in range(place) if keys[other] == keys[place])
        assert (value in delivered) == (value not in bad and not earlier_failed)
        assert part.is_begun == (not earlier_failed)
        assert bool(part.error) == (value in bad and not earlier_failed)
    assert len(delivered) == len(set(delivered)), "nothing is delivered twice"


@pytest.mark.parametrize("answer", [[None, KeyError("b")], BatchFailed({99: KeyError("b")})])
def test_an_answer_that_does_not_fit_the_list_takes_nothing_for_granted(answer: object) -> None:
    parts = records("a", "b", "c")

    def write(_values: list[object]) -> object:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    assert len(deliver(parts, write)) == 1
    assert [type(part.error) for part in parts] == [ValueError] * 3


def test_what_stands_behind_a_failed_record_goes_to_no_further_sink() -> None:
    parts = records("a", "b", "c", queues=lambda place: place % 2)

    def answer(values: list[object]) -> list[Exception | None]:
        return [ValueError("not this") if value == "a" else None for value in values]

    assert deliver(parts, answer, take) == [(0, ["a", "b", "c"]), (1, ["b"])]
    assert [part.is_begun for part in parts] == [True, True, False]
    assert parts[2].done == {(0, 0)}


def test_a_failure_that_is_no_error_fails_the_list() -> None:
    parts = records("a", "b")
    deliver(parts, lambda _: BatchFailed({1: None}))  # type: ignore[dict-item]  # users do
    assert all(isinstance(part.error, ValueError) for part in parts)


class OurBatchFailed(BatchFailed):
    def __init__(self, text: str) -> None:  # users forget the other `__init__`
        Exception.__init__(self, text)


class OurUnavailable(Unavailable):
    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)


def test_a_batch_failed_of_a_users_own_that_does_not_say_which_is_halved_down_to_the_culprit() -> None:
    parts = records("a", "b", "c", "d")

    def write(values: list[object]) -> None:
        if "c" in values:
            raise OurBatchFailed("something in here")

    deliver(parts, write)
    assert [type(part.error) for part in parts] == [type(None), type(None), OurBatchFailed, type(None)]


def test_an_unavailable_of_a_users_own_that_asks_for_no_time_is_waited_for() -> None:
    parts = records("a", "b")

    def write(_values: list[object]) -> None:
        raise OurUnavailable("away")

    assert len(deliver(parts, write)) == 1
    error = parts[0].error
    assert isinstance(error, OurUnavailable)
    row = Policy().with_row((tg.hold(),)).row_for(type(error))
    verdict = decide(row, error, Tries(), waited=0.0, others_go_on=False, jitter=0.0)
    assert isinstance(verdict, Again)
    assert verdict.is_hold


def test_a_sink_that_never_does_its_work_is_not_asked_again_with_half_of_the_list() -> None:
    def write(_values: list[object]) -> None:
        raise NeverAwaited("a plain function returned a coroutine", "await it")

    assert len(deliver(records("a", "b", "c", "d"), write)) == 1


def test_an_answer_that_does_not_fit_is_told_by_place_and_type_not_with_what_values_may_say() -> None:
    parts = records("a", "b")
    deliver(parts, lambda _: BatchFailed({7: KeyError("secret")}))
    assert "{7: 'KeyError'}" in str(parts[0].error)
    assert "secret" not in str(parts[0].error)
