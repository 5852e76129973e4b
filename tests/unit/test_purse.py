"""Permits: never more than the rate, whatever rounds do; what is not used comes back."""

from __future__ import annotations

import random

import pytest

from tidegate.engine.purse import Purse, Turnstile


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
            rounds[number] = [purse.open(number, now), 0]
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
    spent = granted = purse.open(1, 0.0)
    purse.open(2, 0.0)  # another lane, with nothing to do
    for turn in range(1, 1001):
        granted = purse.top_up(turn * 0.05).get(1, granted)
        spent = granted
        purse.note_spent(1, spent)
    assert spent == pytest.approx(5000, rel=0.02)


def test_what_a_round_did_not_use_is_there_for_the_next() -> None:
    purse = Purse(10.0, 1.0, 0.0)
    assert purse.open(1, 10.0) == 10
    assert not purse.has_some(10.0)
    purse.close(1, spent=4)
    assert purse.open(2, 10.0) == 6
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
