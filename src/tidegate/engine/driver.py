"""The driver's loop: leases out, outcomes in, marks committed. One thread does all of it.

The steps of a commit, the same numbers as in docs/guarantees.md: (1) read, (2) run the steps,
(3) settle, (4) return the outcome: `task.py`; (5) check that the partition is ours, in the same
epoch, and that the mark grows: `board.py`; (6) commit mark and *ahead*: `committer.py`.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from tidegate.engine.board import Accepted, Board
from tidegate.engine.committer import Committer
from tidegate.engine.lanes import Lanes, RoundEnded
from tidegate.engine.spark import RoundDied
from tidegate.engine.starting import Found, Starting
from tidegate.errors import BrokerRefused, BrokerUnreachable, RecordsLost, SparkFailed, TidegateError
from tidegate.kafka.member import Callbacks, Commit, Member
from tidegate.records import Failure, Lease, Outcome, Partition, Position, Report

logger = logging.getLogger("tidegate.run")

ZOMBIE_SECONDS = 4.0
"""A cancelled Python task lives on for up to 3.5 s: nobody else may have its partition before."""
COMMIT_SECONDS = 10.0
TURN_SECONDS = 0.05
ASK_AGAIN_SECONDS = 1.0
TELL_EVERY_SECONDS = 10.0


@dataclass(frozen=True)
class MarksFound:
    """The marks of partitions that were assigned, or why they could not be read."""

    epochs: Mapping[Partition, int]
    found: Future[Found]


@dataclass(frozen=True)
class RoundReported:
    """A round that still runs told what it has settled."""

    report: Outcome


@dataclass(frozen=True)
class StopAsked:
    """Somebody wants the run to end in good order."""


Event = RoundEnded | RoundReported | MarksFound | StopAsked
Events = queue.SimpleQueue[Event]


class Driver:
    """One run. Everything but `ask_to_stop` belongs to the thread that calls `run`."""

    def __init__(
        self, board: Board, lanes: Lanes, starting: Starting, events: Events, stop_seconds: float, group: str
    ) -> None:
        self._board = board
        self._lanes = lanes
        self._starting = starting
        self._events = events
        self._stop_seconds = stop_seconds
        self._group = group
        self._committer = Committer(board, starting.metadata)
        self._asker = ThreadPoolExecutor(1, thread_name_prefix="marks")
        self._member: Member | None = None
        self._unplaced: dict[Partition, int] = {}
        self._is_asking = False
        self._ask_not_before = 0.0
        self._is_stopping = False
        self._has_joined = False
        self._cancelled: set[int] = set()
        self._failures: list[Failure] = []
        self._fatal: TidegateError | None = None
        self._settled = 0
        self._counted: dict[int, int] = {}
        """Records of rounds in flight that are counted already, by live reports."""
        self._marks: dict[Partition, int] = {}
        self._unfinished: tuple[Partition, ...] = ()
        self._told_at, self._told = time.monotonic(), 0
        self._round_seconds = 0.0
        self._began_at = self._ended_at = datetime.now(UTC)
        self.holds_resources = False

    def ask_to_stop(self) -> None:
        """End in good order. Safe from any thread and from a signal handler."""
        self._events.put(StopAsked())

    def run(self, open_member: Callable[[Callbacks], Member], topics: Iterable[str]) -> Report:
        """Join, work until it is over, wind down, leave; raise what made the work impossible."""
        self._member = member = open_member(Callbacks(self._gained, self._revoked, self._lost, self._answered))
        try:
            member.join(topics)
            while not self._is_over():
                self._turn(member)
        except TidegateError as error:
            self._fatal = self._fatal or error
        self._wind_down(member)
        if self._fatal is not None:
            raise self._fatal
        return self._report()

    # --- the loop

    def _is_over(self) -> bool:
        if self._is_stopping or self._failures or self._fatal is not None:
            return True
        return self._has_joined and self._board.has_caught_up

    def _turn(self, member: Member) -> None:
        """Take what happened, commit it, lease what is free."""
        self._take_events(0.0 if member.is_committing else TURN_SECONDS)
        self._lease()
        self._committer.send(member)
        member.poll(0.002 if member.is_committing else 0.0)
        self._fatal = self._fatal or self._committer.fatal
        self._ask_for_marks(member)
        self._tell()

    def _take_events(self, wait_seconds: float) -> None:
        try:
            self._handle(self._events.get(timeout=wait_seconds) if wait_seconds else self._events.get_nowait())
            while True:
                self._handle(self._events.get_nowait())
        except queue.Empty:
            return

    def _handle(self, event: Event) -> None:
        match event:
            case StopAsked():
                self._is_stopping = True
            case MarksFound(epochs, found):
                self._place(epochs, found)
            case RoundReported(report):
                self._hear(report)
            case RoundEnded(lease, None, error):
                self._bury(lease, error)
            case RoundEnded(lease, outcome, _) if outcome is not None:
                self._accept(lease, outcome)

    def _lease(self) -> None:
        for lease in self._board.leases():
            self._lanes.start(lease)
        for lease in self._board.kept_waiting():
            self._lanes.finish(lease)

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._told_at < TELL_EVERY_SECONDS:
            return
        if self._settled != self._told:
            rate = (self._settled - self._told) / (now - self._told_at)
            logger.info("%d records settled, %.0f per second", self._settled, rate, extra={"action": "progress"})
        self._told_at, self._told = now, self._settled

    # --- rounds come back

    def _accept(self, lease: Lease, outcome: Outcome) -> None:
        """Take an outcome (step 5)."""
        if outcome.is_repeat:
            self._bury(lease, RoundDied("Spark had to run its task a second time"))
            return
        self._take_in(outcome, self._board.accept(outcome))
        self._counted.pop(outcome.round, None)
        self._round_seconds += outcome.seconds
        self.holds_resources |= outcome.holds_resources
        if outcome.broken is not None:
            self._fatal = self._fatal or _broken(outcome.broken)
        if outcome.unreadable is not None:
            self._fatal = self._fatal or BrokerRefused(
                f"records cannot be read: {outcome.unreadable}", "check that the topic exists and may be read"
            )

    def _hear(self, report: Outcome) -> None:
        """Take a live report (step 5): what it says is settled may be committed while the round runs."""
        accepted = self._board.hear(report)
        if accepted is not None:
            self._take_in(report, accepted)

    def _take_in(self, outcome: Outcome, accepted: Accepted) -> None:
        self._settled += accepted.settled - self._counted.get(outcome.round, 0)
        self._counted[outcome.round] = accepted.settled
        self._marks |= self._board.marks
        for failure in accepted.failures:
            self._fail(failure)
        for partition, (mark, beginning) in accepted.lost.items():
            self._fatal = self._fatal or _records_lost(partition, mark, beginning)

    def _bury(self, lease: Lease, error: Exception | None) -> None:
        """A round ended without an outcome."""
        if lease.lane in self._cancelled:
            self._board.forget_round(lease.lane, lease.round)
            return
        failures = self._board.bury(lease.lane, lease.round, str(error))
        if isinstance(error, RoundDied):
            partitions = ", ".join(str(item.partition) for item in lease.partitions)
            logger.warning(
                "a worker died in round %d (%s): what it did not report runs again: %s",
                lease.round,
                partitions,
                error,
                extra={"action": "round_died"},
            )
        else:
            self._fatal = self._fatal or (error if isinstance(error, TidegateError) else _broken(str(error)))
        for failure in failures:
            self._fail(failure)

    def _fail(self, failure: Failure) -> None:
        self._failures.append(failure)
        logger.error(
            "%s offset %d failed: %s: %s",
            failure.partition,
            failure.record_offset,
            failure.error_type,
            failure.message,
            extra={"action": "record_failed"},
        )

    # --- partitions come and go: called from inside `member.poll`

    def _gained(self, partitions: list[Partition]) -> None:
        self._has_joined = True
        self._unplaced |= self._board.gain(partitions)
        if partitions:
            logger.info("partitions gained: %s", _names(partitions), extra={"action": "gained"})

    def _revoked(self, partitions: list[Partition]) -> None:
        """Finish and commit what is in flight, then give the partitions back.

        Otherwise: we finish 41, the group moves the partition, the new owner starts at 40, and 40
        and 41 run twice.
        """
        self._board.close(partitions)
        self._wait_for_rounds(partitions, self._stop_seconds - ZOMBIE_SECONDS - 1, lambda: None)
        if self._member is not None:
            self._committer.flush(self._member, partitions, COMMIT_SECONDS)
        self._forget(partitions)
        logger.info("partitions given back: %s", _names(partitions), extra={"action": "revoked"})

    def _lost(self, partitions: list[Partition]) -> None:
        """They are somebody else's already: drop everything, commit nothing."""
        self._forget(partitions)
        logger.warning("partitions lost: %s", _names(partitions), extra={"action": "lost"})

    def _forget(self, partitions: list[Partition]) -> None:
        self._marks |= self._board.marks
        self._board.remove(partitions)
        for partition in partitions:
            self._unplaced.pop(partition, None)

    def _answered(self, taken: Mapping[Partition, Commit], refused: Mapping[Partition, object]) -> None:
        self._committer.answered(taken, refused)  # type: ignore[arg-type]  # the member's own refusals

    # --- marks are read

    def _ask_for_marks(self, member: Member) -> None:
        """Read the marks of new partitions beside the loop.

        Not while a commit is on its way: it could land after the reading and be taken back by the next.
        """
        if not self._unplaced or self._is_asking or member.is_committing:
            return
        if time.monotonic() < self._ask_not_before:
            return
        epochs = dict(self._unplaced)
        self._is_asking = True
        future = self._asker.submit(self._starting.find, list(epochs))
        future.add_done_callback(lambda found: self._events.put(MarksFound(epochs, found)))

    def _place(self, epochs: Mapping[Partition, int], future: Future[Found]) -> None:
        self._is_asking = False
        try:
            found = future.result()
        except BrokerUnreachable as error:
            self._ask_not_before = time.monotonic() + ASK_AGAIN_SECONDS
            logger.warning("the marks cannot be read yet: %s", error.happened, extra={"action": "marks_unread"})
            return
        except TidegateError as error:
            self._fatal = self._fatal or error
            return
        if found.chosen and not self._commit_chosen(found.chosen):
            self._ask_not_before = time.monotonic() + ASK_AGAIN_SECONDS
            return
        if found.waiting:
            self._ask_not_before = time.monotonic() + ASK_AGAIN_SECONDS
        for positions, is_committed in ((found.committed, True), (found.chosen, True), (found.fresh, False)):
            for partition, position in positions.items():
                if partition in epochs:
                    self._board.place(partition, epochs[partition], position, is_committed=is_committed)
                    if self._unplaced.get(partition) == epochs[partition]:
                        del self._unplaced[partition]

    def _commit_chosen(self, chosen: Mapping[Partition, Position]) -> bool:
        """Commit a topic's starting positions before its first lease; other members wait for it."""
        if self._member is None:
            return False
        commits = {tp: Commit(one.mark, self._starting.metadata(tp, one)) for tp, one in chosen.items()}
        return not self._member.commit_now(commits)

    # --- the end

    def _wind_down(self, member: Member) -> None:
        """Begin nothing, finish what is in flight within the budget, commit, leave."""
        self._board.stop()
        self._unfinished = self._wait_for_rounds(None, self._stop_seconds, lambda: self._stay_member(member))
        deadline = time.monotonic() + COMMIT_SECONDS
        while member.is_committing and time.monotonic() < deadline:
            self._stay_member(member)
        if not self._committer.flush(member, None, COMMIT_SECONDS):
            logger.error("the last commit did not work out", extra={"action": "last_commit_failed"})
            self._fatal = self._fatal or self._committer.fatal
        self._marks |= self._board.marks
        self._ended_at = datetime.now(UTC)
        member.leave()
        self._lanes.close()
        self._asker.shutdown(wait=False)

    def _stay_member(self, member: Member) -> None:
        """Serve the group while winding down; trouble with it no longer changes the end."""
        try:
            self._committer.send(member)
            member.poll(0.002 if member.is_committing else 0.0)
        except TidegateError as error:
            self._fatal = self._fatal or error

    def _wait_for_rounds(
        self, partitions: list[Partition] | None, budget_seconds: float, meanwhile: Callable[[], None]
    ) -> tuple[Partition, ...]:
        """Wait until no round works on these partitions; then cancel. Return what had to be cancelled."""
        deadline = time.monotonic() + budget_seconds
        for lease in self._board.flying(partitions):
            self._lanes.finish(lease)
        while (flying := self._board.flying(partitions)) and time.monotonic() < deadline:
            self._take_events(TURN_SECONDS)
            self._lease()
            meanwhile()
        if not flying:
            return ()
        for lease in flying:
            self._cancelled.add(lease.lane)
            self._lanes.cancel(lease.lane)
        unfinished = tuple(item.partition for lease in flying for item in lease.partitions)
        logger.warning("not finished in time: %s", _names(unfinished), extra={"action": "cancelled"})
        deadline = time.monotonic() + ZOMBIE_SECONDS
        while time.monotonic() < deadline:
            self._take_events(TURN_SECONDS)
        self._cancelled -= {lease.lane for lease in flying}
        return unfinished

    def _report(self) -> Report:
        return Report(
            group=self._group,
            settled=self._settled,
            marks=dict(sorted(self._marks.items())),
            began_at=self._began_at,
            ended_at=self._ended_at,
            round_seconds=self._round_seconds,
            failures=tuple(self._failures),
            unfinished=self._unfinished,
        )


def _names(partitions: Iterable[Partition]) -> str:
    return ", ".join(str(partition) for partition in sorted(partitions)) or "none"


def _records_lost(partition: Partition, mark: int, beginning: int) -> RecordsLost:
    if beginning > mark:
        what = f"the log begins at {beginning}: {beginning - mark} records are gone before anybody settled them"
    else:
        what = "the log ends before that: it was cut off or made anew"
    return RecordsLost(
        f"{partition}: the group stands at {mark}, and {what}",
        "move the group (kafka-consumer-groups --reset-offsets) if that is accepted",
    )


def _broken(why: str) -> SparkFailed:
    return SparkFailed(
        f"the workers cannot run this pipeline: {why}",
        "what the functions import must be installed for the Python that Spark's workers use",
    )
