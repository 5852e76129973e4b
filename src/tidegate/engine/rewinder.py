"""A running pipeline rewinds itself: the broker takes commits from members alone.

Its partitions are held, so that their rounds end and what they settled is committed. Then the new mark is stored,
without *ahead*, in a new epoch, and they are leased again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

from tidegate.beside import THIS_MACHINE, Beside
from tidegate.engine.backing import Backer
from tidegate.engine.board import Board
from tidegate.engine.starting import Moved, Starting
from tidegate.engine.wording import names
from tidegate.errors import BrokerUnreachable, DatabaseUnreachable, RewindRefused, TidegateError, Unavailable
from tidegate.kafka.member import Member
from tidegate.records import Partition
from tidegate.store import Overtaken

logger = logging.getLogger("tidegate.rewind")

AGAIN_SECONDS = 1.0


@dataclass(frozen=True)
class RewindAsked:
    """Somebody wants partitions of ours to go on elsewhere."""

    replay: int
    """The number of this rewind: larger than that of every earlier one of the same partition."""
    moves: Mapping[Partition, int]
    answer: Future[Mapping[Partition, int]] = field(default_factory=Future)
    """Where they stand then, or why they were not moved."""


@dataclass(frozen=True)
class MovesReady:
    """Where partitions can go on, stored wherever else than in the group marks are stored."""

    epochs: Mapping[Partition, int]
    moved: Future[dict[Partition, Moved]]


@dataclass(frozen=True)
class MovesStored:
    """What became of moves of partitions whose late rounds may commit still."""

    epochs: Mapping[Partition, int]
    moved: Mapping[Partition, Moved]
    stored: Future[None]


@dataclass
class _Rewind:
    asked: RewindAsked
    left: dict[Partition, int]
    done: dict[Partition, int] = field(default_factory=dict)
    is_begun: bool = False
    """Something of it may be stored: from then on it is brought to its end, whoever wants it back."""
    was_tried: bool = False
    """A try at it may have stored something, in the table or in the group."""

    def begin(self) -> bool:
        """Begin, unless it was taken back; who tries to from now on hears that it is too late."""
        self.is_begun = self.is_begun or self.asked.answer.set_running_or_notify_cancel()
        return self.is_begun


class Rewinder:
    """Carries rewinds out, one after the other. Used by the driver's thread; what blocks is asked in one of its own."""

    def __init__(
        self,
        board: Board,
        starting: Starting,
        post: Callable[[MovesReady | MovesStored], None],
        beside: Beside = THIS_MACHINE,
        backer: Backer | None = None,
    ) -> None:
        self._board, self._backer = board, backer
        self._now = beside.now
        self._starting = starting
        self._post = post
        self._asker = beside.open_asker("rewind")
        self._waiting: list[_Rewind] = []
        self._is_asking = False
        self._not_before = 0.0

    def want(self, asked: RewindAsked) -> None:
        """Begin a rewind. What an earlier one with the same number has moved already stays where it is."""
        strangers = [tp for tp in asked.moves if tp not in self._board.owned]
        if strangers:
            self._refuse(asked, f"{', '.join(map(str, strangers))} belong to another process of the group")
            return
        rewind = _Rewind(asked, dict(asked.moves))
        self._waiting.append(rewind)
        self._board.hold(rewind.left)
        logger.info(
            "a rewind was asked for: %s",
            ", ".join(f"{tp} to {mark}" for tp, mark in sorted(asked.moves.items())),
            extra={"action": "rewind_asked"},
        )

    def turn(self, member: Member) -> None:
        """Go on with the first rewind, if its rounds are back."""
        if not self._waiting or self._is_asking or member.is_committing or self._now() < self._not_before:
            return
        rewind = self._waiting[0]
        self._drop_known(rewind)
        if not rewind.left:
            self._end(rewind)
            return
        if rewind.asked.answer.cancelled():
            logger.warning("a rewind was taken back: %s", names(rewind.left), extra={"action": "rewind_refused"})
            self._leave(rewind)
            return
        self._board.hold(rewind.left)  # again: a partition that went and came back is held by nobody
        if self._board.flying(rewind.left) or not all(map(self._stands, rewind.left)):
            return
        epochs = {tp: self._board.owned[tp].epoch for tp in rewind.left}
        known = {tp: self._board.owned[tp].position for tp in rewind.left}
        finished = {tp: one.finished for tp, one in known.items() if one is not None}
        if self._starting.has_table and not rewind.begin():  # marks beside rows are moved before we hear of it
            return
        self._is_asking = True
        future = self._asker.submit(self._starting.rewind, dict(rewind.left), rewind.asked.replay, finished)
        future.add_done_callback(lambda moved: self._post(MovesReady(epochs, moved)))

    def take(self, ready: MovesReady | MovesStored, member: Member) -> None:
        """Commit where the partitions go on, and lease them again from there."""
        self._is_asking = False
        if isinstance(ready, MovesStored):
            self._take_stored(self._waiting[0], ready)
        else:
            self._commit(self._waiting[0], ready, member)

    def _commit(self, rewind: _Rewind, ready: MovesReady, member: Member) -> None:
        try:
            moved = ready.moved.result()
        except (BrokerUnreachable, DatabaseUnreachable) as error:
            logger.warning("the rewind has to wait: %s", error.happened, extra={"action": "rewind_waits"})
            self._not_before = self._now() + AGAIN_SECONDS
            rewind.was_tried |= isinstance(error, DatabaseUnreachable)  # it may have done it before it went
            return
        except TidegateError as error:
            self._refuse(rewind.asked, error.happened, "perhaps" if rewind.was_tried else "not")
            self._leave(rewind)
            return
        if not rewind.begin():
            return
        ours = {tp: one for tp, one in moved.items() if self._board.begin_move(tp, ready.epochs[tp], "rewind")}
        rewind.was_tried |= self._starting.has_table or bool(ours)
        lanes = {tp: self._board.owned[tp].bound for tp in ours} if self._backer is not None else {}
        plain = {tp: one for tp, one in ours.items() if lanes.get(tp) is None}
        refused = member.commit_now({tp: one.commit for tp, one in plain.items()}) if plain else {}
        self._reset(rewind, ready.epochs, {tp: one for tp, one in plain.items() if tp not in refused})
        lane = min((one for one in lanes.values() if one is not None), default=None)
        if lane is not None and self._backer is not None:  # other lanes have their turn when this one is done
            shared = {tp: one for tp, one in ours.items() if lanes[tp] == lane}
            self._is_asking = True
            stored = self._backer.rewind(member, lane, {tp: one.commit for tp, one in shared.items()})
            stored.add_done_callback(lambda done: self._post(MovesStored(ready.epochs, shared, done)))
        elif rewind.left:
            self._not_before = self._now() + AGAIN_SECONDS

    def _take_stored(self, rewind: _Rewind, ready: MovesStored) -> None:
        try:
            ready.stored.result()
        except (BrokerUnreachable, Unavailable, Overtaken) as error:
            logger.warning("the rewind has to wait: %s", error, extra={"action": "rewind_waits"})
            self._not_before = self._now() + AGAIN_SECONDS
        except TidegateError as error:
            self._refuse(rewind.asked, error.happened, "perhaps")
            self._leave(rewind)
        else:
            self._reset(rewind, ready.epochs, ready.moved)

    def _reset(self, rewind: _Rewind, epochs: Mapping[Partition, int], moved: Mapping[Partition, Moved]) -> None:
        for tp, one in moved.items():
            if self._board.reset(tp, epochs[tp], one.position, one.end):
                self._starting.remember(tp, one.position, one.topic_id)
                rewind.done[tp] = one.position.mark
                del rewind.left[tp]

    def close(self) -> None:
        """Ask no more; what was not done is said to be so."""
        self._asker.shutdown(wait=False)
        for rewind in self._waiting:
            if rewind.is_begun:
                self._refuse(rewind.asked, "the run ended in the middle of it", "perhaps")
            else:
                self._refuse(rewind.asked, "the run ended before")

    def _stands(self, partition: Partition) -> bool:
        """Whether the group has all that we know of a partition.

        Otherwise: the broker takes the rewind, its answer is lost, and the next commit of ours takes it back.
        """
        owned = self._board.owned[partition]
        return owned.position is not None and owned.position == owned.committed and owned.mover != "lost"

    def _drop_known(self, rewind: _Rewind) -> None:
        """What went to another process is moved there, if it hears of it; what was moved already is done."""
        for tp in list(rewind.left):
            owned = self._board.owned.get(tp)
            if owned is None:
                del rewind.left[tp]
            elif owned.position is not None and owned.position.replay >= rewind.asked.replay:
                rewind.done[tp] = owned.position.mark
                del rewind.left[tp]
                self._board.hold([tp], is_held=False)

    def _end(self, rewind: _Rewind) -> None:
        self._leave(rewind)
        gone = [tp for tp in rewind.asked.moves if tp not in rewind.done]
        if gone:
            why = f"{', '.join(map(str, gone))} went to another process of the group meanwhile"
            self._refuse(rewind.asked, why, "perhaps" if rewind.was_tried or rewind.done else "not")
        else:
            with suppress(InvalidStateError):  # taken back in this moment, or answered
                rewind.asked.answer.set_result(dict(rewind.done))
        where = ", ".join(f"{tp} at {mark}" for tp, mark in sorted(rewind.done.items()))
        logger.warning("rewound: %s", where or "nothing", extra={"action": "rewound"})

    def _leave(self, rewind: _Rewind) -> None:
        self._waiting.remove(rewind)
        self._board.hold(rewind.left, is_held=False)
        for tp in rewind.left:
            self._board.end_move(tp, "rewind")

    @staticmethod
    def _refuse(asked: RewindAsked, why: str, how: str = "not") -> None:
        with suppress(InvalidStateError):  # taken back, or answered
            asked.answer.set_exception(
                RewindRefused(
                    f"the group was {how} rewound: {why}", "look where it stands with tidegate lag, and ask again"
                )
            )
