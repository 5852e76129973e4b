"""Permits: never more than the rate, whatever rounds do; every lane gets its share; what is not used comes back."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

import pytest

from tidegate.engine.purse import Purse, Turnstile
from tidegate.records import Lease, Limits


@pytest.mark.parametrize("seed", range(50))
def test_no_schedule_of_rounds_begins_more_records_than_the_rate_allows(seed: int) -> None:
    chance = random.Random(seed)
    rate, lot_seconds = chance.choice([0.5, 3.0, 100.0, 5000.0]), chance.choice([0.25, 1.0])
    purse = Purse(rate, lot_seconds, 0.0)
    now, begun, number = 0.0, 0, 0
    rounds: dict[int, list[int]] = {}  # granted, spent
    for _ in range(500):
        now += chance.random() * 2 / rate
        if chance.random() < 0.1 or not rounds:
            number += 1
            rounds[number] = [purse.open(number % 3, number, now), 0]
        for one, granted in purse.top_up(now).items():
            rounds[one][0] = granted
        one = chance.choice(list(rounds))
        use = chance.randint(0, rounds[one][0] - rounds[one][1])
        rounds[one][1] += use
        begun += use
        if chance.random() < 0.5:
            purse.note_spent(one, rounds[one][1])
        if chance.random() < 0.1:
            purse.close(one, rounds.pop(one)[1] if chance.random() < 0.8 else None)
            rounds.pop(one, None)
        assert begun <= now * rate + max(1.0, rate * lot_seconds) + 1


def test_a_single_busy_round_gets_the_whole_rate() -> None:
    purse = Purse(100.0, 0.25, 0.0)
    spent = granted = purse.open(0, 1, 0.0)
    purse.open(1, 2, 0.0)  # another lane, with nothing to do
    purse.note_spent(1, spent)
    purse.note_spent(2, 0)
    for turn in range(1, 1001):
        granted = purse.top_up(turn * 0.05).get(1, granted)
        spent = granted
        purse.note_spent(1, spent)
    assert spent == pytest.approx(5000, rel=0.02)


def test_what_a_round_did_not_use_is_there_for_the_next() -> None:
    purse = Purse(10.0, 1.0, 0.0)
    assert purse.open(0, 1, 10.0) == 10
    assert not purse.has_some(10.0)
    purse.close(1, spent=4)
    assert purse.open(0, 2, 10.0) == 6
    purse.close(2, spent=None)
    assert not purse.has_some(10.0), "a dead round may have used all it had"


def test_a_turnstile_lets_records_through_evenly() -> None:
    turnstile = Turnstile(10.0, 3)
    assert turnstile.pass_one(5.0)
    assert turnstile.pass_one(5.0), "the gap counts from when the first could have passed"
    assert [turnstile.pass_one(at) for at in (5.05, 5.1, 5.15, 9.0)] == [False, True, False, False]
    assert turnstile.is_empty
    turnstile.grant(4)
    turnstile.grant(2)
    assert turnstile.pass_one(9.0)
    assert (turnstile.spent, turnstile.is_empty) == (4, True)


TURN_SECONDS = 0.05
Kind = Literal["live", "deaf", "plain"]
"""Rounds that hear of more permits; those of a live run whose workers cannot call; those of a run that is not live."""


@dataclass
class Lane:
    """A lane with more records than it may begin."""

    number: int
    round: int = 0
    granted: int = 0
    spent: int = 0
    ends: float = 0.0
    last_record: float = 0.0
    longest_wait: float = 0.0
    begun: int = 0

    def begin_record(self, now: float) -> None:
        self.longest_wait = max(self.longest_wait, now - self.last_record)
        self.last_record = now
        self.spent += 1
        self.begun += 1

    @property
    def is_starved(self) -> bool:
        return self.spent >= self.granted


class Works:
    """What the driver and its rounds do with a purse."""

    def __init__(self, kind: Kind, rate: float, lanes: int, chance: random.Random) -> None:
        self._kind, self._chance = kind, chance
        is_live = kind != "plain"
        self.purse = Purse(rate, 0.25 if is_live else 1.0, 0.0)
        self.lanes = [Lane(number) for number in range(lanes)]
        self._rounds = 0
        self._seconds = 60.0 if kind == "live" else 5.0

    def turn(self, now: float) -> None:
        self._end_rounds(now)
        if self._kind != "plain" or self.purse.has_some(now):
            self._lease(now)
        for number, granted in self.purse.top_up(now).items():
            assert self._kind == "live", "others would never hear of it"
            next(one for one in self.lanes if one.round == number).granted = granted
        for lane in self.lanes:
            if lane.round and not lane.is_starved:
                lane.begin_record(now)
            if lane.round and self._kind == "live" and self._chance.random() < 0.5:
                self.purse.note_spent(lane.round, lane.spent)

    def _end_rounds(self, now: float) -> None:
        for lane in self.lanes:
            # A starved round that hears of no more permits ends, as Spark's slowest job does, a little later.
            is_done = self._kind != "live" and lane.is_starved and self._chance.random() < 0.3
            if lane.round and (now >= lane.ends or is_done):
                self.purse.close(lane.round, lane.spent)
                lane.round = 0

    def _lease(self, now: float) -> None:
        idle = [Lease(one.number, 0, (), LIMITS) for one in self.lanes if not one.round]
        for lease in self.purse.in_turn(idle):
            self._rounds += 1
            lane = self.lanes[lease.lane]
            lane.round, lane.spent = self._rounds, 0
            lane.ends = now + self._seconds * (0.5 + self._chance.random() / 2)
            lane.granted = self.purse.open(lane.number, self._rounds, now)


LIMITS = Limits(5.0, 1.0, 3.0, 20.0)


@pytest.mark.parametrize("kind", ["live", "deaf", "plain"])
@pytest.mark.parametrize("rate", [0.2, 1.0, 3.0, 7.5, 100.0])
@pytest.mark.parametrize("lanes", [1, 2, 5, 8])
def test_every_lane_gets_its_share_of_a_rate_and_none_waits_for_ever(kind: Kind, rate: float, lanes: int) -> None:
    works = Works(kind, rate, lanes, random.Random(f"{kind} {rate} {lanes}"))
    seconds = max(120.0, 30 * lanes / rate)
    for turn in range(int(seconds / TURN_SECONDS)):
        now = turn * TURN_SECONDS
        works.turn(now)
        assert sum(one.begun for one in works.lanes) <= now * rate + max(1.0, rate) + 1
    waits = [max(one.longest_wait, now - one.last_record) for one in works.lanes]
    # Where none hears, chance has a part in who is leased when a permit is there.
    assert max(waits) <= works.purse.turn_seconds * (2 if kind == "deaf" else 1) + 1.0, "the watchdog counts on it"
    fair = sum(one.begun for one in works.lanes) / lanes
    assert min(one.begun for one in works.lanes) >= fair / 2
    assert fair * lanes >= 0.6 * min(rate, lanes / TURN_SECONDS) * seconds, "and the rate is used"


def test_what_is_granted_while_another_round_is_opened_is_told() -> None:
    purse = Purse(1.0, 0.25, 0.0)
    assert purse.open(0, 1, 0.0) == 1
    purse.note_spent(1, 1)
    purse.open(1, 2, 0.0)
    purse.note_spent(2, 0)
    assert purse.open(1, 3, 1.0) == 0, "it is the turn of the round before"
    assert purse.top_up(1.0) == {2: 1}
    assert purse.top_up(1.0) == {}, "once is enough"
    assert purse.top_up(2.0) == {1: 2}, "lane 0 comes after lane 1, and so again"


def test_what_was_granted_to_a_round_that_has_ended_meanwhile_is_not_told() -> None:
    purse = Purse(1.0, 0.25, 0.0)
    purse.open(0, 1, 0.0)
    purse.note_spent(1, 1)
    purse.open(1, 2, 0.5)
    purse.note_spent(2, 0)
    purse.open(2, 3, 1.0)
    purse.note_spent(3, 0)
    purse.close(2, 0)
    assert purse.top_up(1.0) == {3: 1}


def test_the_lane_whose_turn_was_longest_ago_is_leased_first() -> None:
    purse = Purse(1.0, 1.0, 0.0)
    leases = [Lease(lane, 0, (), LIMITS) for lane in range(3)]
    first: list[int] = []
    for number in range(1, 7):
        chosen = purse.in_turn(leases)[0]
        assert purse.open(chosen.lane, number, float(number)) == 1
        purse.close(number, 1)
        first.append(chosen.lane)
    assert first == [0, 1, 2, 0, 1, 2]
