"""Drivers that lie, each in one way: a simulation that does not notice them proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace

from tests.simulation.lie import Lie
from tests.simulation.once_lies import ONCE_LIES
from tests.simulation.simulation import Made
from tidegate.engine.board import Board
from tidegate.engine.cancelled import Cancelled
from tidegate.engine.committer import Committer
from tidegate.engine.driver import Driver
from tidegate.engine.finish import EndsFound, Finish, Stand
from tidegate.engine.frame_board import FrameBoard
from tidegate.engine.owned import Accepted, Mover, Owned
from tidegate.engine.rewinder import Rewinder
from tidegate.engine.starting import Starting
from tidegate.kafka.member import Member, Refused
from tidegate.records import Commit, Lease, Outcome, Partition, PartitionOutcome, Position


class CommitsTheRecordAtTheMark(Board):
    """Commits the offset of the first record that is not settled, plus one."""

    def uncommitted(self) -> dict[tuple[Partition, int], Position]:
        return {key: replace(one, mark=one.mark + 1) for key, one in super().uncommitted().items()}


class BelievesOldEpochs(Board):
    """Takes an outcome for true, whatever epoch it is of."""

    def accept(self, outcome: Outcome, now: float = 0.0) -> Accepted:
        return super().accept(replace(outcome, partitions=tuple(map(self._renew, outcome.partitions))), now)

    def _renew(self, item: PartitionOutcome) -> PartitionOutcome:
        owned = self._owned.get(item.partition)
        return item if owned is None else replace(item, epoch=owned.epoch)


class KeepsWhatItGaveBack(Board):
    """Goes on with partitions that were given back."""

    def remove(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            if partition in self._owned:
                self._owned[partition].is_closing = False


class ForgetsAhead(Board):
    """Begins at the mark, and knows nothing of what is settled beyond."""

    def place(self, partition: Partition, epoch: int, position: Position, *, is_committed: bool) -> bool:
        return super().place(partition, epoch, replace(position, ahead=()), is_committed=is_committed)


class LeasesTwice(Board):
    """Sees nothing that is leased already."""

    @property
    def _busy(self) -> set[Partition]:
        return set()

    def leases(self, now: float = 0.0) -> list[Lease]:
        for owned in self._owned.values():
            owned.lane = None
        return super().leases(now)


class LosesFailures(Board):
    """Forgets that a record has failed for good."""

    def accept(self, outcome: Outcome, now: float = 0.0) -> Accepted:
        parts = tuple(replace(item, failure=None) for item in outcome.partitions)
        return super().accept(replace(outcome, partitions=parts), now)

    def hear(self, report: Outcome, now: float = 0.0) -> Accepted | None:
        parts = tuple(replace(item, failure=None) for item in report.partitions)
        return super().hear(replace(report, partitions=parts), now)


class ForgetsAttempts(Board):
    """Forgets how often a record was tried."""

    def _believe(self, outcome: Outcome, now: float, *, is_final: bool) -> Accepted:
        parts = tuple(replace(item, open=()) for item in outcome.partitions)
        return super()._believe(replace(outcome, partitions=parts), now, is_final=is_final)


class HearsTheDead(Board):
    """Believes live reports of rounds that are over."""

    def hear(self, report: Outcome, now: float = 0.0) -> Accepted | None:
        return self._believe(report, now, is_final=False)


class MovesBack(Board):
    """Takes every mark that it hears of, in whichever order."""

    def hear(self, report: Outcome, now: float = 0.0) -> Accepted | None:
        self._heard.clear()
        return super().hear(report, now)

    def _believe(self, outcome: Outcome, now: float, *, is_final: bool) -> Accepted:
        for item in outcome.partitions:
            owned = self._owned.get(item.partition)
            if owned is not None and owned.epoch == item.epoch and owned.position is not None:
                owned.position = item.position
        return super()._believe(outcome, now, is_final=is_final)


class TakesMovesBack(Board):
    """Commits where it stood before on top of a move that was sent and not answered."""

    def begin_move(self, partition: Partition, epoch: int, mover: Mover) -> bool:
        owned = self._owned.get(partition)
        return owned is not None and owned.epoch == epoch and mover in ("lost", "rewind")


class RewindsInTheSameEpoch(Board):
    """Does not raise the epoch at a rewind."""

    def reset(self, partition: Partition, epoch: int, position: Position, end: int) -> bool:
        done = super().reset(partition, epoch, position, end)
        if done:
            self._owned[partition].epoch = epoch
        return done


class _NothingFlies:
    """A board on which no round is ever seen."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def flying(self, _partitions: object = None) -> list[Lease]:
        return []

    def __getattr__(self, name: str) -> object:
        return getattr(self._board, name)


