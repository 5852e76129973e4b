"""Records that cannot be read: trouble that stays ends the run, moments of it that are days apart do not."""

from __future__ import annotations

import pytest

from tidegate.beside import Beside
from tidegate.engine.board import Board
from tidegate.engine.marks import UNREAD_SECONDS, MarkFinder
from tidegate.errors import BrokerRefused
from tidegate.records import Limits, Partition, Position

PLACE = Partition("orders", 0)
A_DAY = 86_400.0


class Scene:
    def __init__(self) -> None:
        self.now = 0.0
        self.board = Board(1, Limits(5.0, 1.0, 3.0, 20.0))
        [epoch] = self.board.gain([PLACE]).values()
        self.board.place(PLACE, epoch, Position(100), is_committed=True)
        beside = Beside(lambda: self.now, lambda _: None)
        self.marks = MarkFinder(self.board, None, lambda _: None, beside)  # type: ignore[arg-type]  # nothing is asked

    def fail(self, after: float) -> None:
        self.now += after
        self.marks.doubt_unread([PLACE], "refused")


def test_trouble_that_stays_ends_the_run() -> None:
    scene = Scene()
    scene.fail(after=0)
    scene.fail(after=UNREAD_SECONDS / 2)
    with pytest.raises(BrokerRefused, match="records cannot be read: refused"):
        scene.fail(after=UNREAD_SECONDS)


def test_two_moments_of_trouble_with_a_day_between_do_not() -> None:
    scene = Scene()
    for _ in range(3):
        scene.fail(after=A_DAY)
        assert scene.board.owned[PLACE].is_doubted, "it is looked at"
        scene.board.trust(PLACE, scene.board.owned[PLACE].epoch)
