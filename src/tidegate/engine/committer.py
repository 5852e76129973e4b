"""Step 6: commit mark and *ahead*. One commit at a time is on its way; what is refused is sent again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from tidegate.beside import THIS_MACHINE, Beside
from tidegate.engine.board import Board
from tidegate.errors import TidegateError, TopicMissing
from tidegate.kafka.member import Member, Refused
from tidegate.records import Commit, Partition, Position

logger = logging.getLogger("tidegate.commit")

Metadata = Callable[[Partition, Position], str]
RETRY_SECONDS = 0.5
UNANSWERED_SECONDS = 30.0


class Committer:
    """Sends what the board has to commit. Used from the driver's thread only."""

    def __init__(self, board: Board, metadata: Metadata, beside: Beside = THIS_MACHINE) -> None:
        self._board = board
        self._now, self._sleep = beside.now, beside.sleep
        self._metadata = metadata
        self._sent: dict[tuple[Partition, int], Position] = {}
        self._not_before = 0.0
        self._sent_at = self._told_at = 0.0
        self.answers = 0
        """Commits that were answered, and how long that took."""
        self.answer_seconds = 0.0
        self.fatal: TidegateError | None = None
        """A refusal that no repeat will cure."""

    def send(self, member: Member) -> None:
        """Begin a commit, if there is something to commit and none is on its way."""
        if member.is_committing:
            self._tell_unanswered()
            return
        if self._now() < self._not_before:
            return
        self._sent = self._board.uncommitted()
        if self._sent:
            self._sent_at = self._now()
            member.commit(self._coded(self._sent))

    def _tell_unanswered(self) -> None:
        waited = self._now() - max(self._sent_at, self._told_at)
        if waited >= UNANSWERED_SECONDS and self._sent:
            self._told_at = self._now()
            logger.warning(
                "no answer came to a commit for %.0f s: the run waits for Kafka",
                self._now() - self._sent_at,
                extra={"action": "commit_unanswered"},
            )

    def answered(self, taken: Mapping[Partition, Commit], refused: Mapping[Partition, Refused]) -> None:
        """Note the broker's answer to the commit that was on its way."""
        sent, self._sent = self._sent, {}
        self.answers += 1
        self.answer_seconds += self._now() - self._sent_at
        self._board.note_committed({key: position for key, position in sent.items() if key[0] in taken})
        self._note_refused(refused)

    def flush(self, member: Member, partitions: Iterable[Partition], budget_seconds: float) -> bool:
        """Commit everything of these partitions and wait for the answer; False if that did not work out."""
        wanted = set(partitions)
        deadline = self._now() + budget_seconds
        homeless: set[Partition] = set()
        while True:
            left = {key: one for key, one in self._board.uncommitted().items() if key[0] in wanted - homeless}
            if not left:
                return True
            refused = member.commit_now(self._coded(left))
            self._board.note_committed({key: one for key, one in left.items() if key[0] not in refused})
            self._note_refused(refused)
            homeless |= {partition for partition, why in refused.items() if isinstance(why.error, TopicMissing)}
            if self.fatal is not None or self._now() > deadline:
                return False
            if refused:
                self._sleep(0.1)  # between two tries, within the deadline

    def _coded(self, positions: Mapping[tuple[Partition, int], Position]) -> dict[Partition, Commit]:
        return {
            partition: Commit(position.mark, self._metadata(partition, position))
            for (partition, _), position in positions.items()
        }

    def _note_refused(self, refused: Mapping[Partition, Refused]) -> None:
        for partition, why in refused.items():
            logger.warning(
                "the commit of %s was refused and will be sent again: %s" if why.is_passing else "%s: %s",
                partition,
                why.error.happened,
                extra={"action": "commit_refused"},
            )
            self._not_before = self._now() + RETRY_SECONDS
            if isinstance(why.error, TopicMissing):
                self._board.doubt([partition])  # it went, or is being made anew: a look at it decides
            elif not why.is_passing:
                self.fatal = why.error
