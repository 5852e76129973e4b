"""The board of a DataFrame pipeline: one planned round at a time, leased when all of it is ours and committed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.engine.frame_board import FrameBoard
from tidegate.engine.planning import after, plan
from tidegate.records import (
    Lease,
    Limits,
    Open,
    Outcome,
    Partition,
    PartitionOutcome,
    PlannedRound,
    Position,
    Tries,
)

A, B = Partition("t", 0), Partition("t", 1)
LIMITS = Limits(1, 1, 1, 1)


class Table:
    """A board with two partitions, and what the driver does to it."""

    def __init__(self, *positions: Position, ends: dict[Partition, int] | None = None, wanted: int = 2) -> None:
        self.board = FrameBoard(LIMITS, ends, lambda: [A, B][:wanted])
        self.epochs = self.board.gain([A, B][: len(positions)])
        for tp, position in zip([A, B], positions, strict=False):
            self.board.place(tp, self.epochs[tp], position, is_committed=True)

    def plan(self, *ends: int) -> bool:
        positions = {tp: one.position for tp, one in self.board.plannable.items()}
        wanted = {tp: end for tp, end in zip([A, B], ends, strict=False) if tp in positions}
        return bool(wanted) and self.board.plan(plan("g", positions, wanted, 7), self.epochs)

    def commit(self) -> None:
        self.board.note_committed(self.board.uncommitted())

    def lease(self) -> Lease:
        [lease] = self.board.leases()
        return lease

    def end(self, lease: Lease) -> None:
        parts = tuple(PartitionOutcome(one.partition, one.epoch, after(one.position)) for one in lease.partitions)
        self.board.accept(Outcome(lease.lane, lease.round, parts))

    @property
    def marks(self) -> list[int]:
        return list(self.board.marks.values())


def planned(end: int, id_: str = "7-ab", partitions: tuple[Partition, ...] = (A, B)) -> PlannedRound:
    return PlannedRound(id_, end, partitions)


def test_a_round_is_planned_then_committed_then_leased_then_finished() -> None:
    table = Table(Position(3), Position(0))
    assert table.board.leases() == [], "nothing is planned"
    assert table.plan(10, 5)
    assert table.board.leases() == [], "the broker does not have the plan yet"
    assert {tp: one.mark for (tp, _), one in table.board.uncommitted().items()} == {A: 3, B: 0}, "the mark is unchanged"
    table.commit()
    lease = table.lease()
    assert [one.position.planned.end for one in lease.partitions if one.position.planned] == [10, 5]
    assert table.board.leases() == [], "one at a time"
    assert table.board.plannable == {}, "and none is planned beside it"
    table.end(lease)
    assert table.marks == [10, 5]
    assert table.board.plannable == {}, "the marks are not committed yet"
    table.commit()
    assert set(table.board.plannable) == {A, B}


def test_a_plan_that_was_found_in_the_commits_is_leased_as_it_is() -> None:
    table = Table(Position(3, planned=planned(9)), Position(0, planned=planned(4)))
    assert table.board.plannable == {}
    assert {one.partition: one.position.planned for one in table.lease().partitions} == {A: planned(9), B: planned(4)}


def test_who_does_not_own_all_partitions_leases_none_and_plans_none() -> None:
    table = Table(Position(3, planned=planned(9)))
    assert table.board.missing == [B]
    assert table.board.leases() == []
    assert table.board.plannable == {}
    assert table.board.owns_first
    epochs = table.board.gain([B])
    assert table.board.place(B, epochs[B], Position(0, planned=planned(4)), is_committed=True)
    assert len(table.lease().partitions) == 2


def test_a_round_whose_commit_arrived_in_part_is_not_written_again() -> None:
    table = Table(Position(9, finished="7-ab"), Position(0, planned=planned(4)))
    assert table.board.leases() == []
    assert table.marks == [9, 4]
    assert {tp: one.finished for (tp, _), one in table.board.uncommitted().items()} == {B: "7-ab"}


def test_a_partition_that_was_rewound_leaves_the_round_and_the_other_repeats_its_own() -> None:
    table = Table(Position(0, replay=5), Position(0, planned=planned(4)))
    lease = table.lease()
    assert [one.partition for one in lease.partitions] == [B]
    table.end(lease)
    table.commit()
    assert set(table.board.plannable) == {A, B}


def test_of_two_planned_rounds_the_older_goes_first() -> None:
    table = Table(Position(0, planned=planned(4, "8-x", (A,))), Position(0, planned=planned(4, "7-x", (B,))))
    lease = table.lease()
    assert [one.partition for one in lease.partitions] == [B]
    table.end(lease)
    table.commit()
    assert [one.partition for one in table.lease().partitions] == [A]


@pytest.mark.parametrize("what", ["held", "doubted", "paused", "stopped", "closing"])
def test_nothing_is_begun_where_something_else_is_to_be_done_first(what: str) -> None:
    table = Table(Position(3, planned=planned(9)), Position(0, planned=planned(4)))
    match what:
        case "held":
            table.board.hold([A])
        case "doubted":
            table.board.doubt([A])
        case "paused":
            table.board.is_paused = True
        case "stopped":
            table.board.stop()
        case "closing":
            table.board.close([A])
    assert table.board.leases() == []


def test_a_round_that_failed_waits_and_keeps_its_tries() -> None:
    table = Table(Position(3, planned=planned(9)), Position(0, planned=planned(4)))
    lease = table.lease()
    open_ = Open(0, Tries(failed=1), 5.0)
    parts = tuple(
        PartitionOutcome(one.partition, one.epoch, one.position, open=(open_,), parked=5.0) for one in lease.partitions
    )
    table.board.accept(Outcome(lease.lane, lease.round, parts), now=100.0)
    assert table.board.leases(now=104.0) == []
    [again] = table.board.leases(now=105.5)
    assert [one.open[0].tries for one in again.partitions] == [Tries(failed=1)] * 2
    assert again.partitions[0].position.planned == planned(9)


def test_a_plan_is_refused_where_a_partition_has_moved_meanwhile() -> None:
    table = Table(Position(3), Position(0))
    ready = table.board.plannable
    made = plan("g", {tp: one.position for tp, one in ready.items()}, {A: 9, B: 5}, 7)
    assert table.board.reset(A, table.epochs[A], Position(1), 9)
    assert not table.board.plan(made, {tp: one.epoch for tp, one in ready.items()})
    assert all(one.position is not None and one.position.planned is None for one in table.board.owned.values())


def test_a_run_until_caught_up_ends_at_the_ends_that_it_began_with() -> None:
    table = Table(Position(0), Position(2), ends={A: 4, B: 2})
    assert {tp: one.until for tp, one in table.board.plannable.items()} == {A: 4}, "the second is there already"
    assert table.plan(4)
    table.commit()
    table.end(table.lease())
    table.commit()
    assert table.board.has_caught_up


def test_a_planned_round_is_done_whole_wherever_the_run_is_to_end() -> None:
    """The second is a topic of the group's own: its end is not known before the first has reached its own."""
    table = Table(Position(3, planned=planned(9)), Position(0, planned=planned(4)), ends={A: 9})
    assert table.board.owned[B].has_reached_end
    table.end(table.lease())
    assert table.marks == [9, 4]


