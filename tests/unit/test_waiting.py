"""Records that wait, and a lane that holds: without a broker and without a clock."""

from __future__ import annotations

from tidegate.engine.holding import Holding
from tidegate.engine.waiting import Waiting
from tidegate.records import Partition

P, Q = Partition("t", 0), Partition("t", 1)


def test_what_waits_comes_back_in_its_order_when_it_is_due() -> None:
    waiting: Waiting[str] = Waiting()
    waiting.put((P, b"key"), "first", until=10)
    waiting.append((P, b"key"), "second")
    waiting.put((P, b"other"), "third", until=5)
    assert waiting.blocks(P, (P, b"key")) == (P, b"key")
    assert waiting.blocks(P, (P, b"new")) is None
    assert (waiting.next_due, waiting.count, waiting.length(P)) == (5, 3, 3)
    assert (waiting.first_due(P), waiting.first_due(Q)) == (5, None)
    waiting.start((Q, b"running"))
    assert waiting.first_due(Q) is None
    waiting.open((Q, b"running"))
    assert waiting.take_due(4) == []
    assert waiting.take_due(20) == ["third"]
    assert waiting.take_due(20) == ["first", "second"]
    assert (waiting.next_due, waiting.count, waiting.partitions, bool(waiting)) == (None, 0, set(), False)


def test_a_record_that_fails_again_stands_before_those_that_waited_behind_it() -> None:
    waiting: Waiting[str] = Waiting()
    waiting.put((P, None), "first", until=1)
    waiting.append((P, None), "second")
    first, *rest = waiting.take_due(1)
    waiting.put((P, None), first, until=2)
    for one in rest:
        waiting.append((P, None), one)
    assert waiting.take_due(2) == ["first", "second"]


def test_a_queue_that_was_begun_or_told_to_wait_for_longer_is_not_due_at_its_old_time() -> None:
    waiting: Waiting[str] = Waiting()
    waiting.put((P, b"begun"), "one", until=1)
    waiting.start((P, b"begun"))
    waiting.put((P, b"longer"), "two", until=2)
    waiting.put((P, b"longer"), "three", until=8)
    assert (waiting.next_due, waiting.take_due(7)) == (8, [])
    waiting.open((P, b"begun"))
    assert waiting.take_due(7) == ["one"]
    assert waiting.take_due(8) == ["three", "two"]
    assert waiting.next_due is None


def test_a_partition_that_waits_as_a_whole_blocks_all_its_keys() -> None:
    waiting: Waiting[str] = Waiting()
    waiting.put((P, None), "not due", until=9)
    assert waiting.blocks(P, (P, b"any")) == (P, None)
    assert waiting.blocks(Q, (Q, b"any")) is None
    assert (waiting.blocked_until(P), waiting.blocked_until(Q)) == (9, None)


def test_a_failed_partition_is_forgotten_with_all_that_waits_of_it() -> None:
    waiting: Waiting[str] = Waiting()
    waiting.put((P, 1), "one", until=1)
    waiting.put((P, 2), "two", until=1)
    waiting.put((Q, 1), "other", until=1)
    waiting.drop([P])
    assert waiting.partitions == {Q}
    assert waiting.take_due(1) == ["other"]


def test_a_hold_lasts_until_a_sink_takes_a_record() -> None:
    holding = Holding([0, 0], (), 0)
    holding.hold(10)
    holding.try_again()
    assert (holding.is_on, holding.is_probing) == (False, True)
    holding.hold(20)
    assert (holding.is_on, holding.failed_probes) == (True, 2)
    holding.end()
    assert (holding.is_on, holding.is_probing) == (False, False)


def test_what_sinks_took_in_other_lanes_counts_beside_our_own_and_once() -> None:
    taken = [0, 0]
    holding = Holding(taken, (5, 1, 6), 0)
    taken[0] += 1
    assert (holding.known(0), holding.known(1), holding.known(-1)) == (6, 1, 7)
    holding.learn([7, 1, 8])
    assert (holding.known(0), holding.known(-1)) == (8, 9)
    holding.learn([])
    assert holding.known(0) == 8
    assert holding.proofs == [1, 0, 1]


def test_those_behind_a_running_record_come_one_by_one_and_the_rest_may_be_tried_later() -> None:
    waiting: Waiting[str] = Waiting(len)
    queue = (P, None)
    waiting.start(queue)
    for one in ("two", "three", "four"):
        waiting.append(queue, one)
    assert (waiting.next_due, waiting.bytes) == (None, 12)
    assert waiting.take_next(queue) == "two"
    assert waiting.blocks(P, queue) == queue, "it stays closed while the next runs"
    waiting.push(queue, "zero")
    waiting.open(queue)
    assert waiting.take_due(0.0) == ["zero", "three", "four"]
    assert (waiting.count, waiting.bytes, waiting.blocks(P, queue)) == (0, 0, None)
    waiting.start(queue)
    waiting.open(queue)
    assert not waiting
    waiting.push(queue, "of a partition that was dropped")
    assert not waiting


def test_copies_that_are_not_due_wait_in_their_order_whichever_comes_last() -> None:
    waiting: Waiting[int] = Waiting()
    firsts = []
    for at in (5, 2, 3, 9):
        firsts.append(waiting.put_before((P, None), at, float(10 * at), lambda one, at=at: one > at))  # type: ignore[misc]
    assert firsts == [True, True, False, False]
    assert (waiting.next_due, waiting.blocked_until(P), waiting.count) == (20.0, 20.0, 4)
    assert waiting.take_due(20.0) == [2, 3, 5, 9]
