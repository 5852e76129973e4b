"""The marks of partitions that were just assigned, or that are doubted: read beside the loop, placed on the board."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from tidegate.beside import THIS_MACHINE, Beside
from tidegate.engine.board import Board
from tidegate.engine.lookout import Sight
from tidegate.engine.lost import Loss, records_lost
from tidegate.engine.starting import Found, Starting
from tidegate.errors import BrokerRefused, BrokerUnreachable, DatabaseUnreachable, TopicMissing
from tidegate.kafka.member import Member
from tidegate.records import Commit, Partition, Position

logger = logging.getLogger("tidegate.marks")

ASK_AGAIN_SECONDS = 1.0
UNREAD_SECONDS = 5.0
"""Readers learn late of a topic or partition that has just come: only what stays unreadable ends the run."""
UNREAD_AGAIN_SECONDS = 0.5
UNREAD_FORGOTTEN_SECONDS = 60.0


@dataclass(frozen=True)
class MarksFound:
    """The marks of partitions that were assigned, or why they could not be read."""

    epochs: Mapping[Partition, int]
    found: Future[Found]


class MarkFinder:
    """Asks the broker in a thread of its own: reading marks blocks while a transaction is open."""

    def __init__(
        self,
        board: Board,
        starting: Starting,
        post: Callable[[MarksFound], None],
        beside: Beside = THIS_MACHINE,
    ) -> None:
        self._board = board
        self._now = beside.now
        self._starting = starting
        self._post = post
        self._asker = beside.open_asker("marks")
        self._unplaced: dict[Partition, int] = {}
        self._unread: dict[Partition, tuple[int, float, float]] = {}
        """Partitions that rounds cannot read: at which mark, since when, and when that was last so."""
        self._is_asking = False
        self._not_before = 0.0

    def want(self, epochs: Mapping[Partition, int]) -> None:
        """Find the marks of these partitions, in these epochs."""
        self._unplaced |= epochs

    def doubt(self, partitions: Iterable[Partition]) -> None:
        """Look whether the marks of these are still in their logs; they are not leased before."""
        self._board.doubt(partitions)

    def doubt_unread(self, partitions: list[Partition], why: str) -> None:
        """The same, because a round could not read them. If that is no loss and does not pass, the run ends."""
        now = self._now()
        marks = self._board.marks
        for partition in partitions:
            mark, since, last = self._unread.get(partition, (-1, now, now))
            # An idle partition stands at the same mark for days: another moment of trouble is not the same one.
            is_same = marks.get(partition, -1) == mark and now - last < UNREAD_FORGOTTEN_SECONDS
            self._unread[partition] = (marks.get(partition, -1), since if is_same else now, now)
            if now - self._unread[partition][1] > UNREAD_SECONDS:
                raise BrokerRefused(f"records cannot be read: {why}", "check that the topic exists and may be read")
        self._board.doubt(partitions)
        self._not_before = now + UNREAD_AGAIN_SECONDS

    def leave(self, topics: Iterable[str]) -> list[Loss]:
        """These topics were deleted and nobody waits for them; return what went with them. Forget them first."""
        return self._starting.leave(topics)

    def note_ends(self, sight: Sight) -> None:
        """Keep where the logs ended: should a topic be made anew, that says how much was in the old one."""
        self._starting.note_ends(sight.ends, {name: info.topic_id for name, info in sight.topics.items()})

    def forget(self, partitions: Iterable[Partition]) -> None:
        """These are no longer ours. Call it while the board still knows them."""
        for partition in partitions:
            self._unplaced.pop(partition, None)
            self._unread.pop(partition, None)
            owned = self._board.owned.get(partition)
            if owned is not None and owned.position is not None:
                self._starting.remember(partition, owned.position)

    def ask(self, member: Member) -> None:
        """Begin to read, if something is wanted.

        Not while a commit is on its way: it could land after the reading and be taken back by the next.
        """
        if self._is_asking or member.is_committing or self._now() < self._not_before:
            return
        doubted = {tp: epoch for tp, epoch in self._board.doubted.items() if tp not in self._unplaced}
        epochs = {**doubted, **self._unplaced}
        if not epochs:
            return
        standing = {tp: one.position for tp in doubted if (one := self._board.owned[tp]).position is not None}
        self._is_asking = True
        future = self._asker.submit(self._starting.find, list(self._unplaced), standing)
        future.add_done_callback(lambda found: self._post(MarksFound(epochs, found)))

    def place(self, answer: MarksFound, member: Member) -> list[Loss]:
        """Put what was found on the board; return what was lost. Raises what no second try will cure."""
        self._is_asking = False
        try:
            found = answer.found.result()
        except (BrokerUnreachable, DatabaseUnreachable, TopicMissing) as error:
            # A topic that is missing may be in the middle of being made anew; one that stays away ends the run.
            self._not_before = self._now() + ASK_AGAIN_SECONDS
            logger.warning("the marks cannot be read yet: %s", error.happened, extra={"action": "marks_unread"})
            return []
        losses = [one for one in found.losses if self._is_ours(one.partition, answer.epochs)]
        self._stop_where_asked(losses)
        # Where a rewind was sent and not answered, that comes first.
        losses = [one for one in losses if self._board.begin_move(one.partition, answer.epochs[one.partition], "lost")]
        resets = {one.partition: one for one in losses if one.resume is not None}
        if found.waiting:
            self._not_before = self._now() + ASK_AGAIN_SECONDS
        if not self._commit(found.chosen, resets, found.topic_ids, member):
            self._not_before = self._now() + ASK_AGAIN_SECONDS
            return []
        for positions, is_committed in ((found.committed, True), (found.chosen, True), (found.fresh, False)):
            for partition, position in positions.items():
                stands = is_committed and partition not in found.behind
                self._place_one(answer.epochs, found, partition, position, is_committed=stands)
        for partition in found.trusted:
            self._board.trust(partition, answer.epochs[partition])
        for loss in losses:
            self._reset(loss, answer.epochs[loss.partition])
        for loss in found.vanished:
            self._board.remove([loss.partition])
            self._starting.forget(loss.partition)
        return [*losses, *found.vanished]

    def close(self) -> None:
        """Ask no more."""
        self._asker.shutdown(wait=False)

    def _is_ours(self, partition: Partition, epochs: Mapping[Partition, int]) -> bool:
        owned = self._board.owned.get(partition)
        return owned is not None and owned.epoch == epochs.get(partition)

    def _stop_where_asked(self, losses: list[Loss]) -> None:
        stopping = [loss for loss in losses if loss.resume is None]
        for loss in stopping:
            # The broker dropped the commit with the old topic. It is made again, under the old topic's
            # id, so that the next start stops here too instead of beginning with the new one.
            self._board.commit_again(loss.partition)
        if stopping:
            raise records_lost(stopping)

    def _reset(self, loss: Loss, epoch: int) -> None:
        if loss.resume is None or loss.log is None:
            return
        if not self._board.reset(loss.partition, epoch, loss.resume, loss.log.end):
            return
        self._starting.remember(loss.partition, loss.resume, loss.log.topic_id)
        self._unplaced.pop(loss.partition, None)
        self._unread.clear()  # whatever could not be read beside it has its reason here

    def _place_one(
        self,
        epochs: Mapping[Partition, int],
        found: Found,
        partition: Partition,
        position: Position,
        *,
        is_committed: bool,
    ) -> None:
        epoch = epochs.get(partition)
        if epoch is None:
            return
        if self._board.place(partition, epoch, position, is_committed=is_committed):
            self._starting.remember(partition, position, found.topic_ids[partition.topic])
        if self._unplaced.get(partition) == epoch:
            del self._unplaced[partition]

    def _commit(
        self,
        chosen: Mapping[Partition, Position],
        resets: Mapping[Partition, Loss],
        topic_ids: Mapping[str, str],
        member: Member,
    ) -> bool:
        """Commit chosen positions before the first lease: other members wait for them, and no crash chooses again."""

        def coded(tp: Partition, position: Position, left: int | None = None) -> Commit:
            return Commit(position.mark, self._starting.metadata_for(tp, position, topic_ids[tp.topic], left=left))

        starts = {tp: coded(tp, one) for tp, one in chosen.items()}
        # A table is moved before the group: should that not follow, what was left says that it is to.
        moves = {tp: coded(tp, one.resume, one.mark) for tp, one in resets.items() if one.resume is not None}
        if not starts and not moves:
            return True
        try:
            if self._starting.enter(starts) != starts or not self._starting.move(moves):
                return False  # somebody else was quicker: what it stored is found when we ask again
        except DatabaseUnreachable as error:
            logger.warning("the marks cannot be stored yet: %s", error.happened, extra={"action": "marks_unread"})
            return False
        return not member.commit_now({**starts, **moves})
