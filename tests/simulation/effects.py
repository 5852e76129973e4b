"""Effects that can be seen: each once in its life of a partition, and exactly if it lies below the mark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tests.simulation.cluster import GROUP, Cluster
from tests.simulation.judge import Judge, home, life
from tidegate.ledger import decode_any
from tidegate.records import Commit, Partition

if TYPE_CHECKING:
    from tests.simulation.messages import Attempt, SimCopy
    from tests.simulation.rounds import Task


Kind = Literal["output", "letter"]


@dataclass(frozen=True)
class Effect:
    """What a record has come to, somewhere on its way to be seen."""

    task: Task
    attempt: Attempt
    replay: int
    kind: Kind
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
        self._ends: set[tuple[Partition, int]] = set()
        """Records that have reached a sink, or the dead letters, through whichever copies."""
        self._marks: dict[Partition, int] = {}
        """The highest of each life."""
        self._newest: dict[Partition, int] = {}
        self._ended: dict[Partition, int] = {}
        """Lives that a rewind has ended, and when."""

    def make(self, task: Task, attempt: Attempt, kind: Kind = "output", copy: SimCopy | None = None) -> bytes:
        """Note what is to be written for a record; return it as it is written."""
        replay = task.books.replay(attempt.message.place)
        self._made.append(Effect(task, attempt, replay, kind, copy))
        return str(len(self._made) - 1).encode()

    def appear(self, numbers: Iterable[int]) -> None:
        """These can be seen from now on."""
        for effect in map(self._made.__getitem__, numbers):
            if (effect.place, effect.at) in self._seen:
                self._judge.breach(f"L6: {effect.place} offset {effect.at} has its effect twice, now by {effect.task}")
            self._seen.add((effect.place, effect.at))
            if effect.copy is not None:
                lies_at = self._cluster.append(effect.copy)
                attempts = effect.copy.attempts
                self._judge.copied(effect.task, effect.attempt.message, lies_at=lies_at, attempts=attempts)
                continue
            self._reach_its_end(effect)
            if effect.kind == "letter":
                self._judge.copied(effect.task, effect.attempt.message)
            else:
                self._judge.settled(effect.task, effect.attempt)

    def _reach_its_end(self, effect: Effect) -> None:
        """A record, through however many copies, comes to one output or one dead letter."""
        place, at = where = home(effect.task, effect.attempt.message)
        if where in self._ends:
            self._judge.breach(f"L6: {place} offset {at} has come to an end twice, now by {effect.task}")
        self._ends.add(where)

    def check_marked(self, numbers: Iterable[int], sure_since: int) -> None:
        """These have appeared, and so have their marks; but for those of a life that a rewind has ended meanwhile."""
        for effect in map(self._made.__getitem__, numbers):
            if sure_since < self._ended.get(effect.place, 0):
                continue
            if self._marks.get(effect.place, 0) <= effect.at:
                mark = self._marks.get(effect.place, 0)
                self._judge.breach(f"L6: {effect.place} offset {effect.at} has its effect, and the mark is {mark}")

    def stood(self, partition: Partition, commit: Commit) -> None:
        """A mark was stored: everything below it has its effect."""
        replay = decode_any(GROUP, partition, commit.mark, commit.metadata).position.replay
        place, log = life(partition, replay), self._cluster.logs[partition]
        newest = self._newest.setdefault(partition, replay)
        if replay > newest:
            self._ended[life(partition, newest)] = self._cluster.stored_at[partition]
            self._newest[partition] = replay
        before = self._marks.setdefault(place, commit.mark)
        for at in range(before, min(commit.mark, log.end)):
            if (place, at) not in self._seen and at not in log.missing and at not in log.removed:
                self._judge.breach(f"L6: {place} offset {at} lies below the mark {commit.mark} and has no effect")
        if commit.mark < before:
            self._judge.breach(f"L5: {place} went back from {before} to {commit.mark}")
        self._marks[place] = max(before, commit.mark)