class RewindsUnderARound(Rewinder):
    """Does not wait for the rounds on what it rewinds."""

    def __init__(self, board: Board, *more: object) -> None:
        super().__init__(_NothingFlies(board), *more)  # type: ignore[arg-type]  # that is the lie


class RewindsBeforeTheCommit(Rewinder):
    """Does not wait until what was settled is committed."""

    def _stands(self, partition: Partition) -> bool:
        return self._board.owned[partition].position is not None


class TakesRefusalsForYes(Committer):
    """Counts a refused commit as taken."""

    def answered(self, taken: Mapping[Partition, Commit], refused: Mapping[Partition, Refused]) -> None:
        super().answered({**taken, **dict.fromkeys(refused, Commit(0, ""))}, {})


class GivesBackUncommitted(Committer):
    """Gives partitions back without committing what was settled."""

    def flush(self, member: Member, partitions: Iterable[Partition], budget_seconds: float) -> bool:
        return (member, partitions) is not None and budget_seconds > 0


class DoesNotWaitAtRevoke(Driver):
    """Gives partitions back while rounds work on them."""

    def _wait_for_rounds(
        self, partitions: list[Partition] | None, budget_seconds: float, meanwhile: Callable[[], None]
    ) -> tuple[Partition, ...]:
        return () if partitions is not None else super()._wait_for_rounds(partitions, budget_seconds, meanwhile)


class LetsLostRoundsRun(Driver):
    """Lets rounds that do not hear it go on when their partitions are somebody else's."""

    def _lost(self, partitions: list[Partition]) -> None:
        self._forget(partitions)


class KeepsWhatItLost(Driver):
    """Goes on with partitions of which it is told that they are somebody else's."""

    def _lost(self, partitions: list[Partition]) -> None:
        pass


class SpinsAtTheEnd(Driver):
    """Polls without a pause while it waits to send its last commit again."""

    def _stay_member(self, member: Member) -> None:
        self._committer.send(member)
        member.poll(0.002 if member.is_committing else 0.0)


class _Gone(Cancelled):
    def ended(self, lease: Lease, now: float, *, is_shut_out: bool) -> None:
        assert is_shut_out in (True, False)
        super().ended(lease, now, is_shut_out=True)


class IgnoresZombies(Driver):
    """Takes a cancelled round for gone, although its task lives on."""

    def run(self, *what: object) -> object:  # type: ignore[override]  # that is the lie
        self._cancelled = _Gone()
        return super().run(*what)  # type: ignore[arg-type]

    def _wait_for_rounds(
        self, partitions: list[Partition] | None, budget_seconds: float, meanwhile: Callable[[], None]
    ) -> tuple[Partition, ...]:
        deadline = self._now() + budget_seconds
        while (flying := self._board.flying(partitions)) and self._now() < deadline:
            self._take_events(0.05)
            self._lease()
            meanwhile()
        for lease in flying:
            self._cancel(lease)
        return tuple(item.partition for lease in flying for item in lease.partitions)


class ChoosesBlindly(Starting):
    """Does not look again before it commits where a group begins."""

    def _still_to_choose(self, chosen: Mapping[Partition, Position]) -> dict[Partition, Position]:
        return dict(chosen)


class EndsWithNothing(Finish):
    """Takes nothing for everything: where it owns no partition, it is over."""

    def is_over(self, board: Board) -> bool:
        return board.has_caught_up and (not board.owned or super().is_over(board))


class EndsWithItsOwn(Finish):
    """Ends when its own partitions are at their ends, whatever others have left, or lose."""

    def is_over(self, board: Board) -> bool:
        return board.has_caught_up and (bool(board.owned) or super().is_over(board))


class AsksForTheEndsFirst(Finish):
    """Asks where the retry topics end before it asks what is committed."""

    def _look(self, others: list[Partition], retries: list[Partition]) -> Stand:
        ends = self._ends(retries) if retries else {}
        return replace(super()._look(others, retries), retry_ends=ends)


class SeesWhatCanBeReadAlone(Finish):
    """Takes the retry topic for read where a transaction lies in it that has not ended."""

    def _look(self, others: list[Partition], retries: list[Partition]) -> Stand:
        return replace(super()._look(others, retries), unended=())


