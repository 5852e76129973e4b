"""The driver's loop: leases out, outcomes in, marks committed. One thread does all of it.

The steps of a commit, the same numbers as in docs/guarantees.md: (1) read, (2) run the steps,
(3) settle, (4) return the outcome: `task.py`; (5) check that the partition is ours, in the same
epoch, and that the mark grows: `board.py`; (6) commit mark and *ahead*: `committer.py`.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime

from tidegate.beside import THIS_MACHINE, Beside
from tidegate.engine.backing import ShutOut
from tidegate.engine.births import Births
from tidegate.engine.board import Board
from tidegate.engine.cancelled import ZOMBIE_SECONDS, Cancelled
from tidegate.engine.committer import Committer
from tidegate.engine.control import Asked, PauseAsked, State, StopAsked
from tidegate.engine.events import Event, Events, Helpers, RoundReported
from tidegate.engine.finish import EndsFound
from tidegate.engine.lanes import Lanes, RoundEnded
from tidegate.engine.lookout import Looked, Sight
from tidegate.engine.lost import Loss
from tidegate.engine.marks import MarksFound
from tidegate.engine.owned import Accepted
from tidegate.engine.rewinder import MovesReady, MovesStored, RewindAsked
from tidegate.engine.spark import NeverBegan, RoundDied
from tidegate.engine.tally import Tally
from tidegate.engine.topics import Topics
from tidegate.engine.wording import broken, deleted, died, names, replaced, stalled
from tidegate.errors import BrokerRefused, TidegateError
from tidegate.kafka.member import Callbacks, Member
from tidegate.pipeline import Source
from tidegate.records import Lease, Outcome, Partition, Report
from tidegate.settings import CANCEL_SECONDS

logger = logging.getLogger("tidegate.run")

COMMIT_SECONDS = 10.0
TURN_SECONDS = 0.05


class Driver:
    """One run. Everything but `ask_to_stop` belongs to the thread that calls `run`."""

    def __init__(
        self,
        board: Board,
        lanes: Lanes,
        helpers: Helpers,
        committer: Committer,
        tally: Tally,
        events: Events,
        *,
        stop_seconds: float,
        beside: Beside = THIS_MACHINE,
    ) -> None:
        self._board = board
        self._now = beside.now
        self._lanes = lanes
        self._helpers = helpers
        self._marks, self._lookout, self._backer = helpers.marks, helpers.lookout, helpers.backer
        self._committer = committer
        self._tally = tally
        self._events = events
        self._stop_seconds = stop_seconds
        self._is_stopping = False
        self._has_joined = False
        self._has_new_list = False
        self._cancelled, self._births = Cancelled(), Births()
        self._fatal: TidegateError | None = None
        self._unfinished: tuple[Partition, ...] = ()
        self._ended_at = datetime.now(UTC)

    def ask_to_stop(self) -> None:
        """End in good order. Safe from any thread and from a signal handler."""
        self._events.put(StopAsked())

    def run(self, open_member: Callable[[Callbacks], Member], topics: Topics, source: Source) -> Report:
        """Join, work until it is over, wind down, leave; raise what made the work impossible."""
        self._topics, self._source = topics, source
        callbacks = Callbacks(self._gained, self._revoked, self._lost, self._committer.answered)
        self._member = member = open_member(callbacks)
        try:
            member.join(topics.names)
            while not self._is_over():
                self._turn(member)
        except TidegateError as error:
            self._end_with(error)
        self._wind_down(member)
        if self._fatal is not None:
            raise self._fatal
        return self._tally.report(self._unfinished, self._ended_at)

    # --- the loop

    def _is_over(self) -> bool:
        if self._is_stopping or self._tally.failures or self._fatal is not None:
            return True
        return self._has_joined and self._helpers.finish.is_over(self._board)

    def _end_with(self, error: TidegateError) -> None:
        """Remember the first error that makes the work impossible; the loop ends with it."""
        self._fatal = self._fatal or error

    def _turn(self, member: Member) -> None:
        """Take what happened, commit it, lease what is free."""
        self._take_events(0.0 if member.is_committing else TURN_SECONDS)
        self._lease()
        self._committer.send(member)
        member.poll(0.002 if member.is_committing else 0.0)
        if self._committer.fatal is not None:
            self._end_with(self._committer.fatal)
        self._follow_pattern(member)
        self._helpers.rewinder.turn(member)
        self._marks.ask(member)
        self._lookout.look(self._board)
        self._helpers.look_at_the_clock()
        self._tally.tell(self._board.owned)
        self._tell_state("starting" if not self._has_joined else "paused" if self._board.is_paused else "running")

    def _tell_state(self, state: State) -> None:
        self._helpers.bulletin.tell(state, self._board, self._member, self._fatal)

    def _obey(self, asked: Asked) -> None:
        match asked:
            case StopAsked():
                self._is_stopping = True
            case RewindAsked():
                self._helpers.rewinder.want(asked)
            case PauseAsked(is_paused) if self._board.is_paused != is_paused:
                # The membership is kept: others do not get the partitions of one that rests.
                self._board.is_paused = is_paused
                logger.info("the run %s", "rests" if is_paused else "goes on", extra={"action": "paused"})

    def _take_events(self, wait_seconds: float) -> None:
        try:
            self._handle(self._events.get(timeout=wait_seconds) if wait_seconds else self._events.get_nowait())
            while True:
                self._handle(self._events.get_nowait())
        except queue.Empty:
            return

    def _handle(self, event: Event) -> None:
        match event:
            case StopAsked() | PauseAsked() | RewindAsked():
                self._obey(event)
            case MovesReady() | MovesStored():
                self._helpers.rewinder.take(event, self._member)
            case MarksFound():
                self._place(event)
            case Looked():
                self._judge(event)
            case EndsFound():
                self._helpers.finish.take(event, self._board)
            case RoundReported(report):
                self._hear(report)
            case RoundEnded(lease, None, error):
                self._end_badly(lease, error)
            case ShutOut(lease, why):
                self._bury(lease, why, is_shut_out=True)
            case RoundEnded(lease, outcome, _) if outcome is not None:
                self._accept(lease, outcome)

    def _lease(self) -> None:
        now = self._now()
        for lease in self._cancelled.take_over(now):
            self._board.forget_round(lease.lane, lease.round)
        self._lanes.tick(self._tally.proofs)
        purse, clock = self._helpers.purse, self._helpers.clock
        # A plain round without a permit would only cost a job; what cannot work is not tried once more.
        may_work = self._fatal is None and (purse is None or purse.has_some(now) or self._lanes.is_live)
        leases = self._board.leases(now) if may_work else []
        for lease in leases if purse is None else purse.in_turn(leases):
            known = replace(lease, proofs=self._tally.proofs(), broker_ms=None if clock is None else clock.now_ms)
            permits = None if purse is None else purse.open(lease.lane, lease.round, now)
            backing = None if self._backer is None else self._backer.backing(lease, self._member)
            self._lanes.start(replace(known, permits=permits, backing=backing))
        if purse is not None and (more := purse.top_up(now)):
            self._lanes.grant(more)
        for lease in self._board.kept_waiting():
            self._lanes.finish(lease)

    # --- where partitions stand, and what stands still

    def _place(self, answer: MarksFound) -> None:
        """Take the marks that were read."""
        self._count_lost(lambda: self._marks.place(answer, self._member))

    def _count_lost(self, find: Callable[[], Iterable[Loss]]) -> None:
        """Count what is gone, or end the run with it."""
        try:
            for loss in find():
                self._tally.lose(loss)
        except TidegateError as error:
            self._end_with(error)

    def _heed(self, sight: Sight) -> None:
        """Look at a topic that was made anew before it is leased again; follow a pattern's topics."""
        self._marks.note_ends(sight)
        self._count_lost(lambda: self._helpers.finish.heed(sight.ends, self._board))
        change = self._lookout.compare(sight)
        self._marks.doubt(one for one in list(self._board.owned) if one.topic in change.anew)
        missed = [one for one in change.gone if self._source.pattern is None or self._topics.is_own(one)]
        if missed:
            self._end_with(deleted(missed))
        elif change.gone or change.found:
            self._has_new_list = True
            self._forget([one for one in self._board.owned if one.topic in change.gone])
            self._count_lost(lambda: self._marks.leave(change.gone))

    def _follow_pattern(self, member: Member) -> None:
        """Subscribe to the list as it is now; what stays on it keeps flowing. Never from inside a callback."""
        if not self._has_new_list or not self._topics.names:
            return
        self._has_new_list = False
        means = "the pattern means" if self._source.pattern is not None else "it reads"
        logger.info("%s %s now", means, ", ".join(self._topics.names), extra={"action": "expanded"})
        member.join(self._topics.names)

    def _judge(self, looked: Looked) -> None:
        """Replace the lane of a stalled partition; end if that did not help."""
        if (sight := self._lookout.take(looked)) is not None:
            self._heed(sight)
        verdicts = self._lookout.judge(sight, self._board, self._helpers.turn_seconds)
        for lease, still in self._board.blocking(verdicts.replace):
            logger.warning(replaced(lease, still), extra={"action": "lane_replaced"})
            self._cancel(lease)
        if verdicts.hopeless:
            self._end_with(stalled(verdicts.hopeless, self._board.flying()))

    # --- rounds come back

    def _accept(self, lease: Lease, outcome: Outcome) -> None:
        """Take an outcome (step 5)."""
        if outcome.is_repeat:
            self._end_badly(lease, RoundDied("Spark had to run its task a second time"))
            return
        self._cancelled.drop(lease.lane)
        self._tally.count(outcome, is_final=True)
        self._helpers.note_spent(lease.round, outcome.spent, is_over=True)
        self._births.went_well()
        self._take_in(self._board.accept(outcome, self._now()))
        if outcome.broken is not None:
            self._end_with(broken(outcome.broken, outcome.cure))
        if outcome.unreadable is not None:
            try:
                self._marks.doubt_unread([item.partition for item in lease.partitions], outcome.unreadable)
            except TidegateError as error:
                self._end_with(error)

    def _hear(self, report: Outcome) -> None:
        """Take a live report (step 5): what it says is settled may be committed while the round runs."""
        accepted = self._board.hear(report, self._now())
        if accepted is not None:
            self._tally.count(report, is_final=False)
            self._helpers.note_spent(report.round, report.spent, is_over=False)
            self._take_in(accepted)

    def _take_in(self, accepted: Accepted) -> None:
        self._tally.stand(self._board.marks)
        for failure in accepted.failures:
            self._tally.fail(failure)
        self._marks.doubt(accepted.out_of_log)

    def _cancel(self, lease: Lease) -> None:
        self._cancelled.add(lease.lane)
        self._lanes.cancel(lease.lane)

    def _end_badly(self, lease: Lease, error: Exception | None) -> None:
        """A round ended without an outcome. Where it commits by itself, it is shut out first: it may still run."""
        self._helpers.note_spent(lease.round, None, is_over=True)
        if self._backer is not None and self._backer.in_transactions:
            self._backer.shut_out(lease, error)
        else:
            self._bury(lease, error, is_shut_out=False)

    def _bury(self, lease: Lease, error: Exception | None, *, is_shut_out: bool) -> None:
        """Nothing more comes from a round that ended without an outcome."""
        if lease.lane in self._cancelled and not isinstance(error, BrokerRefused):
            self._cancelled.ended(lease, self._now(), is_shut_out=is_shut_out)
            return
        has_begun = not isinstance(error, NeverBegan)
        blamed = self._board.bury(lease.lane, lease.round, str(error), self._now(), has_begun=has_begun)
        if not has_begun and (hopeless := self._births.failed(str(error))) is not None:
            self._end_with(hopeless)
        if isinstance(error, RoundDied):
            logger.warning(died(lease, error, has_begun=has_begun), extra={"action": "round_died"})
        else:
            self._end_with(
                error if isinstance(error, TidegateError) else broken(str(error), getattr(error, "cure", ""))
            )
        for failure in blamed:
            logger.warning("%s offset %d: %s", failure.partition, failure.record_offset, failure.message)

    # --- partitions come and go: called from inside `member.poll`

    def _gained(self, partitions: list[Partition]) -> None:
        self._has_joined = True
        self._outdate_rounds()
        wanted = [one for one in partitions if self._source.wants(one) or self._topics.is_own(one.topic)]
        self._marks.want(self._board.gain(wanted))
        if wanted:
            logger.info("partitions gained: %s", names(wanted), extra={"action": "gained"})

    def _revoked(self, partitions: list[Partition]) -> None:
        """Finish and commit what is in flight, then give the partitions back.

        Otherwise: we finish 41, the group moves the partition, the new owner starts at 40, and 40
        and 41 run twice.
        """
        self._outdate_rounds()
        self._board.close(partitions)
        self._wait_for_rounds(partitions, self._stop_seconds - CANCEL_SECONDS, lambda: None)
        self._committer.flush(self._member, partitions, COMMIT_SECONDS)
        self._forget(partitions)
        logger.info("partitions given back: %s", names(partitions), extra={"action": "revoked"})

    def _lost(self, partitions: list[Partition]) -> None:
        """They are somebody else's already: drop everything, commit nothing.

        Rounds that hear us are asked to end. Otherwise: Spark starts a task half a minute later, or a plain round reads
        on, and records run again that another process has settled, committed, and left behind.
        """
        self._forget(partitions)
        for lease in self._board.flying(partitions):
            is_ours = any(item.partition in self._board.owned for item in lease.partitions)
            if not is_ours and lease.lane not in self._cancelled and not self._lanes.hears(lease):
                self._cancel(lease)
        logger.warning("partitions lost: %s", names(partitions), extra={"action": "lost"})

    def _outdate_rounds(self) -> None:
        """A rebalance, also one that moves nothing: rounds that commit by themselves are members of the old group."""
        if self._backer is not None and self._backer.in_transactions:
            self._board.outdate()

    def _forget(self, partitions: list[Partition]) -> None:
        self._tally.stand(self._board.marks)
        self._marks.forget(partitions)
        self._board.remove(partitions)

    # --- the end

    def _wind_down(self, member: Member) -> None:
        """Begin nothing, finish what is in flight within the budget, commit, leave."""
        self._board.stop()
        self._tell_state("stopping")
        budget = self._stop_seconds - CANCEL_SECONDS
        self._unfinished = self._wait_for_rounds(None, budget, lambda: self._stay_member(member))
        deadline = self._now() + COMMIT_SECONDS
        while (member.is_committing or self._board.uncommitted()) and self._now() < deadline:
            # Not a synchronous commit: without a broker it would never return.
            self._stay_member(member)
        if self._board.uncommitted():
            logger.error("the last commit did not work out: its records run again", extra={"action": "uncommitted"})
            if self._committer.fatal is not None:
                self._end_with(self._committer.fatal)
        self._tally.stand(self._board.marks)
        self._ended_at = datetime.now(UTC)
        member.leave(COMMIT_SECONDS)
        if self._board.owned:
            logger.info("partitions given back: %s", names(self._board.owned), extra={"action": "revoked"})
        self._lanes.close()
        self._tell_state("failed" if self._fatal or self._tally.failures else "ended")
        self._helpers.close()

    def _stay_member(self, member: Member) -> None:
        """Serve the group while winding down; trouble with it no longer changes the end."""
        try:
            self._committer.send(member)
            member.poll(0.002)  # not 0: a refused commit is sent again half a second later
        except TidegateError as error:
            self._end_with(error)

    def _wait_for_rounds(
        self, partitions: list[Partition] | None, budget_seconds: float, meanwhile: Callable[[], None]
    ) -> tuple[Partition, ...]:
        """Wait until no round works on these partitions; then cancel. Return what had to be cancelled."""
        deadline = self._now() + budget_seconds
        for lease in self._board.flying(partitions):
            self._lanes.finish(lease)
        while (flying := self._board.flying(partitions)) and self._now() < deadline:
            self._take_events(TURN_SECONDS)
            self._lease()
            meanwhile()
        if not flying:
            return ()
        for lease in flying:
            self._cancel(lease)
        unfinished = tuple(item.partition for lease in flying for item in lease.partitions)
        logger.warning("not finished in time: %s", names(unfinished), extra={"action": "cancelled"})
        dead_at = self._now() + ZOMBIE_SECONDS
        while self._now() < dead_at:
            self._take_events(TURN_SECONDS)
            self._lease()
        return unfinished
