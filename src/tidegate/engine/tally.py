"""What a run has done so far: counts, marks, failures; told now and then, reported at the end."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from tidegate.beside import THIS_MACHINE, Beside
from tidegate.engine.failure import about, places
from tidegate.engine.lost import Loss
from tidegate.records import Counts, Failure, Outcome, Partition, Report

logger = logging.getLogger("tidegate.run")

TELL_EVERY_SECONDS = 10.0
FIRST_NOTICE_SECONDS = 15.0
MOST_MISHAPS = 50
"""Failed attempts that are kept to be shown."""


@dataclass(frozen=True, slots=True)
class SeenMishap:
    """An attempt that failed, as the run heard of it."""

    at: datetime
    number: int
    """Counts those of the run, from 1."""
    failure: Failure
    fate: str
    """What the policy decided: hold, retry, retry_later 10m, dead_letter, skip, stop."""


class Tally:
    """Counts records once, whether a live report or the outcome told of them first."""

    def __init__(self, group: str, idle_seconds: float, beside: Beside = THIS_MACHINE) -> None:
        self.group = group
        self._now = beside.now
        self._idle_seconds = idle_seconds
        self.counts = Counts()
        self.rounds = 0
        self._counted: dict[int, Counts] = {}
        self._proofs: list[int] = []
        self._proven: dict[int, tuple[int, ...]] = {}
        self.round_seconds = 0.0
        self.began_at = datetime.now(UTC)
        self._told_at = self._came_at = self._now()
        self._told = Counts()
        self._told_taken = 0
        self._marks: dict[Partition, int] = {}
        self.lost = 0
        self._lost_uncounted: set[Partition] = set()
        self.failures: list[Failure] = []
        self.mishaps: deque[SeenMishap] = deque(maxlen=MOST_MISHAPS)
        self._mishaps_told: dict[int, int] = {}
        self.holds_resources = False
        self._is_silence_told = False

    def count(self, outcome: Outcome, *, is_final: bool) -> None:
        """Count what an outcome or a report brings."""
        news = outcome.counts - self._counted.get(outcome.round, Counts())
        self.counts += news
        self._counted[outcome.round] = outcome.counts
        self._prove(outcome)
        self._see(outcome)
        if any(news.as_tuple()):
            self._came_at = self._now()
        if is_final:
            del self._counted[outcome.round]
            self._proven.pop(outcome.round, None)
            self._mishaps_told.pop(outcome.round, None)
            self.rounds += 1
            self.round_seconds += outcome.seconds
            self.holds_resources |= outcome.holds_resources

    def _see(self, outcome: Outcome) -> None:
        """Keep the failed attempts that are news."""
        told = self._mishaps_told.get(outcome.round, 0)
        for mishap in outcome.mishaps:
            if mishap.number > told:
                number = 1 + (self.mishaps[-1].number if self.mishaps else 0)
                self.mishaps.append(SeenMishap(datetime.now(UTC), number, mishap.failure, mishap.fate))
        if outcome.mishaps:
            self._mishaps_told[outcome.round] = outcome.mishaps[-1].number

    def proofs(self, without_round: int | None = None) -> tuple[int, ...]:
        """How many records are known to have got through each sink; without those that this round told of."""
        own = self._proven.get(without_round) if without_round is not None else None
        return tuple(self._proofs) if own is None else tuple(map(int.__sub__, self._proofs, own))

    def _prove(self, outcome: Outcome) -> None:
        if not outcome.proofs:
            return  # a round that could not even begin has no sinks
        before = self._proven.get(outcome.round, (0,) * len(outcome.proofs))
        known = self._proofs or [0] * len(outcome.proofs)
        self._proofs = [all_ + now - was for all_, now, was in zip(known, outcome.proofs, before, strict=True)]
        self._proven[outcome.round] = outcome.proofs

    def stand(self, marks: Mapping[Partition, int]) -> None:
        """Note where partitions stand; those that have left keep their last mark."""
        self._marks |= marks

    def fail(self, failure: Failure) -> None:
        """Note a failed record, and say so."""
        self.failures.append(failure)
        logger.error(
            "%s offset %d failed: %s: %s%s",
            failure.partition,
            failure.record_offset,
            failure.error_type,
            failure.message,
            places(failure.traceback),
            extra={"action": "record_failed", "trace": failure.traceback, **about(failure)},
        )
        if failure.traceback:
            logger.debug("%s", failure.traceback, extra={"action": "record_failed", **about(failure)})

    def lose(self, loss: Loss) -> None:
        """Count records that are gone, and say so."""
        self.lost += loss.count or 0
        if loss.count is None:
            self._lost_uncounted.add(loss.partition)
        if loss.count != 0:
            goes_on = "" if loss.resume is None else f"; it goes on at {loss.resume.mark}"
            logger.warning("%s%s", loss.sentence, goes_on, extra={"action": "records_lost"})

    def tell(self, owned: Collection[Partition]) -> None:
        """Say how it goes, if it is time to: progress, or that nothing has come for long to those that are ours."""
        now = self._now()
        if now - self._came_at >= self._idle_seconds:
            logger.info("no record has come for %.0f s", self._idle_seconds, extra={"action": "idle"})
            self._came_at = now
        if not self._is_silence_told and now - self._came_at >= FIRST_NOTICE_SECONDS and self.counts == Counts():
            self._say_that_nothing_came(owned)
        if now - self._told_at < TELL_EVERY_SECONDS:
            return
        if self.counts != self._told:
            news = self.counts - self._told
            rate = news.settled / (now - self._told_at)
            logger.info(
                "%d records settled, %.0f per second%s",
                self.counts.settled,
                rate,
                self.counts.beside,
                extra={"action": "progress"},
            )
            if news.held:
                taken = sum(self._proofs[:-1]) - self._told_taken
                logger.warning(
                    "a sink is away: tried %d times in the last %.0f s, %s; nothing is lost, the lanes wait for it",
                    news.held,
                    now - self._told_at,
                    f"while other records got through ({taken})" if taken else "and none got through",
                    extra={"action": "held"},
                )
        self._told_at, self._told, self._told_taken = now, self.counts, sum(self._proofs[:-1])

    def _say_that_nothing_came(self, owned: Collection[Partition]) -> None:
        """Who starts a second time and sees nothing happen may not know that all was settled the first time."""
        self._is_silence_told = True
        ours = sorted(set(owned) & self._marks.keys())
        stands = ", ".join(f"{partition} {self._marks[partition]}" for partition in ours)
        logger.info(
            "no record has come yet%s; tidegate offsets %s shows whether any waits",
            f": the group stands at {stands}" if stands else "",
            self.group,
            extra={"action": "idle"},
        )

    def report(self, unfinished: tuple[Partition, ...], ended_at: datetime) -> Report:
        """Return how the run ended."""
        return Report(
            group=self.group,
            counts=self.counts,
            marks=dict(sorted(self._marks.items())),
            began_at=self.began_at,
            ended_at=ended_at,
            round_seconds=self.round_seconds,
            failures=tuple(self.failures),
            unfinished=unfinished,
            lost=self.lost,
            lost_uncounted=tuple(sorted(self._lost_uncounted)),
        )
