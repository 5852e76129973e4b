"""Effects on their way into a store: none passes one before it, a culprit is found, and nothing is settled early."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from tests.support import wait_until
from tidegate.engine.books import Books
from tidegate.engine.vault import Pending, Vault
from tidegate.errors import Unavailable
from tidegate.ledger import Home, encode
from tidegate.records import Backing, Commit, Lease, LeasedPartition, Limits, Partition, Position
from tidegate.store import Effect, Overtaken, Poisoned, Store

P, Q = Partition("t", 0), Partition("t", 1)


@dataclass(frozen=True)
class Note:
    """As much of the client's message as is asked for here."""

    at: Partition
    record_offset: int

    def topic(self) -> str:
        return self.at.topic

    def partition(self) -> int:
        return self.at.number

    def offset(self) -> int:
        return self.record_offset

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return b"value"

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (0, 0)


@dataclass
class Shelf(Store):
    """A store in memory that refuses what it is told to refuse, all or nothing."""

    bad: set[object] = field(default_factory=set)
    names_suspects: bool = False
    written: list[object] = field(default_factory=list)
    marks: dict[Partition, int] = field(default_factory=dict)
    stood: dict[Partition, Commit] = field(default_factory=dict)
    """Where it stood before, where that is not the beginning."""
    seals: int = 0
    away: bool = False
    overtaken: bool = False
    keeps_progress = True
    takes_copies = True

    def begin(self, partitions: Sequence[Partition], membership: bytes) -> Mapping[Partition, Commit]:  # noqa: ARG002
        return {tp: self.stood.get(tp, Commit(self.marks.get(tp, 0), "")) for tp in partitions}

    def seal(self, effects: Sequence[Effect], commits: Mapping[Partition, Commit]) -> Mapping[int, BaseException]:
        self.seals += 1
        if self.overtaken:
            raise Overtaken("somebody else has it")
        if self.away:
            raise Unavailable("away")
        bad = [at for at, effect in enumerate(effects) if self.bad & set(effect.outputs)]
        if bad and len(effects) > 1:
            raise Poisoned("one of them", bad[0] if self.names_suspects else None)
        if bad:
            return {0: ValueError("this one")}
        for effect in effects:
            self.written += effect.outputs
        for tp, commit in commits.items():
            assert commit.mark >= self.marks.get(tp, 0), "a mark moved back"
            self.marks[tp] = commit.mark
        return {}

    def end(self) -> None:
        """Nothing."""

    def discard(self) -> None:
        """Nothing."""


HOMES = {tp: Home("g", "id", tp.number, "s") for tp in (P, Q)}


class Scene:
    def __init__(self, shelf: Shelf) -> None:
        partitions = tuple(LeasedPartition(tp, 1, Position(0)) for tp in (P, Q))
        self.lease = Lease(0, 1, partitions, Limits(60, 60, 60, 60))
        self.books = Books(self.lease, in_partition_order=True)
        self.vault = Vault(shelf, self.books, HOMES)
        self.vault.begin(self.lease)

    def put(self, *places: tuple[Partition, int]) -> None:
        self.vault.put([Pending([f"{tp.number}:{at}"], message=Note(tp, at)) for tp, at in places])

    def skip(self, tp: Partition, at: int) -> None:
        """As a policy decides: it goes without an effect."""
        pending = Pending([], Note(tp, at))
        pending.kind = 3
        self.vault.put([pending])

    def read(self, *places: tuple[Partition, int]) -> None:
        self.books.take([Note(tp, at) for tp, at in places])

    def drain(self) -> list[str]:
        """Seal all that can be sealed; return what was refused."""
        refused = []
        while True:
            over = self.vault.hurry()
            refused += [str(pending.outputs[0]) for pending, _ in self.vault.take_refused()]
            if over:
                return refused
            self.vault.wait(0.01)


