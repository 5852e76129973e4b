"""What the outside sees of a run: its status, twice a second at most, for whoever steers or watches it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from tidegate.beside import THIS_MACHINE, Beside
from tidegate.engine.board import Board
from tidegate.engine.committer import Committer
from tidegate.engine.control import PartitionStatus, RunStatus, State
from tidegate.engine.lookout import Lookout
from tidegate.engine.tally import Tally
from tidegate.kafka.member import Member

EVERY_SECONDS = 0.5
MOST_FAILURES = 50


class Bulletin:
    """Makes a status from what the driver knows. Called by the driver's thread alone; readers get frozen objects."""

    def __init__(
        self,
        run: str,
        tally: Tally,
        lookout: Lookout,
        committer: Committer,
        publish: Callable[[RunStatus], None],
        beside: Beside = THIS_MACHINE,
    ) -> None:
        self._run = run
        self._now = beside.now
        self._tally = tally
        self._lookout = lookout
        self._committer = committer
        self._publish = publish
        self._next = 0.0
        self._state: State = "waiting"

    def tell(self, state: State, board: Board, member: Member, error: Exception | None) -> None:
        """Publish what the run does, if it is time to or its state is another one."""
        now = self._now()
        if now < self._next and state == self._state:
            return
        self._next, self._state = now + EVERY_SECONDS, state
        tally, committer = self._tally, self._committer
        self._publish(
            RunStatus(
                run=self._run,
                group=tally.group,
                member=member.member_id,
                state=state,
                at=datetime.now(UTC),
                began_at=tally.began_at,
                counts=tally.counts,
                rounds=tally.rounds,
                round_seconds=tally.round_seconds,
                commits=committer.answers,
                commit_seconds=committer.answer_seconds,
                lost=tally.lost,
                partitions=self._partitions(board, now),
                failures=tuple(tally.failures[-MOST_FAILURES:]),
                mishaps=tuple(tally.mishaps),
                error=None if error is None else str(error),
            )
        )

    def _partitions(self, board: Board, now: float) -> tuple[PartitionStatus, ...]:
        ends, standing = self._lookout.ends, self._lookout.standing
        leased = {item.partition for lease in board.flying() for item in lease.partitions}
        return tuple(
            PartitionStatus(
                partition=tp,
                mark=None if one.position is None else one.position.mark,
                committed=None if one.committed is None else one.committed.mark,
                replay=0 if one.position is None else one.position.replay,
                end_offset=ends.get(tp),
                is_leased=tp in leased,
                parked_seconds=None if one.parked_until is None else max(0.0, one.parked_until - now),
                open_failures=len(one.open),
                stalled_seconds=standing.get(tp, 0.0),
            )
            for tp, one in sorted(board.owned.items())
        )
