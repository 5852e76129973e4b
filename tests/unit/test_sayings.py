"""What programs say of themselves: which of it excuses a record that runs again, and where."""

from __future__ import annotations

import json

import pytest

from tidegate.records import Partition
from tidegate.testing import Fault
from tidegate.testing.sayings import losses_without_cause, spans_of_causes, told_faults

A, B = Partition("a.b-c", 0), Partition("other", 11)
HALF_PAST = 1_800_000_000_000


def line(action: str, message: str, at_ms: int = 0) -> str:
    seconds, ms = divmod(HALF_PAST + at_ms, 1000)
    assert seconds == HALF_PAST // 1000 + at_ms // 1000
    minutes, left = divmod(at_ms // 1000, 60)
    time = f"2027-01-15T08:{minutes:02}:{left:02}.{ms:03}+00:00"
    return json.dumps({"time": time, "level": "WARNING", "logger": "t", "message": message, "action": action})


LOST = line("lost", "partitions lost: a.b-c[0], other[11]", 5_000)
CANCELLED = line("cancelled", "not finished in time: other[11]", 5_000)
ALWAYS = [(0, 10**15)]


def test_what_a_program_says_excuses_the_partitions_that_it_names() -> None:
    err = "\n".join(["Traceback", LOST, line("gained", "partitions gained: other[1]"), CANCELLED, CANCELLED[:40]])

    assert told_faults(err, ALWAYS) == [
        Fault("partitions_lost", HALF_PAST + 5_000, lasts_ms=25_000, partitions=(A, B)),
        Fault("stop_budget_over", HALF_PAST + 5_000, lasts_ms=4_000, partitions=(B,)),
    ]


def test_a_loss_of_nothing_excuses_nothing_and_is_no_surprise() -> None:
    err = line("lost", "partitions lost: none")

    assert told_faults(err, ALWAYS) == []
    assert losses_without_cause(err, []) == []


CASES = [
    # caused, in seconds before the loss   has cause   because
    ((10, 0), True, "it came while the fault lasted"),
    ((0, 0), True, "it came at once"),
    ((100, 89), True, "a member may learn of it late"),
    ((100, 91), False, "so late it is not learned any more"),
    ((-1, -2), False, "the fault came later"),
]


@pytest.mark.parametrize(("before", "has_cause", "because"), CASES)
def test_a_loss_counts_as_caused_during_a_fault_and_a_while_after(
    before: tuple[int, int], has_cause: bool, because: str
) -> None:
    at_ms = HALF_PAST + 5_000
    causes = [(at_ms - before[0] * 1000, at_ms - before[1] * 1000)]

    assert bool(told_faults(LOST, causes)) == has_cause, because
    assert [one.at_ms for one in losses_without_cause(LOST, causes)] == ([] if has_cause else [at_ms]), because


def test_a_loss_without_a_cause_excuses_nothing_but_a_cancelled_round_does() -> None:
    err = f"{LOST}\n{CANCELLED}"

    assert [one.kind for one in told_faults(err, [])] == ["stop_budget_over"]
    assert [one.message for one in losses_without_cause(err, [])] == ["partitions lost: a.b-c[0], other[11]"]


def test_a_worker_that_was_killed_costs_nobody_its_partitions() -> None:
    noted = [Fault("worker_killed", 5, worker=3), Fault("broker_killed", 7, lasts_ms=15), Fault("driver_killed", 9)]

    assert spans_of_causes(noted) == [(7, 22), (9, 9)]