def test_nothing_passes_a_record_that_is_still_open_and_partitions_do_not_wait_for_each_other() -> None:
    shelf = Shelf()
    scene = Scene(shelf)
    scene.read((P, 0), (P, 1), (P, 2), (Q, 0))
    scene.put((P, 1), (P, 2), (Q, 0))
    assert scene.drain() == []
    assert (shelf.written, shelf.marks) == (["1:0"], {Q: 1})
    assert scene.books.ledgers[P].mark == 0
    scene.put((P, 0))
    assert scene.drain() == []
    assert shelf.written == ["1:0", "0:0", "0:1", "0:2"]
    assert shelf.marks == {P: 3, Q: 1}
    assert scene.books.ledgers[P].mark == 3
    scene.vault.close()


def at_replay(mark: int, replay: int) -> Commit:
    return Commit(mark, encode(Position(mark, replay=replay), HOMES[P]))


@pytest.mark.parametrize(
    ("stored", "membership", "begins", "because"),
    [
        (at_replay(5, 0), b"me", 2, "a round of before the rewind has taken it back"),
        (at_replay(5, 1), b"me", 5, "one of after the rewind has gone on from there"),
        (at_replay(5, 0), b"", 5, "a table was restored from a copy of before the rewind"),
    ],
)
def test_a_rewind_is_not_taken_back_by_a_round_of_before(
    stored: Commit, membership: bytes, begins: int, because: str
) -> None:
    shelf = Shelf(stood={P: stored})
    leased = (LeasedPartition(P, 2, Position(2, replay=1)),)
    lease = Lease(0, 1, leased, Limits(60, 60, 60, 60), backing=Backing({P: "id"}, membership))
    books = Books(lease, in_partition_order=True)
    vault = Vault(shelf, books, HOMES)
    vault.begin(lease)
    assert books.ledgers[P].mark == begins, because
    while not vault.hurry():
        vault.wait(0.01)
    vault.close()
    assert shelf.marks.get(P, 5) == begins, "and so it is stored"


@pytest.mark.parametrize("names_suspects", [True, False])
def test_culprits_are_found_with_few_seals_and_everybody_else_gets_in_once(names_suspects: bool) -> None:
    shelf = Shelf(bad={"0:137", "0:1600"}, names_suspects=names_suspects)
    scene = Scene(shelf)
    places = [(P, at) for at in range(2000)]
    scene.read(*places)
    scene.put(*places)
    found: list[str] = []
    while len(found) < 2:
        found += scene.drain()
        for one in found[-1:]:
            at = int(one.split(":")[1])
            scene.skip(P, at)
    assert scene.drain() == []
    assert found == ["0:137", "0:1600"]
    assert shelf.written == [f"0:{at}" for at in range(2000) if f"0:{at}" not in shelf.bad]
    assert shelf.marks[P] == 2000
    assert shelf.seals < (12 if names_suspects else 80)
    assert scene.books.outcome({}).counts.skipped == 2
    scene.vault.close()


def test_a_store_that_is_away_is_found_out_by_the_first_record_and_the_others_wait() -> None:
    shelf = Shelf(away=True)
    scene = Scene(shelf)
    scene.read((P, 0), (P, 1))
    scene.put((P, 0), (P, 1))
    assert scene.drain() == ["0:0"]
    assert shelf.seals == 1, "those behind it do not ask again"
    shelf.away = False
    scene.put((P, 0))
    assert scene.drain() == []
    assert shelf.written == ["0:0", "0:1"]
    scene.vault.close()


def test_a_round_that_was_overtaken_settles_nothing_more() -> None:
    shelf = Shelf()
    scene = Scene(shelf)
    scene.read((P, 0), (P, 1))
    scene.put((P, 0))
    assert scene.drain() == []
    shelf.overtaken = True
    scene.put((P, 1))
    assert scene.drain() == []
    assert scene.vault.overtaken == "somebody else has it"
    assert scene.books.ledgers[P].mark == 1
    scene.vault.close()


def test_the_round_begins_where_the_store_stands_and_not_where_the_lease_says() -> None:
    scene = Scene(Shelf(marks={P: 40}))
    assert {tp: ledger.mark for tp, ledger in scene.books.ledgers.items()} == {P: 40, Q: 0}
    scene.vault.close()


