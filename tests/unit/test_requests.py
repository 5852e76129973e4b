"""What a running pipeline does about requests in its history that change while it carries them out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidegate.engine.chronicle import Chronicle
from tidegate.engine.rewinder import RewindAsked
from tidegate.history.store import History
from tidegate.records import Partition

A, B = Partition("orders", 0), Partition("orders", 1)


class Asked:
    """A chronicle that looks when it is told to, and what it has let the run do."""

    def __init__(self, path: Path) -> None:
        self.history = History(str(path))
        self.posted: list[RewindAsked] = []
        made: Any = Chronicle(self.history, cast("Any", None), "c", lambda _: "id", self.posted.append)
        self._chronicle = made

    def look(self, replays: dict[Partition, int]) -> None:
        shown = [SimpleNamespace(partition=tp, replay=replay, mark=100) for tp, replay in replays.items()]
        self._chronicle._status = SimpleNamespace(group="billing", partitions=shown)
        self._chronicle._look()

    def open_moves(self) -> set[Partition]:
        return {row.partition for row in self.history.offsets("c", "billing") if row.applied_at is None}


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path / "history.sqlite")


def test_a_request_that_was_taken_back_is_not_carried_out(asked: Asked) -> None:
    """A record in work holds the rewind up for longer than whoever asked for it waits."""
    number = asked.history.ask("c", "billing", {A: 50}, by="me")
    asked.look({A: 0})
    asked.history.withdraw("c", "billing", number)
    asked.look({A: 0})

    [rewind] = asked.posted
    assert rewind.answer.cancelled()
    asked.look({A: 0})


def test_what_was_moved_is_noted_while_the_rest_still_waits(asked: Asked) -> None:
    number = asked.history.ask("c", "billing", {A: 50, B: 50}, by="me")
    asked.look({A: 0, B: 0})
    asked.look({A: number, B: 0})

    assert asked.open_moves() == {B}


def test_a_rewind_that_is_begun_is_too_late_to_be_taken_back_and_is_told_as_done(asked: Asked) -> None:
    number = asked.history.ask("c", "billing", {A: 50}, by="me")
    asked.look({A: 0})
    [rewind] = asked.posted
    assert rewind.answer.set_running_or_notify_cancel()  # as the rewinder does
    asked.history.withdraw("c", "billing", number)
    asked.look({A: 0})
    assert not rewind.answer.cancelled()
    rewind.answer.set_result({A: 50})
    asked.look({A: 0})

    [row] = asked.history.offsets("c", "billing")
    assert (row.replay, row.applied_at is None, row.withdrawn_at) == (number, False, None)


def test_what_was_moved_is_told_though_it_was_taken_back_meanwhile_and_its_process_died(asked: Asked) -> None:
    number = asked.history.ask("c", "billing", {A: 50}, by="me")
    asked.history.withdraw("c", "billing", number)
    asked.look({A: number})

    [row] = asked.history.offsets("c", "billing")
    assert (row.mark, row.applied_at is None, row.withdrawn_at) == (100, False, None)
