"""Partitions that share a lane: who waits its turn, or for a sink that is away, does not count as standing still."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.test_board import A, B, answer, board_with, report
from tidegate.engine.board import Board
from tidegate.engine.watchdog import Watchdog
from tidegate.engine.wording import replaced
from tidegate.records import Lease, Open, Outcome, Partition, Tries

STALL_SECONDS = 90.0
LOOK_SECONDS = 3.0
END = 1000
SEVERAL = tuple(Partition("t", number) for number in range(8))


class Shift:
    """A board and its watchdog, in virtual time. What its rounds do is told by the tests."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.now = 0.0
        self.replaced: list[tuple[float, Partition]] = []
        self.hopeless: list[tuple[float, Partition]] = []
        self.cancelled: list[Lease] = []
        self.served: set[Partition] = set()
        self._watchdog = Watchdog(STALL_SECONDS)
        self._began: dict[int, float] = {}

    def pass_time(self, seconds: float, round_seconds: float, work: Callable[[Lease], Outcome | None]) -> None:
        """Let rounds of this length begin and end; one without an outcome hangs."""
        until = self.now + seconds
        while self.now < until and not self.hopeless:
            self._end_rounds(round_seconds, work)
            for lease in self.board.leases(self.now):
                self._began[lease.round] = self.now
            self._look()
            self.now += LOOK_SECONDS

    def _end_rounds(self, round_seconds: float, work: Callable[[Lease], Outcome | None]) -> None:
        for lease in self.board.flying():
            outcome = work(lease) if self.now - self._began[lease.round] >= round_seconds else None
            if outcome is not None:
                self.board.accept(outcome, self.now)
                self.served |= {item.partition for item in lease.partitions}

    def _look(self) -> None:
        ends = dict.fromkeys(self.board.owned, END)
        verdicts = self._watchdog.look(self.board.workable_marks(self.now), ends, self.now, self.board.lives)
        self.replaced += [(self.now, one) for one in verdicts.replace]
        self.hopeless += [(self.now, one) for one in verdicts.hopeless]
        for lease, _ in self.board.blocking(verdicts.replace):
            self.cancelled.append(lease)
            self.board.forget_round(lease.lane, lease.round)


def careful_board(*partitions: Partition) -> Board:
    """Return a board of one lane whose workers died, so that each partition goes alone."""
    board = board_with(*partitions, lanes=1)
    for _ in range(2):
        [lease] = board.leases()
        board.bury(lease.lane, lease.round, "killed")
    return board


def settles_one(lease: Lease) -> Outcome:
    return answer(lease, {item.partition: item.position.mark + 1 for item in lease.partitions})


def hangs(_: Lease) -> None:
    return None


AWAY_SECONDS = 1.0


def finds_its_sink_away(lease: Lease) -> Outcome:
    first, *others = answer(lease, {}).partitions
    away = (Open(first.position.mark, Tries(unavailable=1), wait=AWAY_SECONDS),)
    return Outcome(lease.lane, lease.round, (replace(first, open=away, parked=AWAY_SECONDS), *others))


def test_partitions_that_take_turns_in_a_lane_are_not_stalled_however_long_a_turn_of_all_takes() -> None:
    shift = Shift(careful_board(*SEVERAL))
    round_seconds = 30.0
    assert round_seconds * len(SEVERAL) > 2 * STALL_SECONDS, "else nothing is proved"
    shift.pass_time(1200, round_seconds, settles_one)
    assert (shift.replaced, shift.hopeless) == ([], [])
    assert shift.served == set(SEVERAL)


def test_a_lane_that_hangs_is_replaced_and_then_ends_the_run_in_due_time() -> None:
    shift = Shift(careful_board(*SEVERAL))
    shift.pass_time(100, 30.0, settles_one)
    hung_at = shift.now
    shift.pass_time(1000, 30.0, hangs)
    first, last = shift.replaced[0][0], shift.hopeless[0][0]
    assert hung_at < first <= hung_at + STALL_SECONDS + LOOK_SECONDS
    assert last <= first + STALL_SECONDS + LOOK_SECONDS
    assert shift.cancelled


def test_a_lane_that_hangs_once_is_replaced_and_goes_on() -> None:
    shift = Shift(careful_board(*SEVERAL))
    shift.pass_time(100, 30.0, settles_one)
    [hung] = shift.board.flying()
    shift.pass_time(600, 30.0, lambda lease: None if lease.round == hung.round else settles_one(lease))
    assert shift.cancelled == [hung]
    assert shift.hopeless == []


def test_a_lane_is_replaced_for_those_that_wait_for_it_too() -> None:
    board = careful_board(A, B)
    [lease] = board.leases()
    [held] = [item.partition for item in lease.partitions]
    [waits] = {A, B} - {held}
    assert board.blocking([waits]) == [(lease, [waits])]
    assert board.blocking([held]) == [(lease, [held])]
    assert replaced(lease, [waits]).startswith(f"{waits} stand")