def test_what_lies_between_records_is_passed_with_the_marks_at_the_end() -> None:
    shelf = Shelf()
    scene = Scene(shelf)
    scene.books.reach(P, 9)
    assert scene.drain() == []
    assert shelf.marks == {P: 9}
    scene.vault.close()


def test_marks_that_move_without_an_effect_are_stored_though_another_partition_waits_and_the_round_goes_on() -> None:
    shelf = Shelf()
    scene = Scene(shelf)
    scene.read((Q, 0), (Q, 1))
    scene.put((Q, 1))  # it waits behind 0, and nothing of its partition can be sealed
    wait_until(lambda: scene.vault.is_busy is False, within=10, what="the look at what waits")
    scene.books.reach(P, 9)
    wait_until(lambda: shelf.marks.get(P) == 9, within=20, what="the mark of P")
    assert shelf.written == []
    scene.put((Q, 0))
    wait_until(lambda: shelf.marks.get(Q) == 2, within=20, what="the mark of Q")
    assert shelf.written == ["1:0", "1:1"]
    scene.vault.close()


def test_the_end_of_a_round_stores_marks_that_moved_though_another_partition_waits() -> None:
    shelf = Shelf()
    scene = Scene(shelf)
    scene.read((Q, 0), (Q, 1))
    scene.put((Q, 1))
    assert scene.drain() == []
    scene.books.reach(P, 9)
    assert scene.drain() == []
    assert shelf.marks == {P: 9}
    scene.vault.close()


def test_a_gap_that_the_store_does_not_have_is_not_told_to_the_driver() -> None:
    shelf = Shelf(marks={P: 4})
    scene = Scene(shelf)
    scene.read((P, 4))
    scene.put((P, 4))
    assert scene.drain() == []
    scene.books.reach(P, 6)
    scene.books.reach(Q, 2)
    shelf.overtaken = True
    report = scene.books.report(None, {})
    assert report is not None
    assert {one.partition: one.position.mark for one in report.partitions} == {P: 5, Q: 0}
    scene.vault.hurry()
    scene.vault.close()
    assert [one.position.mark for one in scene.books.outcome({}).partitions] == [5, 0]
    assert shelf.marks == {P: 5}


def test_effects_are_sealed_by_themselves_a_moment_after_they_were_put() -> None:
    shelf = Shelf()
    scene = Scene(shelf)
    scene.read((P, 0))
    scene.put((P, 0))
    wait_until(lambda: scene.books.ledgers[P].mark == 1, within=10, what="the seal")
    scene.vault.close()


@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_ends_and_refusals_loses_doubles_or_overtakes(seed: int) -> None:
    chance = random.Random(seed)
    count = 300
    bad: set[object] = {f"{tp.number}:{at}" for tp in (P, Q) for at in range(count) if chance.random() < 0.02}
    shelf = Shelf(bad=bad, names_suspects=chance.random() < 0.5)
    scene = Scene(shelf)
    places = [(tp, at) for at in range(count) for tp in (P, Q)]
    scene.read(*places)
    seen_marks: list[int] = []
    watching = threading.Event()

    def watch() -> None:
        while not watching.is_set():
            seen_marks.append(scene.books.ledgers[P].mark)
            time.sleep(0.001)  # between two looks

    watcher = threading.Thread(target=watch)
    watcher.start()
    waiting = list(places)
    chance.shuffle(waiting)
    while waiting:
        size = chance.randrange(1, 40)
        scene.put(*waiting[:size])
        waiting = waiting[size:]
        for name in scene.drain():
            number, at = map(int, name.split(":"))
            scene.skip(Partition("t", number), at)
    while refused := scene.drain():
        for name in refused:
            number, at = map(int, name.split(":"))
            scene.skip(Partition("t", number), at)
    watching.set()
    watcher.join()
    assert shelf.marks == {P: count, Q: count}
    assert seen_marks == sorted(seen_marks)
    for tp in (P, Q):
        mine = [one for one in shelf.written if str(one).startswith(f"{tp.number}:")]
        assert mine == [f"{tp.number}:{at}" for at in range(count) if f"{tp.number}:{at}" not in bad]
    scene.vault.close()
