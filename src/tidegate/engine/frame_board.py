"""Pure: the board of a DataFrame pipeline. One round at a time, over ranges that were planned and committed before.

A planned round lies in the positions of its partitions, and so in their commits: a restart finds it there. It is
leased when the broker has all of it. One process has all partitions, or none is leased: two would plan beside each
other, and a writer that goes by growing numbers would drop the lower one in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from tidegate.engine.board import Board
from tidegate.engine.owned import Owned
from tidegate.engine.planning import after
from tidegate.records import Lease, LeasedPartition, Limits, Partition, PlannedRound, Position

LANE = 0


class Ready(NamedTuple):
    """A partition of which a round may be planned."""

    epoch: int
    position: Position
    until: int | None
    """The end offset to reach, where the run is to end when caught up."""


class FrameBoard(Board):
    """What the driver knows, where rounds are DataFrames."""

    def __init__(
        self, limits: Limits, ends: Mapping[Partition, int] | None, wanted: Callable[[], Iterable[Partition]]
    ) -> None:
        """`wanted`: all partitions that the pipeline reads, whoever has them."""
        super().__init__(1, limits, ends)
        self._wanted = wanted
        self._left: set[tuple[Partition, str]] = set()
        """Strangers that have left a round that names them."""
        self._written: set[str] = set()
        """Rounds that strangers have behind them."""

    @property
    def missing(self) -> list[Partition]:
        """The partitions that the group has not given to this process."""
        return sorted(set(self._wanted()) - set(self._owned))

    @property
    def strangers(self) -> dict[Partition, str]:
        """Partitions that a planned round names and this pipeline does not read, with the name of that round.

        It may have been written with them. Done without them, under its name, it would leave them planned, and
        whoever reads them later would take them for written.
        """
        if self._is_stopping:
            return {}
        here = {*self._wanted(), *self._owned}
        planned = [one.position.planned for one in self._owned.values() if one.position is not None]
        named = [(tp, one.id) for one in planned if one is not None for tp in one.partitions if tp not in here]
        return {tp: id_ for tp, id_ in named if (tp, id_) not in self._left}

    def heed(self, strangers: Mapping[Partition, str], found: Mapping[Partition, Position]) -> list[Partition]:
        """Take where strangers stand; return those that still are where the round was planned from."""
        still = []
        for tp, id_ in strangers.items():
            stands = found.get(tp, Position(0))
            if stands.planned is not None and stands.planned.id == id_:
                still.append(tp)
                continue
            self._left.add((tp, id_))
            if stands.finished == id_:
                self._written.add(id_)
        return still

    @property
    def owns_first(self) -> bool:
        """Whether the first partition of all is ours: of several processes, this is the one that stays."""
        return min(self._wanted(), default=None) in self._owned

    @property
    def plannable(self) -> dict[Partition, Ready]:
        """The partitions of which a round may be planned now."""
        if self._is_stopping or self.is_paused or self._flying or not self._is_complete or self._pending() is not None:
            return {}
        # Of all partitions, also those that are at their end: else the next round could finish first, and nobody
        # would know any more that the last one was written.
        if any(one.position != one.committed for one in self._owned.values() if one.position is not None):
            return {}
        ready = [one for one in self._owned.values() if one.may_be_leased and one.parked_until is None]
        return {one.partition: Ready(one.epoch, one.position, one.until) for one in ready if one.position is not None}

    def plan(self, planned: Mapping[Partition, PlannedRound], epochs: Mapping[Partition, int]) -> bool:
        """Take a planned round on, to be committed and then leased; False if something has changed meanwhile."""
        here = self.plannable
        if any(tp not in here or here[tp].epoch != epochs[tp] for tp in planned):
            return False
        for tp, one in planned.items():
            stood = here[tp].position
            self._owned[tp].position = Position(stood.mark, stood.ahead, {}, stood.replay, one, stood.finished)
        return True

    def leases(self, now: float = 0.0) -> list[Lease]:
        """Return the planned round, if all of it is ours, committed and due."""
        if self._is_stopping or self.is_paused or self._flying or not self._is_complete or self.strangers:
            return []
        for one in self._owned.values():
            if one.parked_until is not None and one.parked_until <= now:
                one.parked_until = None
        self._adopt_finished()
        members = self._pending()
        if members is None or not all(map(self._is_due, members)):
            return []
        number = next(self._rounds)
        shares = tuple(map(_share, members))
        self._flying[LANE] = Lease(LANE, number, shares, self._limits, self._run)
        return [self._flying[LANE]]

    def workable_marks(self, now: float) -> dict[Partition, int]:
        """The marks that should move: none while a round runs, which may take as long as its writer does."""
        return {} if self._flying or self.missing else super().workable_marks(now)

    @property
    def _is_complete(self) -> bool:
        """Whether every partition is ours, and it is known where each stands.

        Otherwise: a partition comes back and its mark is still being read; the planned round is written without it,
        and when its mark is there, it counts as written too.
        """
        return not self.missing and all(one.position is not None for one in self._owned.values())

    def _pending(self) -> list[Owned] | None:
        """Return the partitions of the oldest planned round; None if nothing is planned.

        A partition that it names may have left it: it was rewound, or went with its topic. The others repeat their
        ranges under the same name.
        """
        rounds: dict[str, list[Owned]] = {}
        for one in self._owned.values():
            if one.position is not None and one.position.planned is not None:
                rounds.setdefault(one.position.planned.id, []).append(one)
        return sorted(rounds[min(rounds)], key=lambda one: one.partition) if rounds else None

    def _adopt_finished(self) -> None:
        """A round that one of its partitions has behind it is written: its commit reached the broker only in part."""
        finished = {one.position.finished for one in self._owned.values() if one.position is not None} | self._written
        for one in self._owned.values():
            if one.position is not None and one.position.planned is not None and one.position.planned.id in finished:
                one.position = after(one.position)

    @staticmethod
    def _is_due(one: Owned) -> bool:
        """Whether nothing keeps it from its round. Where the run is to end does not: a planned round is done whole."""
        return one.is_free and one.position == one.committed and one.parked_until is None


def _share(one: Owned) -> LeasedPartition:
    if one.position is None:
        raise ValueError(f"{one.partition} has no mark yet")  # `_pending` asks for one
    return LeasedPartition(one.partition, one.epoch, one.position, one.until, one.open)
