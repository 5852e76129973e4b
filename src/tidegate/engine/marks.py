"""The marks of partitions that were just assigned: read beside the loop, then placed on the board."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from tidegate.engine.board import Board
from tidegate.engine.starting import Found, Starting
from tidegate.errors import BrokerUnreachable
from tidegate.kafka.member import Commit, Member
from tidegate.records import Partition, Position

logger = logging.getLogger("tidegate.marks")

ASK_AGAIN_SECONDS = 1.0


@dataclass(frozen=True)
class MarksFound:
    """The marks of partitions that were assigned, or why they could not be read."""

    epochs: Mapping[Partition, int]
    found: Future[Found]


class MarkFinder:
    """Asks the broker in a thread of its own: reading marks blocks while a transaction is open."""

    def __init__(self, board: Board, starting: Starting, post: Callable[[MarksFound], None]) -> None:
        self._board = board
        self._starting = starting
        self._post = post
        self._asker = ThreadPoolExecutor(1, thread_name_prefix="marks")
        self._unplaced: dict[Partition, int] = {}
        self._is_asking = False
        self._not_before = 0.0

    def want(self, epochs: Mapping[Partition, int]) -> None:
        """Find the marks of these partitions, in these epochs."""
        self._unplaced |= epochs

    def forget(self, partitions: Iterable[Partition]) -> None:
        """These are no longer ours."""
        for partition in partitions:
            self._unplaced.pop(partition, None)

    def ask(self, member: Member) -> None:
        """Begin to read, if something is wanted.

        Not while a commit is on its way: it could land after the reading and be taken back by the next.
        """
        if not self._unplaced or self._is_asking or member.is_committing or time.monotonic() < self._not_before:
            return
        epochs = dict(self._unplaced)
        self._is_asking = True
        future = self._asker.submit(self._starting.find, list(epochs))
        future.add_done_callback(lambda found: self._post(MarksFound(epochs, found)))

    def place(self, answer: MarksFound, member: Member) -> None:
        """Put what was found on the board; raises what no second try will cure."""
        self._is_asking = False
        try:
            found = answer.found.result()
        except BrokerUnreachable as error:
            self._not_before = time.monotonic() + ASK_AGAIN_SECONDS
            logger.warning("the marks cannot be read yet: %s", error.happened, extra={"action": "marks_unread"})
            return
        are_chosen = not found.chosen or self._commit_chosen(found.chosen, member)
        if found.waiting or not are_chosen:
            self._not_before = time.monotonic() + ASK_AGAIN_SECONDS
        if not are_chosen:
            return
        for positions, is_committed in ((found.committed, True), (found.chosen, True), (found.fresh, False)):
            for partition, position in positions.items():
                self._place_one(answer.epochs, partition, position, is_committed=is_committed)

    def close(self) -> None:
        """Ask no more."""
        self._asker.shutdown(wait=False)

    def _place_one(
        self, epochs: Mapping[Partition, int], partition: Partition, position: Position, *, is_committed: bool
    ) -> None:
        epoch = epochs.get(partition)
        if epoch is None:
            return
        self._board.place(partition, epoch, position, is_committed=is_committed)
        if self._unplaced.get(partition) == epoch:
            del self._unplaced[partition]

    def _commit_chosen(self, chosen: Mapping[Partition, Position], member: Member) -> bool:
        """Commit a topic's starting positions before its first lease; other members wait for it."""
        commits = {tp: Commit(one.mark, self._starting.metadata(tp, one)) for tp, one in chosen.items()}
        return not member.commit_now(commits)
