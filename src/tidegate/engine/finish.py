"""When a run that is to end when caught up has caught up: retry topics and what other processes have included.

The ends of the sources are read once, at the start. What is ours is reached when it is settled and committed; what is
not, when the group's commits are there, whoever made them. Then the ends of the retry and redrive topics are read, and
again, until a pass finds them reached: what a pass wrote there, the next one waits for. Copies that wait in an outbox
are sent before: nobody else may be there to do it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from tidegate.beside import THIS_MACHINE, Beside
from tidegate.engine.board import Board
from tidegate.engine.lost import Loss, Policy
from tidegate.engine.topics import Topics
from tidegate.engine.wording import names
from tidegate.errors import BrokerRefused, DatabaseRefused, RecordsLost, TidegateError
from tidegate.records import Commit, Partition

logger = logging.getLogger("tidegate.finish")

Committed = Callable[[list[Partition]], Mapping[Partition, Commit]]
Ends = Callable[[list[Partition]], Mapping[Partition, int]]
Deliver = Callable[[], int]

AGAIN_SECONDS = 1.0
TELL_SECONDS = 30.0
SHORT_SECONDS = 10.0
"""A log that ends before where it ended at the start is believed when it has done so for as long."""


@dataclass(frozen=True)
class Goal:
    """How far a run is to go."""

    ends: Mapping[Partition, int] | None
    """Where the sources ended at the start; None: it goes on until it is stopped."""
    topics: Topics
    waits: bool
    """Whether it goes on until the retry topics are empty, too."""
    lost: Policy = "stop"
    """What is to follow where a log has lost its tail, which is waited for in vain."""

    @property
    def retries(self) -> list[Partition]:
        """The partitions of the retry and redrive topics, if they are waited for."""
        read = self.topics.infos.items()
        own = [info for name, info in read if self.waits and self.topics.is_own(name)]
        return [partition for info in own for partition in info.each_partition()]

    def others(self, owned: Container[Partition]) -> list[Partition]:
        """Which partitions are to be reached and are not ours. Those that went with their topic are not."""
        there = {partition for info in self.topics.infos.values() for partition in info.each_partition()}
        return [one for one in [*(self.ends or {}), *self.retries] if one in there and one not in owned]

    def end(self, partition: Partition, end_now: int) -> int:
        """Return how far a partition is to go; a log that was made anew may never have the end of the old one."""
        return min((self.ends or {}).get(partition, end_now), end_now)


@dataclass(frozen=True)
class Stand:
    """Where the group and the logs are."""

    reached: frozenset[Partition]
    """Partitions that were not ours, and as far as they are to go."""
    retry_ends: Mapping[Partition, int]
    unended: tuple[Partition, ...] = ()
    """Retry topics in which a transaction has not ended: what it wrote can not be read yet."""
    unsent: int = 0
    """Copies of the group that are on their way to Kafka still."""
    refused: BrokerRefused | None = None
    """Why Kafka will never take one of them."""


@dataclass(frozen=True)
class EndsFound:
    """Where the group and the retry topics' ends are, or why that could not be asked."""

    found: Future[Stand]


