"""Effects that can be seen: each once in its life of a partition, and exactly if it lies below the mark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.cluster import GROUP, OPERATOR, RETRY, Cluster
from tests.simulation.judge import NEVER, Judge, home, life
from tidegate.ledger import decode_any
from tidegate.records import Commit, Partition

if TYPE_CHECKING:
    from tests.simulation.messages import Attempt, SimCopy
    from tests.simulation.rounds import Task


@dataclass(frozen=True)
class Effect:
    """What a record has come to, somewhere on its way to be seen."""

    task: Task
    attempt: Attempt
    replay: int
    is_letter: bool
    copy: SimCopy | None = None
    """What is written to the retry topic."""

    @property
    def place(self) -> Partition:
        """The life of the partition by whose mark it is covered."""
        return life(self.attempt.message.place, self.replay)

    @property
    def at(self) -> int:
        return self.attempt.message.at


class Effects:
    """All effects of a schedule. Judges at every moment at which something appears, or a mark is stored."""

    def __init__(self, judge: Judge, cluster: Cluster) -> None:
        self._judge, self._cluster = judge, cluster
        self._made: list[Effect] = []
        self._seen: set[tuple[Partition, int]] = set()
        self._lie_at: dict[int, tuple[int, int]] = {}
        """Where copies lie whose transaction has not ended: the retry topic's partition, and the offset."""
        self._ends: set[tuple[Partition, int]] = set()
        """Records that have reached a sink, or the dead letters, through whichever copies."""
        self._marks: dict[Partition, int] = {}
        """The highest of each life."""
        self._newest: dict[Partition, int] = {}
        self._ended: dict[Partition, int] = {}
        """Lives that a rewind has ended, and when."""
        self._unattended: set[Partition] = set()
        """Those of them that were ended while the group had no member."""

    def make(self, task: Task, attempt: Attempt, *, is_letter: bool = False, copy: SimCopy | None = None) -> bytes:
        """Note what is to be written for a record; return it as it is written."""
        replay = task.books.replay(attempt.message.place)
        self._made.append(Effect(task, attempt, replay, is_letter, copy))
        return str(len(self._made) - 1).encode()

    def lie(self, numbers: Iterable[int]) -> None:
        """These were written, in a transaction that has not ended: nobody reads them, nor what lies behind them."""
        for number in numbers:
            if (copy := self._made[number].copy) is not None:
                self._lie_at[number] = self._cluster.append(copy, is_decided=False)

    def vanish(self, numbers: Iterable[int]) -> None:
        """Their transaction was aborted: nobody ever reads them."""
        for number in numbers:
            if number in self._lie_at:
                partition, at = self._decide(number)
                self._cluster.logs[Partition(RETRY, partition)].missing.add(at)

    def _decide(self, number: int) -> tuple[int, int]:
        partition, at = self._lie_at.pop(number)
        self._cluster.logs[Partition(RETRY, partition)].undecided.remove(at)
        return partition, at

    def appear(self, numbers: Iterable[int]) -> None:
        """These can be seen from now on."""
        for number in numbers:
            effect = self._made[number]
            if (effect.place, effect.at) in self._seen:
                self._judge.breach(f"L6: {effect.place} offset {effect.at} has its effect twice, now by {effect.task}")
            self._seen.add((effect.place, effect.at))
            if effect.copy is not None:
                self._judge.copied(
                    effect.task, effect.attempt.message, lies_at=self._decide(number), attempts=effect.copy.attempts
                )
                continue
            self._reach_its_end(effect)
            if effect.is_letter:
                self._judge.copied(effect.task, effect.attempt.message)
            else:
                self._judge.settled(effect.task, effect.attempt)

    def _reach_its_end(self, effect: Effect) -> None:
        """A record, through however many copies, comes to one output or one dead letter."""
        place, at = where = home(effect.task, effect.attempt.message)
        if where in self._ends:
            self._judge.breach(f"L6: {place} offset {at} has come to an end twice, now by {effect.task}")
        self._ends.add(where)

    def check_marked(self, numbers: Iterable[int], sure_since: int, taken: Mapping[Partition, int]) -> None:
        """These have appeared, and so have their marks; but for those of a life that a rewind has ended meanwhile.

        One without a member to shut rounds out is later in the group's log than marks that were taken before
        (`taken`: at which tick), even if it was decided only then that they count.
        """
        for effect in map(self._made.__getitem__, numbers):
            was_taken = taken.get(effect.attempt.message.place, NEVER) if effect.place in self._unattended else NEVER
            if min(sure_since, was_taken) < self._ended.get(effect.place, 0):
                continue
            if self._marks.get(effect.place, 0) <= effect.at:
                mark = self._marks.get(effect.place, 0)
                self._judge.breach(f"L6: {effect.place} offset {effect.at} has its effect, and the mark is {mark}")

    def stood(self, partition: Partition, commit: Commit, who: object) -> None:
        """A mark was stored: everything below it has its effect."""
        replay = decode_any(GROUP, partition, commit.mark, commit.metadata).position.replay
        place, log = life(partition, replay), self._cluster.logs[partition]
        newest = self._newest.setdefault(partition, replay)
        if replay > newest:
            self._ended[life(partition, newest)] = self._cluster.stored_at[partition]
            self._newest[partition] = replay
            if who == OPERATOR:
                self._unattended.add(life(partition, newest))
        before = self._marks.setdefault(place, commit.mark)
        for at in range(before, min(commit.mark, log.end)):
            if (place, at) not in self._seen and at not in log.missing and at not in log.removed:
                self._judge.breach(f"L6: {place} offset {at} lies below the mark {commit.mark} and has no effect")
        if commit.mark < before:
            self._judge.breach(f"L5: {place} went back from {before} to {commit.mark}")
        self._marks[place] = max(before, commit.mark)
