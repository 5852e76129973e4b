"""When a run until caught up is over: what is its own, what others have, and what waits to be tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

import pytest

from tidegate.beside import Beside
from tidegate.engine.board import Board
from tidegate.engine.finish import AGAIN_SECONDS, SHORT_SECONDS, EndsFound, Finish, Goal
from tidegate.engine.lost import Policy
from tidegate.engine.topics import Topics
from tidegate.errors import BrokerRefused, BrokerUnreachable, DatabaseRefused, RecordsLost
from tidegate.kafka.admin import TopicInfo
from tidegate.records import Commit, Limits, Partition, Position

A, B, R = Partition("t", 0), Partition("t", 1), Partition("g.retry.1m", 0)
LIMITS = Limits(5.0, 1.0, 3.0, 20.0)


class Scene:
    """A run that is to reach offset 5 of two partitions, beside a group and logs."""

    def __init__(self, *, retries: bool = False, lost: Policy = "stop", unsent: list[int] | None = None) -> None:
        """`unsent`: how many copies each delivery leaves in the outbox; -1: one that Kafka never takes.

        -2: the database does not give them.
        """
        own = {R.topic: TopicInfo(R.topic, "r", 1, 1)} if retries else {}
        self.topics = Topics({A.topic: TopicInfo(A.topic, "t", 2, 1)}, own)
        self.logs = {A: 5, B: 5, R: 0}
        self.commits: dict[Partition, int] = {}
        self.undecided = 0
        """Records in transactions that have not ended, in each log."""
        self.is_away = False
        self.now = 100.0
        self.answers: list[EndsFound] = []
        self.before_the_ends: Callable[[], None] = lambda: None
        ends = {A: 5, B: 5}
        self.board = Board(2, LIMITS, ends)
        beside = Beside(now=lambda: self.now, open_asker=lambda _name: AtOnce())
        goal = Goal(ends, self.topics, waits=True, lost=lost)

        def deliver() -> int:
            assert unsent is not None
            if unsent[0] == -1:
                raise BrokerRefused("too large", "make room")
            if unsent[0] == -2:
                raise DatabaseRefused("no right to read", "grant it")
            self.before_the_ends()
            return unsent.pop(0)

        self.finish = Finish(
            self.committed, self.ends, self.tops, goal, self.answers.append, beside, deliver if unsent else None
        )

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, Commit]:
        if self.is_away:
            raise BrokerUnreachable("it is away", "wait")
        return {one: Commit(self.commits[one], "") for one in partitions if one in self.commits}

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        self.before_the_ends()
        return {one: self.logs[one] for one in partitions}

    def tops(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return {one: self.logs[one] + self.undecided for one in partitions}

    def own(self, mark: int, *partitions: Partition, is_committed: bool = True) -> None:
        for partition, epoch in self.board.gain(partitions).items():
            self.board.place(partition, epoch, Position(mark), is_committed=is_committed)

    def is_over(self) -> bool:
        """Let the loop turn twice, as long after the last question as it takes to ask again."""
        self.now += AGAIN_SECONDS
        if self.finish.is_over(self.board):
            return True
        for answer in self.answers:
            self.finish.take(answer, self.board)
        self.answers.clear()
        return self.finish.is_over(self.board)


class AtOnce:
    """Asks in no thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args))
        except (BrokerUnreachable, DatabaseRefused) as error:
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True) -> None:
        assert not wait


CASES = [
    # ours            group's commits  over   because
    ((), {}, False, "nothing is ours and nothing committed: nothing was done"),
    ((), {A: 5}, False, "nothing is ours, and others have some left"),
    ((), {A: 5, B: 4}, False, "one record is left"),
    ((), {A: 5, B: 5}, True, "others have brought the group there"),
    ((), {A: 9, B: 7}, True, "others have gone on beyond"),
    ((A,), {A: 5}, False, "ours is done; what others have is not"),
    ((A,), {A: 5, B: 5}, True, "ours is done, and so is theirs"),
    ((A, B), {}, True, "all is ours and done: nobody else is asked"),
]


