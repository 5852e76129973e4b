"""The driver's decisions, without a broker: leases, epochs, outcomes, dead rounds."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import tidegate as tg
from tidegate.engine.board import Board
from tidegate.engine.cancelled import ZOMBIE_SECONDS, Cancelled
from tidegate.engine.lookout import Lookout, Sight
from tidegate.engine.topics import Topics
from tidegate.kafka.admin import Admin
from tidegate.records import Failure, Lease, Limits, Open, Outcome, Partition, PartitionOutcome, Position, Tries

LIMITS = Limits(read_seconds=5, quiet_seconds=1, idle_seconds=3, attempt_seconds=20)
A, B, C, D = (Partition("t", number) for number in range(4))


def board_with(*partitions: Partition, lanes: int = 2, limits: Limits = LIMITS) -> Board:
    board = Board(lanes, limits)
    for partition, epoch in board.gain(partitions).items():
        board.place(partition, epoch, Position(0), is_committed=True)
    return board


def answer(lease: Lease, marks: dict[Partition, int], failures: dict[Partition, Failure] | None = None) -> Outcome:
    items = tuple(
        PartitionOutcome(
            item.partition,
            item.epoch,
            Position(marks.get(item.partition, item.position.mark)),
            (failures or {}).get(item.partition),
        )
        for item in lease.partitions
    )
    return Outcome(lease.lane, lease.round, items)


def report(lease: Lease, marks: dict[Partition, int], number: int) -> Outcome:
    return replace(answer(lease, marks), number=number)


def test_partitions_are_spread_evenly_over_the_lanes() -> None:
    leases = board_with(A, B, C, D).leases()
    assert [len(lease.partitions) for lease in leases] == [2, 2]
    assert {item.partition for lease in leases for item in lease.partitions} == {A, B, C, D}


def test_there_are_never_more_lanes_than_partitions() -> None:
    assert len(board_with(A, lanes=8).leases()) == 1


def test_a_partition_is_not_leased_before_its_mark_is_known() -> None:
    board = Board(2, LIMITS)
    board.gain([A])
    assert board.leases() == []


def test_a_partition_is_not_leased_while_a_round_works_on_it_in_any_epoch() -> None:
    board = board_with(A)
    [old] = board.leases()
    board.remove([A])
    epoch = board.gain([A])[A]
    board.place(A, epoch, Position(0), is_committed=True)
    assert board.leases() == [], "the old round may still run"
    board.accept(answer(old, {A: 5}))
    [new] = board.leases()
    assert new.partitions[0].epoch == epoch


def test_the_outcome_of_another_epoch_is_dropped() -> None:
    board = board_with(A)
    [old] = board.leases()
    board.remove([A])
    board.place(A, board.gain([A])[A], Position(3), is_committed=True)
    accepted = board.accept(answer(old, {A: 50}))
    assert accepted.dropped == (A,)
    assert board.marks == {A: 3}
    assert board.uncommitted() == {}


def test_an_outcome_for_a_partition_that_was_lost_commits_nothing() -> None:
    board = board_with(A)
    [lease] = board.leases()
    board.remove([A])
    assert board.accept(answer(lease, {A: 50})).dropped == (A,)
    assert board.uncommitted() == {}


def test_a_mark_never_moves_back() -> None:
    board = board_with(A)
    [first] = board.leases()
    board.accept(answer(first, {A: 10}))
    [second] = board.leases()
    board.accept(answer(second, {A: 4}))
    assert board.marks == {A: 10}


def test_what_was_settled_is_to_be_committed_until_the_broker_has_it() -> None:
    board = board_with(A)
    [lease] = board.leases()
    board.accept(answer(lease, {A: 10}))
    waiting = board.uncommitted()
    assert {key[0]: position.mark for key, position in waiting.items()} == {A: 10}
    board.note_committed(waiting)
    assert board.uncommitted() == {}


def test_a_commit_answered_after_the_partition_came_anew_is_not_counted_for_it() -> None:
    board = board_with(A)
    [lease] = board.leases()
    board.accept(answer(lease, {A: 10}))
    late = board.uncommitted()
    board.remove([A])
    board.place(A, board.gain([A])[A], Position(4), is_committed=True)
    board.note_committed(late)
    assert board.uncommitted() == {}, "else the next commit would move the mark back"


def test_a_bound_on_records_between_commits_holds_the_next_round_until_the_commit() -> None:
    limits = Limits(read_seconds=5, quiet_seconds=1, idle_seconds=3, attempt_seconds=20, records=1)
    board = board_with(A, limits=limits)
    [lease] = board.leases()
    board.accept(answer(lease, {A: 1}))
    assert board.leases() == []
    board.note_committed(board.uncommitted())
    assert len(board.leases()) == 1


def test_a_failed_partition_is_not_leased_again_and_the_others_are() -> None:
    board = board_with(A, B, lanes=1)
    [lease] = board.leases()
    failure = Failure(A, 5, "ValueError", "no")
    accepted = board.accept(answer(lease, {A: 5, B: 9}, {A: failure}))
    assert accepted.failures == (failure,)
    [after] = board.leases()
    assert [item.partition for item in after.partitions] == [B]


def find_killer(killer: int, log_end: int, seed: int) -> tuple[int, int, Failure | None]:
    """Run rounds until the board gives up on a record; return rounds, most repeats of one record, the failure."""
    chance = random.Random(seed)
    board = board_with(A)
    mark, rounds = 0, 0
    runs = [0] * log_end
    while rounds < 500:
        [lease] = board.leases()
        rounds += 1
        most = lease.limits.records or 10_000
        end = min(log_end, mark + most)
        for record in range(mark, min(end, killer + 1)):
            runs[record] += 1
        if mark <= killer < end:
            died = board.bury(lease.lane, lease.round, "crashed")
            if died:
                return rounds, max(runs), died[0]
            continue
        if mark == log_end:
            return rounds, max(runs), None
        mark = end if chance.random() < 0.9 else min(end, mark + 1)
        board.accept(answer(lease, {A: mark}))
    raise AssertionError("the board never gave up")


@pytest.mark.parametrize("killer", [0, 1, 2, 7, 100, 4095, 4096, 9_999])
def test_a_record_that_kills_its_worker_is_found_alone_in_few_rounds(killer: int) -> None:
    rounds, repeats, failure = find_killer(killer, 12_000, seed=killer)
    assert failure is not None
    assert failure.record_offset == killer
    assert failure.error_type == "WorkerDied"
    assert rounds < 120
    assert repeats < 40


def test_a_worker_that_died_by_chance_blames_nobody() -> None:
    board = board_with(A)
    for mark in range(1, 30):
        [lease] = board.leases()
        assert board.bury(lease.lane, lease.round, "killed") == []
        [lease] = board.leases()
        board.accept(answer(lease, {A: mark * 100}))
    [lease] = board.leases()
    assert lease.limits.records is None, "progress ends the care"


def test_suspects_take_turns_with_the_healthy_partitions_of_their_lane() -> None:
    board = board_with(A, B, C, lanes=1)
    for _ in range(2):
        [lease] = board.leases()
        board.bury(lease.lane, lease.round, "crashed")
    seen: list[Partition] = []
    for _ in range(6):
        [lease] = board.leases()
        assert len(lease.partitions) == 1
        seen.append(lease.partitions[0].partition)
        board.accept(answer(lease, {seen[-1]: board.marks[seen[-1]] + 1}))
    assert sorted(seen) == [A, A, B, B, C, C]


def test_partitions_with_nothing_to_run_are_out_of_the_search_for_a_deadly_record() -> None:
    board = board_with(A, B, C, lanes=1)
    for _ in range(2):
        [lease] = board.leases()
        board.bury(lease.lane, lease.round, "crashed")
    lookout = Lookout(Admin(tg.Kafka("127.0.0.1:1")), Topics({}), None, 60.0, lambda _: None)
    lookout.judge(Sight({A: 0, B: 7, C: 0}, {}), board)
    lookout.close()
    turns = []
    for _ in range(4):
        [lease] = board.leases()
        turns.append([one.partition for one in lease.partitions])
        board.accept(answer(lease, {one.partition: one.position.mark for one in lease.partitions}))
    assert sorted(turns) == [[A, C], [A, C], [B], [B]]


def test_a_round_cancelled_by_us_blames_nobody() -> None:
    board = board_with(A)
    for _ in range(10):
        [lease] = board.leases()
        board.forget_round(lease.lane, lease.round)
    [lease] = board.leases()
    assert lease.limits.records is None


def test_partitions_that_leave_free_their_lane_for_the_others() -> None:
    board = board_with(A, B, C, D)
    board.remove([item.partition for item in board.leases()[0].partitions])
    for lease in board.flying():
        board.accept(answer(lease, {}))
    leases = board.leases()
    assert [len(lease.partitions) for lease in leases] == [1, 1]


def test_caught_up_means_every_partition_of_ours_has_reached_its_end() -> None:
    board = Board(2, LIMITS, {A: 10, B: 0})
    for partition, epoch in board.gain([A, B]).items():
        board.place(partition, epoch, Position(0), is_committed=True)
    [lease] = board.leases()
    assert [item.partition for item in lease.partitions] == [A], "B is there already"
    assert not board.has_caught_up
    board.accept(answer(lease, {A: 10}))
    assert not board.has_caught_up, "settled is not committed"
    board.note_committed(board.uncommitted())
    assert board.has_caught_up


def test_what_is_doubted_or_moves_elsewhere_has_not_caught_up() -> None:
    board = Board(1, LIMITS, {A: 5})
    epoch = board.gain([A])[A]
    board.place(A, epoch, Position(5), is_committed=True)
    board.doubt([A])
    assert not board.has_caught_up, "its mark may be of another log"
    board.trust(A, epoch)
    assert board.has_caught_up
    board.hold([A])
    assert not board.has_caught_up, "it is about to be rewound"
    board.hold([A], is_held=False)
    assert board.begin_move(A, epoch, "rewind")
    assert not board.has_caught_up, "the broker may have it elsewhere"


def test_a_doubted_partition_is_neither_leased_nor_committed_until_it_is_trusted() -> None:
    board = board_with(A, B, lanes=1)
    [lease] = board.leases()
    board.doubt([A])
    assert board.doubted == {}, "a round may still be working on it"
    assert board.kept_waiting() == [lease], "it should end"
    board.accept(answer(lease, {A: 5, B: 7}))
    assert board.doubted == {A: lease.partitions[0].epoch}
    assert {key[0] for key in board.uncommitted()} == {B}
    [after] = board.leases()
    assert [item.partition for item in after.partitions] == [B]
    board.trust(A, lease.partitions[0].epoch)
    assert {key[0] for key in board.uncommitted()} == {A, B}


def test_a_reset_begins_a_new_epoch_and_what_the_old_one_says_is_dropped() -> None:
    board = board_with(A)
    [old] = board.leases()
    epoch = old.partitions[0].epoch
    assert board.reset(A, epoch, Position(0), end=3)
    assert board.leases() == [], "the round of the old epoch may still run"
    assert board.accept(answer(old, {A: 50})).dropped == (A,)
    [new] = board.leases()
    assert new.partitions[0].epoch > epoch
    assert new.partitions[0].position == Position(0)
    assert board.uncommitted() == {}, "it was committed before the reset"
    assert not board.reset(A, epoch, Position(9), end=9), "that epoch is over"


def test_a_mark_may_move_back_by_a_reset_and_the_run_still_ends() -> None:
    board = Board(1, LIMITS, {A: 10})
    for partition, epoch in board.gain([A]).items():
        board.place(partition, epoch, Position(8), is_committed=True)
        board.reset(partition, epoch, Position(0), end=4)
    assert board.marks == {A: 0}
    [lease] = board.leases()
    assert lease.partitions[0].until == 4, "the new log has no offset 10"


def test_what_is_doubted_is_committed_when_the_run_stops_or_the_partition_goes() -> None:
    board = board_with(A, B)
    for lease in board.leases():
        board.accept(answer(lease, {A: 5, B: 7}))
    board.doubt([A, B])
    board.close([A])
    assert {key[0] for key in board.uncommitted()} == {A}
    board.stop()
    assert {key[0] for key in board.uncommitted()} == {A, B}


def test_a_commit_that_went_with_its_topic_is_made_again() -> None:
    board = board_with(A)
    assert board.uncommitted() == {}
    board.commit_again(A)
    assert {key[0]: one.mark for key, one in board.uncommitted().items()} == {A: 0}


def test_a_round_on_what_is_no_longer_ours_is_asked_to_end() -> None:
    board = board_with(A, B, lanes=1)
    [lease] = board.leases()
    assert board.kept_waiting() == []
    board.remove([A])
    assert board.kept_waiting() == [lease], "else a partition that comes back waits until the round ends by itself"


def waiting(lease: Lease, *, parked: float | None = None, still_open: tuple[Open, ...] = (), mark: int = 0) -> Outcome:
    items = tuple(
        PartitionOutcome(item.partition, item.epoch, Position(mark), open=still_open, parked=parked)
        for item in lease.partitions
    )
    return Outcome(lease.lane, lease.round, items)


def test_a_parked_partition_is_leased_when_its_time_has_come_and_not_before() -> None:
    board = board_with(A)
    [lease] = board.leases(100.0)
    board.accept(waiting(lease, parked=60.0), 100.0)
    assert board.leases(159.9) == []
    assert board.workable_marks(159.9) == {}, "it stands still for a known reason: that is no stall"
    assert [one.partitions[0].partition for one in board.leases(160.0)] == [A]


def test_a_partition_that_is_due_ends_the_round_that_keeps_its_lane() -> None:
    board = board_with(A, B, lanes=1)
    [both] = board.leases(0.0)
    items = (
        PartitionOutcome(A, both.partitions[0].epoch, Position(0), parked=5.0),
        PartitionOutcome(B, both.partitions[1].epoch, Position(9)),
    )
    board.accept(Outcome(both.lane, both.round, items), 0.0)
    [other] = board.leases(1.0)
    assert [item.partition for item in other.partitions] == [B]
    assert board.kept_waiting() == []
    assert board.leases(6.0) == []
    assert board.kept_waiting() == [other]


def test_open_failures_go_with_the_next_lease_and_their_waits_grow_shorter() -> None:
    board = board_with(A)
    [lease] = board.leases(0.0)
    failed = Open(3, Tries(failed=2), wait=10.0)
    board.accept(waiting(lease, still_open=(failed,), mark=3), 0.0)
    [again] = board.leases(4.0)
    assert again.partitions[0].open == (Open(3, Tries(failed=2), wait=6.0),)


def test_a_record_that_kills_its_worker_is_handed_to_the_policy_and_run_no_more() -> None:
    board = board_with(A)
    blamed: list[Failure] = []
    while not blamed:
        [lease] = board.leases()
        assert lease.partitions[0].open == ()
        blamed = board.bury(lease.lane, lease.round, "it is gone")
    [lease] = board.leases()
    [given] = lease.partitions[0].open
    assert (given.record_offset, given.failure) == (0, blamed[0])
    assert blamed[0].error_type == "WorkerDied"


def test_a_caught_up_run_goes_on_where_new_ends_are_set() -> None:
    board = Board(1, LIMITS, {A: 5})
    for partition, epoch in board.gain([A, B]).items():
        board.place(partition, epoch, Position(5 if partition == A else 0), is_committed=True)
    assert board.has_caught_up
    board.go_on_until({B: 2})
    assert not board.has_caught_up
    assert [item.partition for item in board.leases()[0].partitions] == [B]


def test_where_rounds_commit_the_driver_commits_starting_positions_alone_and_before_the_first_lease() -> None:
    board = Board(2, LIMITS, rounds_commit=True)
    epoch = board.gain([A])[A]
    board.place(A, epoch, Position(0), is_committed=False)
    assert board.leases() == [], "the round's own commit could be overtaken by ours"
    assert board.uncommitted() == {(A, epoch): Position(0)}
    board.note_committed(board.uncommitted())
    [lease] = board.leases()
    board.hear(report(lease, {A: 5}, 1))
    assert board.uncommitted() == {}
    board.accept(answer(lease, {A: 9}))
    assert board.uncommitted() == {}
    assert board.marks == {A: 9}


def committing_board(lanes: int, *partitions: Partition) -> Board:
    board = Board(lanes, LIMITS, rounds_commit=True)
    for partition, epoch in board.gain(partitions or (A, B)).items():
        board.place(partition, epoch, Position(0), is_committed=True)
    return board


@pytest.mark.parametrize("end", ["died", "was cancelled"])
def test_what_a_bad_end_leaves_keeps_the_name_of_its_store_in_another_lane_too(end: str) -> None:
    board = committing_board(lanes=2)
    first, second = board.leases()
    assert [first.store_lane, second.store_lane] == [0, 1]
    if end == "died":
        board.bury(second.lane, second.round, "it was killed")
    else:
        board.forget_round(second.lane, second.round)
    board.accept(answer(first, {}))
    board.resize(1)
    turns = []
    for _ in range(4):
        [lease] = board.leases()
        turns.append((lease.lane, lease.store_lane, *(item.partition for item in lease.partitions)))
        board.accept(answer(lease, {}))
    one, other = first.partitions[0].partition, second.partitions[0].partition
    # A task of the dead round that begins only now is shut out by the next round of its name, or shuts that one out.
    assert sorted(turns) == [(0, 0, one), (0, 0, one), (0, 1, other), (0, 1, other)]
    assert turns[0] != turns[1], "they take turns"


def test_no_two_rounds_share_the_name_of_a_store() -> None:
    board = committing_board(lanes=2)
    first, second = board.leases()
    board.bury(second.lane, second.round, "it was killed")
    board.accept(answer(first, {}))
    board.resize(1)
    while (away := board.leases()[0]).store_lane != 1:
        board.accept(answer(away, {}))
    board.resize(2)
    others = board.leases()
    assert 1 not in [lease.store_lane for lease in others]
    for lease in (away, *others):
        board.accept(answer(lease, {}))
    assert sorted((lease.lane, lease.store_lane) for lease in board.leases()) == [(0, 0), (1, 1)], "it is back home"


def test_a_round_is_not_asked_to_end_for_one_whose_name_another_lane_uses() -> None:
    places = [Partition("t", number) for number in range(6)]
    board = committing_board(3, *places)
    leases = board.leases()
    board.bury(leases[2].lane, leases[2].round, "it was killed")
    for lease in leases[:2]:
        board.accept(answer(lease, {}))
    board.resize(2)
    bound = {item.partition for item in leases[2].partitions}
    board.leases()
    assert {board.owned[one].lane for one in bound} == {0, 1}, "each lane has one of them"
    while 2 not in [lease.store_lane for lease in board.flying()]:
        for lease in board.flying():
            board.accept(answer(lease, {}))
        board.leases()
    [away] = [lease for lease in board.flying() if lease.store_lane == 2]
    [beside] = [lease for lease in board.flying() if lease.lane != away.lane]
    assert beside not in board.kept_waiting()


def test_a_group_that_has_moved_on_takes_nothing_of_an_old_round_so_that_its_name_binds_nobody() -> None:
    board = committing_board(lanes=2)
    first, second = board.leases()
    board.bury(second.lane, second.round, "it was killed")
    board.accept(answer(first, {}))
    board.resize(1)
    board.gain([])
    [lease] = board.leases()
    assert len(lease.partitions) == 2
    assert lease.store_lane == 0


def test_a_rewound_partition_keeps_the_name_of_its_store() -> None:
    board = committing_board(lanes=2)
    first, second = board.leases()
    moved = second.partitions[0].partition
    board.bury(second.lane, second.round, "it was killed")
    board.accept(answer(first, {}))
    board.reset(moved, second.partitions[0].epoch, Position(0, replay=1), end=9)
    board.resize(1)
    names = set()
    for _ in range(2):
        [lease] = board.leases()
        names |= {(item.partition, lease.store_lane) for item in lease.partitions}
        board.accept(answer(lease, {}))
    assert (moved, 1) in names


def test_a_report_that_was_overtaken_by_a_later_one_of_its_round_changes_nothing() -> None:
    board = board_with(A)
    [lease] = board.leases()
    assert board.hear(report(lease, {A: 5}, 2)) is not None
    late = report(lease, {A: 5}, 1)
    failed = Failure(A, 5, "ValueError", "said before it was tried again", attempts=1)
    late = replace(late, partitions=tuple(replace(one, failure=failed) for one in late.partitions))
    assert board.hear(late) is None
    assert board.owned[A].failure is None
    assert board.hear(report(lease, {A: 6}, 3)) is not None
    board.accept(answer(lease, {A: 7}))
    [following] = board.leases()
    assert board.hear(report(following, {A: 8}, 1)) is not None, "every round counts its own"


def test_a_group_that_has_moved_on_ends_the_rounds_in_flight_and_no_later_one() -> None:
    board = board_with(A)
    [lease] = board.leases()
    board.outdate()
    assert board.kept_waiting() == [lease]
    board.accept(answer(lease, {A: 1}))
    board.leases()
    assert board.kept_waiting() == []


def test_a_cancelled_round_is_over_when_its_task_can_do_nothing_more() -> None:
    [lease] = board_with(A).leases()
    cancelled = Cancelled()
    cancelled.add(lease.lane)
    assert lease.lane in cancelled
    cancelled.ended(lease, 100.0, is_shut_out=False)
    assert cancelled.take_over(100.0 + ZOMBIE_SECONDS - 0.1) == []
    assert cancelled.take_over(100.0 + ZOMBIE_SECONDS) == [lease]
    assert lease.lane not in cancelled
    cancelled.add(lease.lane)
    cancelled.ended(lease, 100.0, is_shut_out=True)
    assert cancelled.take_over(100.0) == [lease]


def test_what_is_held_is_committed_and_leased_no_more_and_its_round_is_asked_to_end() -> None:
    board = board_with(A, B, lanes=1)
    [lease] = board.leases()
    board.hold([A])
    assert board.kept_waiting() == [lease]
    board.accept(answer(lease, {A: 5, B: 5}))
    assert {key[0] for key in board.uncommitted()} == {A, B}
    [second] = board.leases()
    assert [item.partition for item in second.partitions] == [B]
    assert A not in board.workable_marks(0.0), "nobody must call it stalled"
    board.hold([A], is_held=False)
    board.accept(answer(second, {}))
    assert {item.partition for lease in board.leases() for item in lease.partitions} == {A, B}


def test_a_rewound_partition_is_leased_from_its_new_mark_in_a_new_epoch() -> None:
    board = board_with(A)
    [lease] = board.leases()
    board.hold([A])
    board.accept(answer(lease, {A: 50}))
    assert board.reset(A, lease.partitions[0].epoch, Position(10, replay=7), 100)
    [again] = board.leases()
    assert again.partitions[0].position == Position(10, replay=7)
    assert again.partitions[0].epoch != lease.partitions[0].epoch
    assert board.uncommitted() == {}, "it was committed before"


def test_a_board_that_rests_leases_nothing_and_asks_every_round_to_end() -> None:
    board = board_with(A, B)
    leases = board.leases()
    board.is_paused = True
    assert board.kept_waiting() == leases
    for lease in leases:
        board.accept(answer(lease, {A: 5, B: 5}))
    assert (board.leases(), board.workable_marks(0.0)) == ([], {})
    board.gain([C])
    assert board.leases() == []
    board.is_paused = False
    assert {item.partition for lease in board.leases() for item in lease.partitions} == {A, B}
