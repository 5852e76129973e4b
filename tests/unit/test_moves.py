"""A partition that goes on elsewhere: what the broker may have stored is not taken back."""

from __future__ import annotations

import pytest

from tidegate.engine.board import Board
from tidegate.engine.owned import Mover
from tidegate.records import Limits, Partition, Position

A = Partition("orders", 0)
FIVE, NINE = Position(5), Position(9)


@pytest.fixture
def board() -> Board:
    """One partition, which stands at 5 and is committed up to nothing."""
    made = Board(1, Limits(5.0, 1.0, 3.0, 20.0), None)
    [epoch] = made.gain([A]).values()
    made.place(A, epoch, FIVE, is_committed=False)
    assert made.uncommitted() == {(A, epoch): FIVE}
    return made


def epoch_of(board: Board) -> int:
    return board.owned[A].epoch


@pytest.mark.parametrize("mover", ["lost", "rewind"])
def test_nothing_older_is_committed_on_top_of_a_move_that_nobody_answered(board: Board, mover: Mover) -> None:
    assert board.begin_move(A, epoch_of(board), mover)
    board.close([A])  # given back: what was settled is committed now, but not here
    assert board.uncommitted() == {}
    board.stop()
    assert board.uncommitted() == {}


@pytest.mark.parametrize(("first", "second"), [("lost", "rewind"), ("rewind", "lost")])
def test_a_move_that_nobody_answered_comes_before_another_one(board: Board, first: Mover, second: Mover) -> None:
    assert board.begin_move(A, epoch_of(board), first)
    assert not board.begin_move(A, epoch_of(board), second)
    assert board.begin_move(A, epoch_of(board), first), "the same one is tried again"
    assert board.reset(A, epoch_of(board), NINE, 100)
    assert board.begin_move(A, epoch_of(board), second), "the first is done"


def test_a_move_of_another_epoch_is_none(board: Board) -> None:
    old = epoch_of(board)
    board.remove([A])
    board.gain([A])
    assert not board.begin_move(A, old, "rewind")
    assert board.owned[A].mover is None


@pytest.mark.parametrize("ends", ["trusted", "given up", "read anew"])
def test_a_partition_that_stays_after_all_is_committed_again(board: Board, ends: str) -> None:
    mover: Mover = "rewind" if ends == "given up" else "lost"
    board.begin_move(A, epoch_of(board), mover)
    match ends:
        case "trusted":
            board.trust(A, epoch_of(board))
        case "given up":
            board.end_move(A, mover)
        case _:
            board.place(A, epoch_of(board), FIVE, is_committed=False)
    assert board.uncommitted() == {(A, epoch_of(board)): FIVE}


def test_a_rewind_that_nobody_answered_is_not_forgotten_where_the_mark_is_trusted(board: Board) -> None:
    board.begin_move(A, epoch_of(board), "rewind")
    board.trust(A, epoch_of(board))
    assert board.uncommitted() == {}