@pytest.mark.parametrize(("ours", "commits", "over", "because"), CASES, ids=[row[3] for row in CASES])
def test_a_run_is_over_when_the_group_is_there(
    ours: tuple[Partition, ...], commits: dict[Partition, int], over: bool, because: str
) -> None:
    scene = Scene()
    scene.own(5, *ours)
    scene.commits = commits
    assert scene.is_over() is over, because


def test_a_run_that_lost_all_it_had_in_the_middle_of_its_work_is_not_over() -> None:
    scene = Scene()
    scene.own(3, A, B)
    assert not scene.is_over()
    scene.board.remove([A, B])
    scene.commits = {A: 3, B: 3}
    assert not scene.is_over()
    scene.is_away = True
    assert not scene.is_over(), "nobody answers, so nobody knows"
    scene.is_away, scene.commits = False, {A: 5, B: 5}
    assert scene.is_over(), "another process has finished it"


def test_what_is_settled_and_not_committed_is_not_over() -> None:
    scene = Scene()
    scene.own(5, A, B, is_committed=False)
    assert not scene.is_over()
    scene.board.note_committed(scene.board.uncommitted())
    assert scene.is_over()


def test_a_partition_lost_while_the_group_was_asked_is_asked_for() -> None:
    scene = Scene()
    scene.own(5, A)
    scene.commits = {A: 3, B: 5}  # A was ours when the question was put, so that nobody asked for it
    scene.before_the_ends = lambda: scene.board.remove([A])
    assert not scene.is_over()


def test_a_partition_that_came_back_keeps_an_over_from_counting() -> None:
    scene = Scene()
    scene.commits = {A: 5, B: 5}
    assert scene.is_over()
    scene.own(3, A)
    assert not scene.is_over(), "it was rewound meanwhile"


def test_a_topic_that_is_gone_is_not_waited_for() -> None:
    scene = Scene()
    scene.topics.see({}, 0)
    scene.topics.see({}, 1000)
    assert scene.is_over()


def test_a_log_that_was_made_anew_and_is_shorter_is_waited_for_as_it_is_now() -> None:
    scene = Scene()
    scene.commits, scene.logs = {A: 5, B: 2}, {A: 5, B: 2}
    assert scene.is_over()


def test_a_shorter_log_stays_the_goal_of_a_partition_that_goes_and_comes_back() -> None:
    scene = Scene()
    scene.own(5, A, B)
    assert scene.board.reset(B, scene.board.owned[B].epoch, Position(0), 2)
    scene.board.remove([B])
    scene.own(2, B)
    assert scene.is_over()


@pytest.mark.parametrize("lost", ["stop", "latest"])
def test_the_tail_that_a_log_has_lost_is_not_waited_for_and_counts_as_lost(lost: Policy) -> None:
    scene = Scene(lost=lost)
    scene.own(3, B)
    scene.own(5, A)
    short = {A: 5, B: 3}
    for ends in (short, {A: 5, B: 3}, {A: 5}, {A: 5, B: 4}, short):
        assert scene.finish.heed(ends, scene.board) == [], "an answer that is not the same for long is not believed"
        scene.now += SHORT_SECONDS - 1
    assert not scene.is_over()
    scene.now += 2
    if lost == "stop":
        with pytest.raises(RecordsLost, match=r"t\[1\]: .* ends at 3 and ended at 5 .* 2 records are lost; .* again"):
            scene.finish.heed(short, scene.board)
        return
    [loss] = scene.finish.heed(short, scene.board)
    assert (loss.partition, loss.mark, loss.count) == (B, 3, 2)
    assert scene.finish.heed(short, scene.board) == [], "once is enough"
    assert scene.is_over()


