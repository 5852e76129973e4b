"""What counts as lost, how many records that is, and where each policy goes on: one table."""

from __future__ import annotations

import pytest

from tidegate.engine.lost import Log, Policy, Stood, find_loss, records_lost
from tidegate.records import Partition, PlannedRound, Position

A = Partition("t", 0)
ALL: tuple[Policy, ...] = ("stop", "earliest", "latest")

CASES = [
    # stood                                   log                  policy      count  resume  because
    (Stood(Position(5), "x", 9), Log("x", 5, 9), "stop", "no loss", None, "the mark is the log's start"),
    (Stood(Position(9), "x", 9), Log("x", 0, 9), "stop", "no loss", None, "the mark is the log's end"),
    (Stood(Position(5), None), Log("x", 0, 9), "stop", "no loss", None, "a foreign commit inside the log is believed"),
    (Stood(Position(2), "x"), Log("x", 5, 9), "stop", 3, None, "retention took three"),
    (Stood(Position(2), "x"), Log("x", 5, 9), "earliest", 3, 5, "on with what is there"),
    (Stood(Position(2), "x"), Log("x", 5, 9), "latest", 7, 9, "latest passes what is there too"),
    (Stood(Position(2, ((3, 5),)), "x"), Log("x", 5, 9), "stop", 1, None, "3 and 4 were settled ahead"),
    (Stood(Position(2, ((2, 5),)), "x"), Log("x", 5, 9), "stop", 0, 5, "all that went was settled ahead: no loss"),
    (Stood(Position(5), "x", 7), Log("y", 0, 2), "stop", 2, None, "made anew, shorter: 5 and 6 were there"),
    (Stood(Position(5), "x", 7), Log("y", 0, 2), "earliest", 2, 0, "the new log from its beginning"),
    (Stood(Position(5), "x", 7), Log("y", 0, 9), "latest", 11, 9, "made anew, longer: nine more are passed"),
    (Stood(Position(5), "x"), Log("y", 0, 9), "earliest", None, 0, "nobody saw where the old log ended"),
    (Stood(Position(5), "x", 7), Log("x", 0, 3), "earliest", 2, 0, "cut off: the same topic ends before the mark"),
    (Stood(Position(5), None), Log("x", 0, 3), "stop", None, None, "a foreign commit beyond the end"),
    (Stood(Position(2, ((3, 9),)), "x"), Log("x", 0, 5), "stop", 0, 2, "cut off where all was settled ahead: no loss"),
    (Stood(Position(2, ((3, 5), (8, 9))), "x"), Log("x", 0, 5), "stop", 3, None, "cut off: 5 to 7 were not settled"),
    (Stood(Position(2, ((3, 5), (8, 9))), "x"), Log("x", 0, 5), "earliest", 3, 2, "2 is still to be had"),
    (Stood(Position(2, ((3, 5), (8, 9))), "x"), Log("x", 0, 5), "latest", 4, 5, "latest passes 2 as well"),
    (Stood(Position(2, ((3, 5), (8, 9))), "x"), Log("x", 3, 5), "earliest", 4, 3, "cut off at both ends"),
]


@pytest.mark.parametrize(("stood", "log", "policy", "count", "resume", "because"), CASES, ids=[row[5] for row in CASES])
def test_what_is_lost_and_where_it_goes_on(
    stood: Stood, log: Log, policy: Policy, count: int | str | None, resume: int | None, because: str
) -> None:
    loss = find_loss(A, stood, log, policy)
    if count == "no loss":
        assert loss is None, because
        return
    assert loss is not None, because
    assert loss.count == count, because
    assert (None if loss.resume is None else loss.resume.mark) == resume, because


def test_what_was_settled_ahead_is_kept_when_retention_moves_the_mark() -> None:
    done = {4: frozenset({(0, 0)}), 8: frozenset({(0, 0)})}
    loss = find_loss(A, Stood(Position(2, ((4, 7), (8, 9)), done), "x"), Log("x", 5, 20), "earliest")
    assert loss is not None
    assert loss.resume == Position(5, ((5, 7), (8, 9)), {8: frozenset({(0, 0)})})


def test_what_was_settled_ahead_in_a_tail_that_is_gone_is_not_believed_of_what_comes_there() -> None:
    done = {2: frozenset({(0, 0)}), 6: frozenset({(0, 0)})}
    loss = find_loss(A, Stood(Position(2, ((3, 4), (4, 9)), done, replay=3), "x"), Log("x", 0, 5), "stop")
    assert loss is not None
    assert loss.resume == Position(2, ((3, 4), (4, 5)), {2: frozenset({(0, 0)})}, replay=3)


@pytest.mark.parametrize("topic_id", ["x", "y"])
def test_which_round_was_finished_last_stays_known(topic_id: str) -> None:
    loss = find_loss(A, Stood(Position(2, replay=3, finished="7-ab"), "x", 9), Log(topic_id, 5, 20), "earliest")
    assert loss is not None
    assert loss.resume is not None
    assert (loss.resume.replay, loss.resume.finished) == (3, "7-ab")


@pytest.mark.parametrize(("beginning", "is_kept"), [(5, True), (8, False)])
def test_what_is_left_of_a_planned_round_keeps_its_name(beginning: int, is_kept: bool) -> None:
    planned = PlannedRound("7-ab", 8, (A,))
    loss = find_loss(A, Stood(Position(2, planned=planned), "x"), Log("x", beginning, 20), "earliest")
    assert loss is not None
    assert loss.resume == Position(beginning, planned=planned if is_kept else None)


@pytest.mark.parametrize("policy", ALL)
def test_nothing_of_an_old_log_is_believed_in_a_new_one(policy: Policy) -> None:
    loss = find_loss(A, Stood(Position(2, ((4, 7),)), "x", 9), Log("y", 0, 20), policy)
    assert loss is not None
    assert loss.resume is None or loss.resume.ahead == ()


def test_the_sentence_names_the_number_and_the_error_the_cure() -> None:
    loss = find_loss(A, Stood(Position(5), "x"), Log("y", 0, 9), "stop")
    assert loss is not None
    assert "an unknown number of records is lost" in loss.sentence
    assert 'lost="earliest"' in records_lost([loss]).cure
    one = find_loss(A, Stood(Position(5), "x"), Log("x", 6, 9), "stop")
    assert one is not None
    assert "1 record is lost" in one.sentence