def test_the_round_of_another_lane_is_not_blamed() -> None:
    board = board_with(A, B, lanes=2)
    leases = {item.partition: lease for lease in board.leases() for item in lease.partitions}
    assert board.blocking([A]) == [(leases[A], [A])]


@pytest.mark.parametrize("is_live", [False, True])
def test_an_outage_that_is_held_never_ends_the_run_for_those_that_wait_behind_it(is_live: bool) -> None:
    shift = Shift(board_with(A, B, lanes=1))
    numbers = iter(range(1, 10_000))

    def work(lease: Lease) -> Outcome | None:
        away = finds_its_sink_away(lease)
        if not is_live:
            return away
        shift.board.hear(replace(away, number=next(numbers)), shift.now)
        return None  # it goes on for a minute and more

    shift.pass_time(20 * STALL_SECONDS, 3.0, work)
    assert (shift.replaced, shift.hopeless) == ([], [])


def test_a_lane_whose_sink_is_back_counts_as_stalled_again() -> None:
    shift = Shift(board_with(A, B, lanes=1))
    shift.pass_time(5 * STALL_SECONDS, 3.0, finds_its_sink_away)
    shift.pass_time(30, 3.0, settles_one)
    back_at = shift.now
    shift.pass_time(1000, 3.0, hangs)
    assert shift.replaced[0][0] <= back_at + STALL_SECONDS + 2 * LOOK_SECONDS
    assert shift.hopeless


@pytest.mark.parametrize("partitions", [(A,), (A, B)], ids=["alone", "with another"])
def test_a_worker_that_freezes_while_its_sink_is_away_is_noticed(partitions: tuple[Partition, ...]) -> None:
    shift = Shift(board_with(*partitions, lanes=1))
    numbers = iter(range(1, 10_000))

    def tell(lease: Lease) -> None:
        shift.board.hear(replace(finds_its_sink_away(lease), number=next(numbers)), shift.now)

    shift.pass_time(5 * STALL_SECONDS, 3.0, tell)
    assert shift.replaced == []
    frozen_at = shift.now
    shift.pass_time(3 * STALL_SECONDS, 3.0, hangs)
    assert shift.replaced
    assert frozen_at < shift.replaced[0][0] <= frozen_at + STALL_SECONDS + AWAY_SECONDS + 2 * LOOK_SECONDS


def test_another_lane_is_watched_while_one_waits_for_its_sink() -> None:
    board = board_with(A, B, lanes=2)
    first, _ = board.leases()
    [held] = [item.partition for item in first.partitions]
    board.hear(replace(finds_its_sink_away(first), number=1))
    assert set(board.workable_marks(0.0)) == {A, B} - {held}


def test_a_record_that_is_tried_again_keeps_its_own_partition_alone_from_being_watched() -> None:
    board = board_with(A, B, lanes=1)
    [lease] = board.leases()
    told = report(lease, {}, 1)
    failed = (Open(0, Tries(failed=1), wait=5.0),)
    of_a = tuple(replace(one, open=failed) if one.partition == A else one for one in told.partitions)
    board.hear(replace(told, partitions=of_a))
    assert set(board.workable_marks(0.0)) == {B}


def fails_again(tries: int, then: str = "") -> Callable[[Lease], Outcome]:
    def tell(lease: Lease) -> Outcome:
        told = answer(lease, {})
        known = (Open(0, Tries(failed=tries), wait=5.0, then=then),)
        return replace(told, partitions=tuple(replace(one, open=known) for one in told.partitions))

    return tell


def test_a_worker_that_freezes_with_a_record_that_is_to_be_tried_again_is_noticed() -> None:
    shift = Shift(board_with(A, lanes=1))
    numbers = iter(range(1, 10_000))

    def tell(lease: Lease) -> None:
        number = next(numbers)
        if number % 20 == 0:  # an attempt may take a minute
            shift.board.hear(replace(fails_again(number)(lease), number=number), shift.now)

    shift.pass_time(10 * STALL_SECONDS, 3.0, tell)
    assert (shift.replaced, shift.hopeless) == ([], [])
    frozen_at = shift.now
    shift.pass_time(3 * STALL_SECONDS, 3.0, hangs)
    assert shift.replaced
    assert frozen_at < shift.replaced[0][0] <= frozen_at + STALL_SECONDS + 5.0 + 2 * LOOK_SECONDS


def test_a_copy_that_kafka_does_not_take_is_waited_for_without_a_word() -> None:
    shift = Shift(board_with(A, lanes=1))

    def tell(lease: Lease) -> None:
        shift.board.hear(replace(fails_again(1, "t.retry")(lease), number=1), shift.now)

    shift.pass_time(10 * STALL_SECONDS, 3.0, tell)
    assert (shift.replaced, shift.hopeless) == ([], [])