class LeavesRetriesUnread(Finish):
    """Ends when the sources are read, whatever lies in the retry topic."""

    def take(self, ends: EndsFound, board: Board) -> None:
        if ends.found.exception() is None:
            found: Future[Stand] = Future()
            found.set_result(replace(ends.found.result(), retry_ends={}))
            ends = EndsFound(found)
        super().take(ends, board)


class EndsUncommitted(Board):
    """Ends as soon as everything is settled, whether the group has it or not."""

    @property
    def has_caught_up(self) -> bool:
        return self._ends is not None and all(one.has_reached_end for one in self._owned.values())


class WritesWithoutAll(FrameBoard):
    """Begins a planned round before it is known where all its partitions stand."""

    @property
    def _is_complete(self) -> bool:
        return not self.missing


class ForgetsThePlan(FrameBoard):
    """Does not see that a round was planned, and may have been written, before the partition came."""

    def place(self, partition: Partition, epoch: int, position: Position, *, is_committed: bool) -> bool:
        return super().place(partition, epoch, replace(position, planned=None), is_committed=is_committed)


class WritesBeforeTheCommit(FrameBoard):
    """Begins a planned round before the broker has the plan."""

    @staticmethod
    def _is_due(one: Owned) -> bool:
        return one.may_be_leased and one.parked_until is None


LIES: dict[str, Lie] = {
    **ONCE_LIES,
    "commits past a record that is not settled": Lie(Made(board=CommitsTheRecordAtTheMark)),
    "believes an outcome of an old epoch": Lie(Made(board=BelievesOldEpochs, rewinder=RewindsUnderARound), ("rewind",)),
    "goes on with what it gave back": Lie(Made(board=KeepsWhatItGaveBack)),
    "forgets ahead when a partition comes": Lie(Made(board=ForgetsAhead)),
    "leases a partition twice": Lie(Made(board=LeasesTwice), first=50),
    "rewinds under a running round": Lie(Made(board=RewindsInTheSameEpoch, rewinder=RewindsUnderARound), first=90),
    "rewinds before the commit": Lie(Made(rewinder=RewindsBeforeTheCommit), ("rewind", "deaf"), first=3700),
    "takes a cancelled round for gone": Lie(Made(driver=IgnoresZombies)),
    "loses a failure": Lie(Made(board=LosesFailures)),
    "forgets attempts": Lie(Made(board=ForgetsAttempts)),
    "hears rounds that are over": Lie(Made(board=HearsTheDead), first=60),
    "lets marks move back": Lie(Made(board=MovesBack), first=180),
    "takes a move back whose answer was lost": Lie(Made(board=TakesMovesBack), ("retention", "deaf"), first=3400),
    "takes a refused commit for taken": Lie(Made(committer=TakesRefusalsForYes)),
    "gives back without a commit": Lie(Made(committer=GivesBackUncommitted)),
    "gives back while rounds run": Lie(Made(driver=DoesNotWaitAtRevoke)),
    "lets rounds on lost partitions run": Lie(Made(driver=LetsLostRoundsRun), ("freeze", "cut", "cut"), first=690),
    "goes on with what it lost": Lie(Made(driver=KeepsWhatItLost), ("disown",)),
    "spins while it waits for its last commit": Lie(Made(driver=SpinsAtTheEnd), ("loading", "stop")),
    "chooses a start blindly": Lie(Made(starting=ChoosesBlindly), ("slow", "stop"), first=700),
    "ends as caught up where it owns nothing": Lie(Made(finish=EndsWithNothing)),
    "ends as caught up with its own alone": Lie(Made(finish=EndsWithItsOwn)),
    "asks for the ends of the retry topic too early": Lie(
        Made(finish=AsksForTheEndsFirst), ("slow", "stop"), first=8100
    ),
    "takes for read what lies in a transaction": Lie(
        Made(finish=SeesWhatCanBeReadAlone), store="kafka", first=1_200_006_900
    ),
    "leaves the retry topic unread": Lie(Made(finish=LeavesRetriesUnread)),
    "ends as caught up with a commit on its way": Lie(Made(board=EndsUncommitted), ("disown",), first=200),
    "writes a planned round without all of it": Lie(Made(frame_board=WritesWithoutAll), is_frames=True, first=70),
    "forgets a planned round": Lie(Made(frame_board=ForgetsThePlan), is_frames=True, first=120),
    "writes before the plan is committed": Lie(Made(frame_board=WritesBeforeTheCommit), is_frames=True, first=120),
}
