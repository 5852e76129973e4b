"""Schedules come from a seed, and faults are data."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from tidegate.errors import SettingsError
from tidegate.testing import EVERY_FAULT, EVERY_FAULT_OF_NODES, Due, KillDriver, PlannedFault, Schedule
from tidegate.testing import attack as attacking


def test_the_same_seed_gives_the_same_schedule_and_another_one_another() -> None:
    first = Schedule.random(7, 300, EVERY_FAULT)

    assert Schedule.random(7, 300, EVERY_FAULT) == first
    assert Schedule.random(8, 300, EVERY_FAULT).due != first.due


def test_a_seed_means_the_same_schedule_in_every_version() -> None:
    assert str(Schedule.random(1, 12, [KillDriver()], every=4)) == (
        "seed 1, 12 s, 4 faults\n"
        "    0.5 s  kill driver\n    4.5 s  kill driver\n    7.7 s  kill driver\n    8.7 s  kill driver"
    )


def test_faults_come_in_time_and_in_order_and_every_kind_before_any_comes_again() -> None:
    schedule = Schedule.random(3, 200, EVERY_FAULT, every=2)
    times = [due.at_seconds for due in schedule.due]

    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] < 200
    counts = Counter(type(due.fault) for due in schedule.due)
    assert set(counts) == {type(fault) for fault in EVERY_FAULT}
    assert max(counts.values()) - min(counts.values()) <= 1
    assert all(0 <= due.draw <= 1 for due in schedule.due)


@pytest.mark.parametrize(("seconds", "faults"), [(0, [KillDriver()]), (10, [])])
def test_a_schedule_without_time_or_faults_is_refused(seconds: float, faults: list[PlannedFault]) -> None:
    with pytest.raises(SettingsError, match="needs faults, and time"):
        Schedule.random(1, seconds, faults)


def test_every_fault_is_frozen_and_has_a_name_of_its_own() -> None:
    kinds = [fault.kind for fault in EVERY_FAULT_OF_NODES]

    assert len(set(kinds)) == len(kinds)
    # By name: a class with slots is made twice, and both are there.
    names = {type(fault).__name__ for fault in EVERY_FAULT_OF_NODES}
    assert {one.__name__ for one in PlannedFault.__subclasses__()} == names
    for fault in EVERY_FAULT_OF_NODES:
        with pytest.raises((dataclasses.FrozenInstanceError, TypeError, AttributeError)):
            fault.seconds = 1  # type: ignore[attr-defined]


def test_a_fault_that_no_pipeline_can_have_is_noted_as_not_happened() -> None:
    said: list[str] = []
    attack = attacking.Attack(None, [], said.append)  # type: ignore[arg-type]  # nothing is asked of the stage
    struck = attack.strike(Due(0, KillDriver(), 0.5))

    assert not struck.happened
    assert struck.told == "no pipeline here can have it"
    assert said == ["kill driver : no pipeline here can have it"]
