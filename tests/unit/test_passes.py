"""What tells two passes of a record apart, where a table drops those that it knows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from tests.unit.test_dead_letters import LETTER
from tidegate.context import Message
from tidegate.copies import Copy, Origin, failed_again, read_headers
from tidegate.engine.attempts import LONGEST_PASS_ID, Attempt
from tidegate.kafka.admin import TopicInfo
from tidegate.kafka.writer import Ack
from tidegate.ops.dead_letters import FoundLetter
from tidegate.ops.redrive_writer import Pace, Sending, headers_back
from tidegate.records import Partition

NOTHING = cast("Message", None)


def copy_of(at_ms: int) -> Copy:
    first = Copy(Origin("orders", 0, 5, at_ms), "billing:orders:0:5")
    return failed_again(
        first, at_ms=at_ms, place="orders[0]:5", attempts=1, error_type="E", message="", traceback="", delay="1m",
        done=frozenset(), sinks="",
    )  # fmt: skip


def test_another_record_in_the_same_place_is_no_known_pass() -> None:
    """The topic was made anew, or the group was set back with Kafka's own tools: it fails there once more."""
    assert Attempt(NOTHING, copy_of(1_000)).pass_id != Attempt(NOTHING, copy_of(2_000)).pass_id
    assert Attempt(NOTHING, copy_of(1_000)).pass_id == Attempt(NOTHING, copy_of(1_000)).pass_id


def test_a_letter_that_is_sent_once_more_is_no_known_pass() -> None:
    def pass_of(*, was_redriven: bool) -> str | None:
        found = FoundLetter(replace(LETTER, was_redriven=was_redriven), copy_of(1_000), ())
        return Attempt(NOTHING, read_headers(headers_back(found, 2_000))).pass_id

    first = pass_of(was_redriven=False)
    assert (first, first == pass_of(was_redriven=True)) == (pass_of(was_redriven=False), False)


class Topic:
    """Takes what is written to it."""

    def __init__(self) -> None:
        self.passes: list[str | None] = []

    def send(
        self, topic: str, _value: object, _key: object, headers: Any, *, partition: int, on_ack: Callable[[Ack], None]
    ) -> None:
        self.passes.append(Attempt(NOTHING, read_headers(headers)).pass_id)
        on_ack(Ack(Partition(topic, partition), 0))

    def poll(self, _wait: float) -> None: ...


def test_two_letters_of_one_copy_that_was_sent_twice_are_one_pass_though_they_are_sent_once_more() -> None:
    """The second would have its effect, too: a kill between a copy's send and its delete from the outbox."""
    topic, info = Topic(), TopicInfo("billing.redrive", "id", 3, 1)
    sending = Sending(topic, info, info, Pace(None), None)  # type: ignore[arg-type]  # as much of a writer as it uses
    for place in (41, 42):
        sending.send(FoundLetter(replace(LETTER, offset=place, was_redriven=True), copy_of(1_000), ()))
        time.sleep(0.005)
    first, second = topic.passes
    assert first == second != Attempt(NOTHING, copy_of(1_000)).pass_id


def test_a_pass_has_a_short_name_whatever_somebody_wrote_into_the_topic() -> None:
    """A database's index takes 2,700 bytes."""

    def pass_of(stable_id: str) -> str:
        found = Attempt(NOTHING, replace(copy_of(1_000), stable_id=stable_id)).pass_id
        assert found is not None
        return found

    names = [pass_of("ü" * 5_000), pass_of("ü" * 5_001), pass_of("\ud800" * 5_000)]
    assert max(map(len, names)) <= LONGEST_PASS_ID
    assert len(set(names)) == 3
    longest = f"{'g' * 240}:{'t' * 249}:100000:{2**63}/12/3"
    assert pass_of(longest).startswith(longest), "ours stays readable"