class Finish:
    """Says when it is over."""

    def __init__(
        self,
        committed: Committed,
        ends: Ends,
        tops: Ends,
        goal: Goal,
        post: Callable[[EndsFound], None],
        beside: Beside = THIS_MACHINE,
        deliver: Deliver | None = None,
    ) -> None:
        """`committed`: what the group has committed for these partitions; `ends`: where their logs end for a reader.

        `tops`: where they do end, transactions that have not ended among them.
        `deliver`: sends copies that wait in an outbox, and tells how many are left; None where there is no outbox.
        """
        self._now = beside.now
        self._committed, self._ends, self._tops, self._deliver = committed, ends, tops, deliver
        self._goal = goal
        self._post = post
        self._asker = beside.open_asker("finish")
        self._is_asking = False
        self._is_over = False
        self._hopeless: TidegateError | None = None
        self._not_before = 0.0
        self._told_at = self._now()
        self._short: dict[Partition, tuple[tuple[int, int], float]] = {}
        """Partitions that are at the end of a log that was longer: where it ends, in which epoch, and since when."""

    def is_over(self, board: Board) -> bool:
        """Whether everything is settled and committed, what came into the retry topics meanwhile too.

        Raises an error if a copy waits that Kafka will never take, or that its database does not give.
        """
        if self._hopeless is not None:
            raise self._hopeless
        if not board.has_caught_up:
            self._is_over = False
            return False
        others, retries = self._goal.others(board.owned), self._goal.retries
        # A process that owns nothing knows nothing: it may be new, or its partitions were given to somebody else.
        if self._is_over or not (others or retries or self._deliver):
            return True
        if not self._is_asking and self._now() >= self._not_before:
            self._is_asking = True
            future = self._asker.submit(self._look, others, retries)
            future.add_done_callback(lambda found: self._post(EndsFound(found)))
        return False

    def take(self, ends: EndsFound, board: Board) -> None:
        """Go on up to these ends; it is over if they are reached, and the group is there with all that others have."""
        self._is_asking = False
        self._not_before = self._now() + AGAIN_SECONDS
        try:
            found = ends.found.result()
        except DatabaseRefused as error:  # a right, a password: no round is left that would say so
            self._hopeless = error
            return
        except TidegateError as error:
            self._tell("whether the run has caught up cannot be asked: %s", error.happened)
            return
        self._hopeless = found.refused
        board.go_on_until(found.retry_ends)
        # Asked anew, since partitions may have gone in between: of those nothing was asked.
        missing = [one for one in self._goal.others(board.owned) if one not in found.reached]
        is_left = missing or found.unended or found.unsent or found.refused is not None
        self._is_over = board.has_caught_up and not is_left
        if board.has_caught_up and missing:
            self._tell(
                "caught up but for %s, which the group has not given to this process: it waits for them", names(missing)
            )
        elif board.has_caught_up and found.unended:
            self._tell("caught up but for a transaction in %s that Kafka has not ended yet", names(found.unended))
        elif board.has_caught_up and found.unsent:
            self._tell("caught up but for copies in the outbox, which Kafka has not taken yet: %s", str(found.unsent))

    def heed(self, ends: Mapping[Partition, int], board: Board) -> list[Loss]:
        """Return what is gone where a log has lost its tail, as after an unclean election; raise where that is to stop.

        Otherwise: the mark is at the end of what is left, so nothing seems to be lost, and the run waits for records
        that were there when it began and never come again.
        """
        losses = []
        for partition, one in board.owned.items():
            end, mark = ends.get(partition), -1 if one.position is None else one.position.mark
            if not one.is_free or one.until is None or end is None or not mark == end < one.until:
                self._short.pop(partition, None)
                continue
            seen = (end, one.epoch)  # of one that went and came back, what was seen before proves nothing
            if self._short.setdefault(partition, (seen, self._now()))[0] != seen:
                self._short[partition] = (seen, self._now())
            elif self._now() - self._short[partition][1] >= SHORT_SECONDS:
                why = f"the log ends at {end} and ended at {one.until} when the run began: its tail was cut off"
                losses.append(Loss(partition, mark, why, one.until - mark, None, None))
        if losses and self._goal.lost == "stop":
            cure = 'the group was not moved; start again to go on with what is there, or choose lost="earliest"'
            raise RecordsLost("; ".join(loss.sentence for loss in losses), cure)
        board.go_on_until({loss.partition: loss.mark for loss in losses})
        return losses

    def close(self) -> None:
        """Ask no more."""
        self._asker.shutdown(wait=False)

    def _look(self, others: list[Partition], retries: list[Partition]) -> Stand:
        """Ask for the commits first, then send what waits to be sent, then ask for the ends.

        Otherwise: the retry topics are read as reached; a record of another process fails, its copy is written, it is
        committed; we read that commit, and leave with the copy unread. And where a transaction wrote the copy, it is
        committed a moment before anybody can read it.
        """
        committed = self._committed(others) if others else {}
        try:
            unsent = self._deliver() if self._deliver is not None else 0
        except BrokerRefused as error:
            return Stand(frozenset(), {}, refused=error)
        ends = self._ends([*{*others, *retries}]) if others or retries else {}
        tops = self._tops(retries) if retries else {}
        unended = tuple(one for one in retries if tops[one] > ends[one])
        marks = {one: committed[one].mark if one in committed else 0 for one in others}
        reached = frozenset(one for one, mark in marks.items() if mark >= self._goal.end(one, ends[one]))
        return Stand(reached, {one: ends[one] for one in retries}, unended, unsent)

    def _tell(self, what: str, about: str) -> None:
        if self._now() - self._told_at < TELL_SECONDS:
            return
        self._told_at = self._now()
        logger.info(what, about, extra={"action": "finish_waits"})
