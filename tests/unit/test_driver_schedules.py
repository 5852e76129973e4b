"""The driver's loop in virtual time, under random faults: the laws hold, and a driver that lies is found out.

The driver, its board, committer, rewinder and finder of marks are the real ones, and so is the member; the broker, the
group and the rounds are simulated (`tests/simulation`). One seed is one schedule. See one: `python -m tests.simulation
SEED`, and `--shrink` to have it smaller.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.simulation.campaign import LOT, Summary, run_lot, run_many, run_one, shrink, story
from tests.simulation.lies import LIES
from tests.simulation.plan import Store, plan_of

SCHEDULES = int(os.environ.get("PROOF_DRIVER_SCHEDULES", "600"))
ENOUGH = 1000
"""Within so many schedules every lie shows; most do within a hundred."""


def ran(schedules: int, *, is_frames: bool = False, store: Store = "none") -> Summary:
    if schedules <= LOT:
        return run_lot(0, schedules, is_frames=is_frames, store=store)
    total = Summary()
    for lot in run_many(0, schedules, is_frames=is_frames, store=store):
        total.add(lot)
        if total.breaches:
            break
    return total


def tell_breaches(found: Summary, *, is_frames: bool = False, store: Store = "none") -> None:
    for seed, breaches in found.breaches.items():
        small = shrink(plan_of(seed, is_frames=is_frames, store=store))
        kind = " --frames" if is_frames else "" if store == "none" else f" --once {store}"
        command = f"python -m tests.simulation {seed} --shrink{kind}"
        pytest.fail(f"seed {seed}: {breaches[0]}\n{command}\n{story(small)}")


@pytest.mark.timeout(60 + SCHEDULES // 10)
def test_no_random_schedule_breaks_a_law() -> None:
    found = ran(SCHEDULES)
    tell_breaches(found)
    assert found.schedules == SCHEDULES
    per_schedule = {name: number / SCHEDULES for name, number in found.counts.items()}
    # That it was not idle: without these nothing is proved.
    for name, least in {
        "rounds": 5, "commits": 3, "settled": 3, "starts": 2, "worker died": 0.2, "rewinds": 0.08, "cancelled": 0.05,
        "killed": 0.05, "expelled": 0.05, "caught up": 0.1, "found the sink away": 0.2,
        "written to the retry topic": 0.1,
    }.items():  # fmt: skip
        assert per_schedule[name] > least, name


@pytest.mark.timeout(60 + SCHEDULES // 20)
def test_no_random_schedule_loses_or_doubles_a_record_of_a_dataframe() -> None:
    schedules = SCHEDULES // 4
    found = ran(schedules, is_frames=True)
    tell_breaches(found, is_frames=True)
    assert found.schedules == schedules
    assert found.counts["rounds"] > schedules
    assert found.counts["worker died"] > schedules / 10


@pytest.mark.parametrize(
    ("seed", "because"),
    [
        (71155863, "a member hears a generation late, and its commits are refused as of an old one"),
        (300408472, "an attempt at a record that retention took, and a mark has passed, comes to its end later"),
        (500008773, "a start at the beginning of a known topic is committed only after its first record has run"),
        (200247648, "a round is told to finish before its task has started, and hears it when it calls"),
    ],
)
def test_a_schedule_that_once_showed_a_breach_is_lawful(seed: int, because: str) -> None:
    # As it was when it showed it: seeds had neither yet.
    assert run_one(replace(plan_of(seed), rate=None, outages=(), delay=None, retry_partitions=0)).breaches == [], (
        because
    )


def test_a_round_that_begins_after_it_was_shut_out_shares_its_records_with_nobody() -> None:
    assert run_one(plan_of(90657, store="kafka")).breaches == []


@pytest.mark.parametrize(
    ("seed", "because"),
    [
        (1_200_006_968, "a copy lies in a transaction that has not ended"),
        (1_200_005_840, "a round that was shut out begins before the group is rewound, and commits after it"),
        (1_200_017_565, "a rewind is stored unheard, and a late round goes on from there"),
        (1_200_000_422, "an empty group is rewound while a transaction of before is on its way"),
    ],
)
def test_a_schedule_of_transactions_that_once_showed_a_breach_is_lawful(seed: int, because: str) -> None:
    assert run_one(plan_of(seed, store="kafka")).breaches == [], because


def test_a_pipeline_of_dataframes_whose_questions_take_a_minute_is_waited_for() -> None:
    assert run_one(plan_of(1_900_069_292, is_frames=True)).breaches == []


@pytest.mark.timeout(60 + SCHEDULES // 10)
def test_no_random_schedule_shows_an_effect_without_its_mark_or_a_mark_without_its_effects() -> None:
    schedules = SCHEDULES // 2
    found = ran(schedules, store="kafka")
    tell_breaches(found, store="kafka")
    assert found.schedules == schedules
    per_schedule = {name: number / schedules for name, number in found.counts.items()}
    for name, least in {
        "rounds": 5, "committed": 3, "settled": 3, "aborted": 0.6, "marks refused": 0.3, "fenced": 0.2,
        "timed out": 0.03, "worker died": 0.5, "cancelled": 0.1, "killed": 0.05, "rewinds": 0.08, "caught up": 0.1,
    }.items():  # fmt: skip
        assert per_schedule[name] > least, name
    # Workers that take turns at a lane do so without losing their rounds; it was 0.94.
    assert per_schedule["fenced"] < 0.65


@pytest.mark.parametrize("name", LIES)
def test_a_driver_that_lies_is_found_out(name: str) -> None:
    lie = LIES[name]
    found = run_lot(lie.first, ENOUGH, lie.made, lie.kinds, is_frames=lie.is_frames, store=lie.store, most_breaches=1)
    assert found.breaches, f"nobody noticed a driver that {name} in {found.schedules} schedules"


@pytest.mark.parametrize("store", ["none", "kafka"])
def test_a_seed_is_one_schedule(store: Store) -> None:
    first, second = (run_one(plan_of(11, store=store), is_tracing=True) for _ in range(2))
    assert first.trace == second.trace
    assert len(first.trace) > 10


def test_a_schedule_that_shows_a_breach_is_made_smaller_and_told() -> None:
    lie = LIES["gives back without a commit"]
    [seed] = run_lot(0, ENOUGH, lie.made, most_breaches=1).breaches
    plan = plan_of(seed)
    small = shrink(plan, lie.made)
    assert small.size < plan.size
    told = story(small, lie.made)
    assert "L3: " in told
    assert "committed t[" in told