def test_a_partition_that_comes_back_at_the_end_of_a_short_log_is_waited_for_anew() -> None:
    """Whoever had it meanwhile may have seen the rest of its log, and the cluster was not at rest."""
    scene, short = Scene(), {A: 5, B: 3}
    scene.own(5, A)
    scene.own(3, B)
    assert scene.finish.heed(short, scene.board) == []
    scene.board.remove([B])
    scene.now += SHORT_SECONDS
    scene.own(3, B)
    assert scene.finish.heed(short, scene.board) == [], "it has been short for no time at all"
    scene.now += SHORT_SECONDS - 1
    assert scene.finish.heed(short, scene.board) == []
    scene.now += 2
    with pytest.raises(RecordsLost):
        scene.finish.heed(short, scene.board)


def test_a_log_that_is_short_for_a_moment_or_still_has_something_is_waited_for() -> None:
    scene = Scene(lost="latest")
    scene.own(2, A)
    scene.own(3, B)
    for _ in range(9):
        assert scene.finish.heed({A: 3, B: 9}, scene.board) == []
        scene.now += SHORT_SECONDS
    assert not scene.is_over()


def test_copies_in_a_retry_topic_of_another_process_are_waited_for() -> None:
    scene = Scene(retries=True)
    scene.own(5, A, B)
    scene.logs[R] = 2
    assert not scene.is_over()
    scene.commits[R] = 1
    assert not scene.is_over()
    scene.commits[R] = 2
    assert scene.is_over()


def test_copies_in_our_own_retry_topic_are_worked_on_and_then_waited_for() -> None:
    scene = Scene(retries=True)
    scene.own(5, A, B)
    scene.own(0, R)
    scene.logs[R] = 2
    assert not scene.is_over()
    [lease] = scene.board.leases()
    assert [(one.partition, one.until) for one in lease.partitions] == [(R, 2)]
    scene.board.remove([R])
    scene.own(2, R)
    assert scene.is_over()


def test_a_copy_written_while_the_group_is_asked_is_seen() -> None:
    """The commit of the record that it is of comes after it, so whoever reads that commit first sees the copy too."""
    scene = Scene(retries=True)
    scene.own(5, A)
    scene.commits = {B: 5, R: 0}

    def write_a_copy() -> None:
        scene.logs[R] = 1

    scene.before_the_ends = write_a_copy
    assert not scene.is_over()


def test_a_transaction_that_has_not_ended_in_a_retry_topic_is_waited_for() -> None:
    """The copy in it is settled already, and nobody can read it yet."""
    scene = Scene(retries=True)
    scene.own(5, A, B)
    scene.own(0, R)
    scene.undecided = 2
    assert not scene.is_over()
    assert not scene.board.leases(), "there is nothing to read yet"
    scene.undecided, scene.logs[R] = 0, 2
    assert not scene.is_over()
    [lease] = scene.board.leases()
    assert [(one.partition, one.until) for one in lease.partitions] == [(R, 2)]


def test_copies_that_wait_in_an_outbox_are_waited_for_though_nothing_else_is() -> None:
    scene = Scene(unsent=[2, 1, 0])
    scene.own(5, A, B)
    assert not scene.is_over()
    assert not scene.is_over()
    assert scene.is_over()


def test_a_retry_copy_that_comes_out_of_the_outbox_is_run() -> None:
    """It reaches its topic before that topic's end is asked for."""
    scene = Scene(retries=True, unsent=[0, 0, 0])
    scene.own(5, A, B)
    scene.own(0, R)

    def send() -> None:
        scene.logs[R] = 1

    scene.before_the_ends = send
    assert not scene.is_over()
    [lease] = scene.board.leases()
    assert [(one.partition, one.until) for one in lease.partitions] == [(R, 1)]


def test_a_copy_that_kafka_never_takes_ends_the_run() -> None:
    scene = Scene(unsent=[-1])
    scene.own(5, A, B)
    with pytest.raises(BrokerRefused, match="too large"):
        scene.is_over()


def test_an_outbox_that_its_database_refuses_to_show_ends_the_run() -> None:
    """Otherwise: all is settled, no round runs that would find it out, and the run asks again for ever."""
    scene = Scene(unsent=[-2])
    scene.own(5, A, B)
    with pytest.raises(DatabaseRefused, match="no right to read"):
        scene.is_over()
