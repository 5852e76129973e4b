"""The vault with a store that takes what it is given: what leaves, in which order, and what is left behind."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from tests.support import wait_until
from tidegate.engine.books import Books
from tidegate.engine.vault import GARBAGE_AFTER, Pending, Vault
from tidegate.ledger import Home
from tidegate.records import Commit, Lease, LeasedPartition, Limits, Partition, Position
from tidegate.store import Effect, Store

PARTITIONS = [Partition("orders", 0), Partition("orders", 1)]


@dataclass
class Note:
    """A message of the client, as far as a vault looks at it."""

    number: int
    record_offset: int

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.record_offset

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return b"12345"

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 0, 0


class Shelf(Store):
    """Takes everything, and remembers it."""

    takes_copies = True

    def __init__(self, *, keeps_progress: bool) -> None:
        self.keeps_progress = keeps_progress
        self.effects: list[Effect] = []
        self.marks: dict[Partition, int] = {}

    def begin(self, partitions: Sequence[Partition], membership: bytes) -> Mapping[Partition, Commit]:  # noqa: ARG002  # the seam's
        return {}

    def seal(self, effects: Sequence[Effect], commits: Mapping[Partition, Commit]) -> Mapping[int, BaseException]:
        self.effects += effects
        self.marks |= {partition: commit.mark for partition, commit in commits.items()}
        return {}

    def end(self) -> None: ...

    def discard(self) -> None: ...


def begun(shelf: Shelf) -> tuple[Vault, Books]:
    leased = tuple(LeasedPartition(partition, 1, Position(0)) for partition in PARTITIONS)
    lease = Lease(0, 1, leased, Limits(60, 60, 60, 60))
    books = Books(lease, in_partition_order=True)
    vault = Vault(shelf, books, {one: Home("billing", "id", one.number, "") for one in PARTITIONS})
    vault.begin(lease)
    return vault, books


def put(vault: Vault, books: Books, notes: list[Note]) -> None:
    books.take(notes)
    vault.put([Pending([(note.number, note.record_offset)], note) for note in notes])


def drain(vault: Vault) -> None:
    wait_until(vault.hurry, within=10, what="all is sealed that can be")


@pytest.mark.parametrize("keeps_progress", [True, False])
def test_what_is_through_reaches_the_store_in_the_order_of_its_partition_and_nothing_stays(
    keeps_progress: bool,
) -> None:
    shelf = Shelf(keeps_progress=keeps_progress)
    vault, books = begun(shelf)
    put(vault, books, [Note(number % 2, number // 2) for number in range(100)])
    drain(vault)
    vault.close()
    for partition in PARTITIONS:
        mine = [at for effect in shelf.effects for number, at in effect.outputs if number == partition.number]
        assert mine == list(range(50))
    assert books.outcome({}).counts.settled == 100
    assert {one.partition: one.position.mark for one in books.outcome({}).partitions} == dict.fromkeys(PARTITIONS, 50)
    assert shelf.marks == (dict.fromkeys(PARTITIONS, 50) if keeps_progress else {})
    assert (vault._waiting, vault._bytes) == (0, 0)


def test_a_mark_waits_for_the_first_record_that_is_not_through() -> None:
    shelf = Shelf(keeps_progress=True)
    vault, books = begun(shelf)
    notes = [Note(0, at) for at in range(10)]
    books.take(notes)
    vault.put([Pending([at], notes[at]) for at in range(10) if at != 4])
    drain(vault)
    assert [effect.outputs[0] for effect in shelf.effects] == [0, 1, 2, 3]
    assert shelf.marks == {PARTITIONS[0]: 4, PARTITIONS[1]: 0}
    vault.put([Pending([4], notes[4])])
    drain(vault)
    vault.close()
    assert [effect.outputs[0] for effect in shelf.effects] == list(range(10))
    assert shelf.marks[PARTITIONS[0]] == 10


def test_python_looks_for_garbage_as_before_when_the_round_is_over() -> None:
    before = gc.get_threshold()
    vault, _ = begun(Shelf(keeps_progress=True))
    assert gc.get_threshold()[0] == max(before[0], GARBAGE_AFTER)
    vault.close()
    assert gc.get_threshold() == before