def test_nothing_is_planned_while_a_partition_at_its_end_is_not_committed() -> None:
    table = Table(Position(0), Position(0), ends={A: 9, B: 4})
    assert table.plan(5, 4)
    table.commit()
    table.end(table.lease())
    first = {key: one for key, one in table.board.uncommitted().items() if key[0] == A}
    table.board.note_committed(first)
    assert table.board.owned[B].has_reached_end
    assert table.board.plannable == {}, "a crash after the next round would repeat this one for the second alone"
    table.commit()
    assert set(table.board.plannable) == {A}


def test_a_round_that_names_what_this_pipeline_does_not_read_waits_until_that_is_known_to_have_left_it() -> None:
    table = Table(Position(3, planned=planned(9)), wanted=1)
    assert table.board.strangers == {B: "7-ab"}
    assert table.board.leases() == []
    assert table.board.heed({B: "7-ab"}, {B: Position(0, planned=planned(4))}) == [B]
    assert table.board.leases() == [], "it stands where the round was planned from"
    assert table.board.heed({B: "7-ab"}, {B: Position(0, replay=5)}) == []
    assert table.board.strangers == {}
    assert [one.partition for one in table.lease().partitions] == [A]


def test_a_round_that_a_stranger_has_behind_it_is_not_written_again() -> None:
    table = Table(Position(3, planned=planned(9)), wanted=1)
    assert table.board.heed(table.board.strangers, {B: Position(4, finished="7-ab")}) == []
    assert table.board.leases() == []
    assert table.marks == [9]


def test_a_round_that_takes_long_is_no_stall() -> None:
    table = Table(Position(3, planned=planned(9)), Position(0, planned=planned(4)))
    assert table.board.workable_marks(0.0) == {A: 3, B: 0}
    table.lease()
    assert table.board.workable_marks(0.0) == {}


def test_a_dead_round_is_leased_again_as_it_was() -> None:
    table = Table(Position(3, planned=planned(9)), Position(0, planned=planned(4)))
    lease = table.lease()
    table.board.forget_round(lease.lane, lease.round)
    again = table.lease()
    assert replace(again, round=lease.round) == lease


def test_a_planned_round_waits_until_it_is_known_where_all_its_partitions_stand() -> None:
    table = Table(Position(0, planned=planned(3)), Position(0, planned=planned(4)))
    table.board.remove([B])
    epoch = table.board.gain([B])[B]
    assert table.board.leases() == [], "else it would be written without B, and B would count as written"
    table.board.place(B, epoch, Position(0, planned=planned(4)), is_committed=True)
    assert [one.partition for one in table.lease().partitions] == [A, B]


def test_nothing_is_planned_while_a_mark_is_still_being_read() -> None:
    table = Table(Position(0), Position(0))
    table.board.remove([B])
    table.board.gain([B])
    assert table.board.plannable == {}
