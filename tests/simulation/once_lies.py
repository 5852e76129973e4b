"""Drivers and workers that lie where effects and marks are stored as one."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace

from confluent_kafka import KafkaError, Producer

from tests.simulation.cluster import GROUP
from tests.simulation.lie import Lie
from tests.simulation.simulation import Made
from tidegate.engine.backing import Backer
from tidegate.engine.board import Board
from tidegate.engine.driver import Driver
from tidegate.engine.rewinder import Rewinder
from tidegate.engine.vault import Vault
from tidegate.kafka import transactions
from tidegate.kafka.committed import CommittedReader
from tidegate.kafka.connection import Kafka
from tidegate.kafka.member import Member
from tidegate.kafka.transactions import ANSWER_SECONDS, Transactions
from tidegate.records import Backing, Commit, Lease, LeasedPartition, Partition, Position
from tidegate.store import Effect


class DoesNotShutOut(Driver):
    """Moves on what a dead round had while that may still commit."""

    def _end_badly(self, lease: Lease, error: Exception | None) -> None:
        self._bury(lease, error, is_shut_out=True)


class RewindsBesideLateRounds(Rewinder):
    """Commits a rewind by the member alone, where a round that was shut out may begin late."""

    def __init__(self, *what: object) -> None:
        super().__init__(*what[:4])  # type: ignore[arg-type]  # without what shuts them out


class BeginsAtTheLease(Vault):
    """Begins where the lease says, wherever the store stands."""

    def _stored(self, item: LeasedPartition, commit: Commit | None) -> Position | None:
        stored = super()._stored(item, commit)
        return None if stored is None else item.position


class NamesNoMember(Backer):
    """Gives rounds a membership that no group looks at."""

    def backing(self, lease: Lease, member: Member) -> Backing:
        return replace(super().backing(lease, member), membership=pickle.dumps(("", -1)))


def _marks_by_another_reader(kafka: Kafka, partitions: Sequence[Partition]) -> Mapping[Partition, Commit]:
    made: type[CommittedReader] = vars(transactions)["CommittedReader"]
    return made(kafka, GROUP, ANSWER_SECONDS, require_stable=True).read(partitions)


class ReadsBeforeItShutsOut(Transactions):
    """Reads the marks first, and shuts out then whoever may still move them."""

    def begin(self, partitions: Sequence[Partition], membership: bytes) -> Mapping[Partition, Commit]:
        before = _marks_by_another_reader(self._kafka, partitions)
        super().begin(partitions, membership)
        return before


class SealsTwice(Transactions):
    """Does a transaction again whose commit may have been done."""

    def _may_try_again(self, producer: Producer, problem: KafkaError) -> bool:
        super()._may_try_again(producer, problem)
        if self._producer is None:
            self._producer = transactions._open(self._kafka, self._name, self._undelivered)
        return problem.code() == KafkaError._TIMED_OUT


class CommitsEffectsAlone(Transactions):
    """Stores the marks in a transaction of their own, after the effects."""

    def _write(self, producer: Producer, effects: Sequence[Effect], commits: Mapping[Partition, Commit]) -> None:
        super()._write(producer, effects, {})
        super()._write(producer, [], commits)


class CommitsBesideItsRounds(Board):
    """Commits the marks that rounds have stored once more."""

    def __init__(self, *what: object, rounds_commit: bool, **more: object) -> None:
        super().__init__(*what, rounds_commit=not rounds_commit, **more)  # type: ignore[arg-type]  # passed on


class ForgetsTheNamesOfTheDead(Board):
    """Gives what a dead round had to another lane, by another name, while the group has not moved on."""

    def leases(self, now: float = 0.0) -> list[Lease]:
        for owned in self._owned.values():
            owned.bound = None
        return super().leases(now)


class PassesWhatIsOpen(Vault):
    """Stores a mark that passes a record which is not through."""

    def _choose(self) -> tuple[list[object], dict[Partition, Position]]:  # type: ignore[override]  # that is the lie
        waiting: list[object] = []
        ends: dict[Partition, Position] = {}
        for (topic, number), through in self._through.items():
            if through:
                partition = Partition(topic, number)
                ends[partition] = Position(max(through) + 1, replay=self._books.replay(partition))
                waiting += through.values()
        self._is_blocked = not waiting
        return waiting, ends

    @property
    def _has_marks(self) -> bool:
        """The lie is in the effects; a mark that is ahead of the books is no gap to be sealed."""
        return False


class TellsWhatIsNotStored(Vault):
    """Tells the driver of marks that the store does not have."""

    def begin(self, lease: Lease) -> None:
        super().begin(lease)
        self._books._stored = None


ONCE_LIES: dict[str, Lie] = {
    "rewinds beside late rounds": Lie(Made(rewinder=RewindsBesideLateRounds), store="kafka", first=1_200_005_800),
    # A rewind shuts them out once more, by itself.
    "does not shut out a dead round": Lie(
        Made(driver=DoesNotShutOut, rewinder=RewindsBesideLateRounds),
        ("rewind", "rewind", "die", "hang"),
        store="kafka",
    ),
    "forgets the names of dead rounds": Lie(Made(board=ForgetsTheNamesOfTheDead), store="kafka", first=90_600),
    "begins where the lease says": Lie(Made(vault=BeginsAtTheLease), store="kafka"),
    "names no member": Lie(Made(backer=NamesNoMember), ("kill", "freeze", "cut"), store="kafka"),
    "reads the marks before it shuts out": Lie(
        Made(transactions=ReadsBeforeItShutsOut, driver=DoesNotShutOut), ("die", "hang"), store="kafka"
    ),
    "seals again what may be sealed": Lie(Made(transactions=SealsTwice), store="kafka", first=4500),
    "stores marks after their effects": Lie(Made(transactions=CommitsEffectsAlone), store="kafka"),
    "commits beside its rounds": Lie(Made(board=CommitsBesideItsRounds), store="kafka"),
    "lets a mark pass what is open": Lie(Made(vault=PassesWhatIsOpen), store="kafka"),
    "tells of marks that are not stored": Lie(Made(vault=TellsWhatIsNotStored), store="kafka", first=1700),
}
