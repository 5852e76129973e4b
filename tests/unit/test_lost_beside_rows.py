"""A log that was cut off, and a table that keeps the marks: the group follows it back, whatever comes in between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

import tidegate as tg
from tests.unit.test_finish import AtOnce
from tidegate.beside import Beside
from tidegate.engine.board import Board
from tidegate.engine.lost import Policy
from tidegate.engine.marks import ASK_AGAIN_SECONDS, MarkFinder, MarksFound
from tidegate.engine.starting import Starting
from tidegate.engine.topics import Topics
from tidegate.engine.truth import Truth
from tidegate.kafka.admin import TopicInfo
from tidegate.ledger import Home, encode
from tidegate.records import Commit, Limits, Partition, Position

P = Partition("orders", 0)
INFO = TopicInfo(P.topic, "id", 1, 1)


class World:
    """A group that stands at 100, as its table says, in a log that ends at 40."""

    def __init__(self, lost: Policy) -> None:
        self.group = {P: Commit(100, encode(Position(100), Home("billing", "id", 0, "s")))}
        self.table = dict(self.group)
        self.takes_commits = False
        self.now = 0.0
        self._lost = lost
        self.start()

    def start(self) -> None:
        """Begin to work for the group, after a crash for example."""
        source = tg.from_kafka(P.topic, group="billing", lost=self._lost).source
        truth = Truth(self, "billing", self, None)  # type: ignore[arg-type]  # as much of both as is asked for
        starting = Starting(self, truth, source, Topics({P.topic: INFO}), "s")  # type: ignore[arg-type]  # as above
        self.board = Board(1, Limits(5, 1, 3, 20))
        self.answers: list[MarksFound] = []
        beside = Beside(now=lambda: self.now, open_asker=lambda _name: AtOnce())
        self.finder = MarkFinder(self.board, starting, self.answers.append, beside)
        self.finder.want(self.board.gain([P]))

    def look(self) -> None:
        self.now += ASK_AGAIN_SECONDS
        self.finder.ask(self)  # type: ignore[arg-type]  # as above
        self.finder.place(self.answers.pop(), self)  # type: ignore[arg-type]  # as above

    # --- as the admin, the table, and the member

    is_committing = False

    def committed(self, *_: object, **__: object) -> dict[Partition, Commit]:
        return self.group

    def existing(self, _names: object) -> dict[str, TopicInfo]:
        return {P.topic: INFO}

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 0)

    def ends(self, partitions: Iterable[Partition], **_: Any) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 40)

    def read(self, _partitions: object) -> dict[Partition, Commit]:
        return self.table

    def enter(self, commits: Mapping[Partition, Commit]) -> Mapping[Partition, Commit]:
        return commits

    def move(self, commits: Mapping[Partition, Commit]) -> bool:
        self.table = {**self.table, **commits}
        return True

    def commit_now(self, commits: Mapping[Partition, Commit]) -> dict[Partition, str]:
        if not self.takes_commits:
            return dict.fromkeys(commits, "not now")
        self.group = {**self.group, **commits}
        return {}


@pytest.mark.parametrize(("lost", "first"), [("earliest", 0), ("latest", 40)])
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_table_that_was_moved_into_a_shorter_log_is_followed_though_the_group_was_not_moved_then(
    lost: Policy, first: int, is_killed: bool
) -> None:
    world = World(lost)
    world.look()
    assert world.table[P].mark == first
    assert world.group[P].mark == 100, "the broker did not take it"
    if is_killed:
        world.start()
    world.takes_commits = True
    world.look()
    [following] = world.board.uncommitted().values()
    assert following.mark == first, "the group is to follow"
