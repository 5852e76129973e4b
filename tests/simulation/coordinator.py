"""The broker's side of transactions: who bears a name, what is open, and what became of it.

Outputs and marks of a transaction appear together, some time after its end was asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from confluent_kafka import KafkaError

from tests.simulation.cluster import Cluster
from tests.simulation.world import World
from tidegate.records import Commit, Partition

if TYPE_CHECKING:
    from tests.simulation.effects import Effects

TRANSACTION_SECONDS = 15.0
LATE_ENDS, LATEST_END = 0.05, 10.0
"""How often what was decided takes long to be seen: a broker that holds a part of it is away."""


class Refusal(Exception):
    """What the broker says instead of doing it."""

    def __init__(self, code: int, *, is_fatal: bool = False, is_passing: bool = False) -> None:
        super().__init__(code)
        self.code = int(code)
        self.is_fatal = is_fatal
        self.is_passing = is_passing
        """The client asks again by itself."""


@dataclass
class Bearer:
    """What the coordinator knows of one `transactional.id`."""

    name: str
    epoch: int = 0
    state: Literal["empty", "open", "ending"] = "empty"
    number: int = 0
    """Of the transaction that was begun last, in this epoch."""
    is_commit: bool = False
    """How that one ended, or is being ended."""
    sure_since: int = 0
    """When its end was decided."""
    outputs: list[int] = field(default_factory=list)
    marks: dict[Partition, tuple[Commit, int]] = field(default_factory=dict)
    """Marks that the group has taken into the open transaction, and when."""


class Coordinator:
    """All names."""

    def __init__(self, world: World, cluster: Cluster, effects: Effects) -> None:
        self._world, self._cluster, self._effects = world, cluster, effects
        self._bearers: dict[str, Bearer] = {}
        self.counts: Counter[str] = Counter()

    # --- requests

    def take_name(self, name: str) -> int:
        """Whoever asks bears the name from now on; what its last bearer had open is aborted."""
        bearer = self._bearers.setdefault(name, Bearer(name))
        if bearer.state == "open":
            bearer.epoch += 1
            self._end(bearer, is_commit=False)
        if bearer.state == "ending":
            raise Refusal(KafkaError.CONCURRENT_TRANSACTIONS, is_passing=True)
        bearer.epoch += 1
        bearer.number = 0
        bearer.is_commit = False
        self._world.say("name", name, "has epoch", bearer.epoch)
        return bearer.epoch

    def write(self, name: str, epoch: int, number: int, outputs: Iterable[int]) -> None:
        bearer = self._opened(name, epoch, number)
        written = list(outputs)
        bearer.outputs += written
        self._effects.lie(written)

    def take_marks(
        self, name: str, epoch: int, number: int, commits: Mapping[Partition, Commit], member: tuple[str, int]
    ) -> None:
        """The group's coordinator takes marks into the transaction, if they come from a member of this generation."""
        if self._cluster.is_loading:
            raise Refusal(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, is_passing=True)
        bearer = self._opened(name, epoch, number)
        if (code := self._cluster.group.refusal_in_transaction(*member)) is not None:
            self._world.say(name, "marks refused", {str(tp): one.mark for tp, one in commits.items()}, code)
            self.counts["marks refused"] += 1
            self._cluster.group.hear_of(member[0])
            raise Refusal(code)
        bearer.marks |= {tp: (commit, self._world.tick()) for tp, commit in commits.items()}

    def end(self, name: str, epoch: int, number: int, *, is_commit: bool) -> None:
        """End the transaction. Asked for again, it is said how it ended."""
        bearer = self._checked(name, epoch)
        if bearer.state == "open" and bearer.number == number:
            self._end(bearer, is_commit=is_commit)
        elif bearer.number == number and bearer.is_commit == is_commit:
            if bearer.state == "ending":
                raise Refusal(KafkaError.CONCURRENT_TRANSACTIONS, is_passing=True)
        elif bearer.number >= number or is_commit:
            raise Refusal(KafkaError.INVALID_TXN_STATE, is_fatal=True)

    def holds_back(self, partitions: Iterable[Partition]) -> bool:
        """Whether marks of these lie in a transaction that has not ended."""
        wanted = set(partitions)
        return any(not wanted.isdisjoint(one.marks) for one in self._bearers.values())

    def promised(self) -> dict[Partition, int]:
        """The marks of transactions that are being committed: that can no longer fail."""
        sure = [one.marks for one in self._bearers.values() if one.state == "ending" and one.is_commit]
        return {tp: commit.mark for marks in sure for tp, (commit, _) in marks.items()}

    # --- inside

    def _checked(self, name: str, epoch: int) -> Bearer:
        bearer = self._bearers[name]
        if bearer.epoch != epoch:
            self.counts["fenced"] += 1
            raise Refusal(KafkaError._FENCED, is_fatal=True)
        return bearer

    def _opened(self, name: str, epoch: int, number: int) -> Bearer:
        """Return the bearer with this transaction open."""
        bearer = self._checked(name, epoch)
        if number < bearer.number or (number == bearer.number and bearer.state != "open"):
            raise Refusal(KafkaError.INVALID_TXN_STATE, is_fatal=True)
        if bearer.state == "ending":
            raise Refusal(KafkaError.CONCURRENT_TRANSACTIONS, is_passing=True)
        if bearer.state == "empty":
            bearer.state, bearer.number = "open", number
            self._world.at(TRANSACTION_SECONDS, self._time_out, bearer, epoch, number)
        return bearer

    def _time_out(self, bearer: Bearer, epoch: int, number: int) -> None:
        if (bearer.epoch, bearer.number, bearer.state) == (epoch, number, "open"):
            self.counts["timed out"] += 1
            bearer.epoch += 1
            self._end(bearer, is_commit=False)

    def _end(self, bearer: Bearer, *, is_commit: bool) -> None:
        bearer.state, bearer.is_commit = "ending", is_commit
        bearer.sure_since = self._world.tick()
        self._world.say("transaction", bearer.name, bearer.number, "commits" if is_commit else "aborts")
        late = LATEST_END * self._world.random() if self._world.random() < LATE_ENDS else 0.0
        self._world.at(self._world.soon() + late, self._appear, bearer)

    def _appear(self, bearer: Bearer) -> None:
        self.counts["committed" if bearer.is_commit else "aborted"] += 1
        outputs, marks = bearer.outputs, bearer.marks
        bearer.state, bearer.outputs, bearer.marks = "empty", [], {}
        if not bearer.is_commit:
            self._effects.vanish(outputs)
            return
        self._effects.appear(outputs)
        stored_at = self._cluster.stored_at
        # What the group took later, outside of transactions, lies behind it in its log and stays.
        newest = {tp: commit for tp, (commit, tick) in marks.items() if stored_at.get(tp, 0) < tick}
        self._cluster.store(newest, bearer.name)
        self._effects.check_marked(outputs, bearer.sure_since, {tp: tick for tp, (_, tick) in marks.items()})
