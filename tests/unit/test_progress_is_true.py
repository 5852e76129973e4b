"""What a round notes of a record is true of that record: nothing counts as done that was not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import pytest

import tidegate as tg
from tests.unit.test_lonely_rounds import PLACE, Written
from tidegate.context import Hand
from tidegate.engine import watch as watching
from tidegate.engine.attempts import Attempt
from tidegate.engine.books import Books
from tidegate.engine.copying import Copier
from tidegate.engine.fates import Tools
from tidegate.engine.inorder import InOrder
from tidegate.engine.pool import Job, ThreadPool
from tidegate.engine.round import Round
from tidegate.engine.watch import watch
from tidegate.pipeline import Pipeline
from tidegate.records import Lease, LeasedPartition, Limits, Open, Outcome, Partition, PartitionOutcome, Position

LIMITS = Limits(30.0, 0.2, 0.3, 20.0)


class Memory:
    """A reader without a broker, which keeps what was put back as ours does: what lies in memory is not read again."""

    def __init__(self, *offsets: int) -> None:
        self._log = [Written(at) for at in offsets]
        self._leftover: list[Written] = []
        self._stood: dict[Partition, int] = {}
        self._stopped: set[Partition] = set()
        self._next = 0
        self.lost: dict[Partition, int] = {}

    def begin(self, marks: Mapping[Partition, int], _era: str) -> None:
        stood, self._stood = self._stood, {}
        if stood == dict(marks) and not self._stopped & set(marks):
            return
        self._leftover, self._stopped = [], set()
        self._next = next((at for at, one in enumerate(self._log) if one.at >= marks[PLACE]), len(self._log))

    def read(self, most: int, _wait: float) -> list[Written]:
        if self._leftover:
            taken, self._leftover = self._leftover[:most], self._leftover[most:]
            return taken
        taken = self._log[self._next :][:most]
        self._next += len(taken)
        return taken

    def put_back(self, messages: list[Written]) -> None:
        self._leftover = messages + self._leftover

    def stand_at(self, partition: Partition, mark: int) -> None:
        self._stood[partition] = mark

    def stop(self, partition: Partition) -> None:
        self._stopped.add(partition)
        self._leftover = []

    def hold(self, _partition: Partition) -> None: ...

    def release(self, _partition: Partition) -> None: ...

    def take_ends(self, _unfinished: object) -> dict[Partition, int]:
        return {}


def a_round(
    pipeline: Pipeline,
    reader: Memory,
    mark: int,
    *,
    limits: Limits = LIMITS,
    known: Sequence[Open] = (),
    done: Mapping[int, frozenset[tuple[int, int]]] | None = None,
    permits: int | None = None,
    until: int | None = None,
) -> Round:
    plan = pipeline.plan()
    leased = LeasedPartition(PLACE, 1, Position(mark, done=done or {}), until, tuple(known))
    copier = Copier("g", plan.fingerprint, {}, lambda: pytest.fail("no copy is due"))
    lease = Lease(0, 1, (leased,), limits, permits=permits)
    return Round(lease, Tools(plan, "g", copier, {}, 1000.0), reader)  # type: ignore[arg-type]  # all that it asks for


def came_back(one: Round) -> PartitionOutcome:
    outcome: Outcome = one.outcome(0.0, has_resources=False)
    assert outcome.broken is None
    return outcome.partitions[0]


@pytest.mark.parametrize("slow", [b"1", b"2"])
def test_a_record_whose_attempt_takes_too_long_has_reached_no_sink_and_does_so_when_it_is_tried_again(
    slow: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_thread", [])  # a worker of its own: this one is stuck in the end
    got: list[object] = []
    go_on = threading.Event()
    is_stuck = [True]

    def fetch(value: bytes) -> bytes:
        if value == slow and is_stuck[0]:
            go_on.wait(20)
            raise TimeoutError
        return value

    pipeline = tg.from_kafka("t", group="g").map(fetch).sink(got.append).on_error(tg.retry(1, wait="10ms"))
    reader = Memory(0, 1, 2, 3)
    first = a_round(pipeline, reader, 0, limits=Limits(30.0, 0.2, 0.3, 0.4))
    assert not watch(first, lambda: None, None)
    told = came_back(first)
    is_stuck[0] = False
    go_on.set()
    assert told.position.done == {}
    assert told.position.mark == int(slow)
    second = a_round(pipeline, Memory(0, 1, 2, 3), told.position.mark, known=told.open, done=told.position.done)
    second.work_through()
    assert came_back(second).position.mark == 4
    assert got == [b"0", b"1", b"2", b"3"]


class Gate:
    """Lets so many records come as it was told, whether they begin or wait: where that stops is ours to choose."""

    def __init__(self) -> None:
        self.left = 0

    def pass_one(self, _now: float) -> bool:
        self.left -= 1
        return self.left >= 0

    def go_back(self) -> None:
        pass


def test_what_had_waited_when_a_round_ends_does_not_stand_behind_what_was_read_later() -> None:
    got: list[bytes] = []
    is_bad = [True]

    def write(value: bytes) -> None:
        if value == b"0" and is_bad[0]:
            raise ValueError("once")
        got.append(value)
        work.is_stopping |= value == b"0"  # the driver says "finish now", or the time is up

    pipeline = tg.from_kafka("t", group="g").sink(write).on_error(tg.retry(3, wait="10ms"))
    plan, reader, place = pipeline.plan(), Memory(*range(6)), LeasedPartition(PLACE, 1, Position(0))
    lease = Lease(0, 1, (place,), LIMITS, permits=0)
    copier = Copier("g", plan.fingerprint, {}, lambda: pytest.fail("no copy is due"))
    tools, books = Tools(plan, "g", copier, {}, 1.0), Books(lease, in_partition_order=True)
    work = InOrder(lease, tools, reader, books, Hand("g"))  # type: ignore[arg-type]  # all of a reader that it asks for
    work.turnstile = gate = Gate()  # type: ignore[assignment]  # the moments are ours to choose
    reader.begin({PLACE: 0}, "")
    gate.left = 3
    work.run([*reader.read(6, 0.0)])  # 0 fails, 1 and 2 wait behind it, and the others have no permit
    is_bad[0] = False
    time.sleep(0.02)
    gate.left = 1
    work.run_waiting()  # 3 waits behind it, too
    gate.left = 10
    work.run_waiting()  # 0 is through, and the round ends
    work.leave()
    mark = books.outcome({}).partitions[0].position.mark
    assert (got, mark) == ([b"0"], 1)
    following = a_round(pipeline, reader, mark, permits=100)
    following.work_through()
    assert got == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert came_back(following).position.mark == 6


def test_what_a_late_question_hears_of_a_record_is_not_what_the_next_one_in_that_thread_has_done() -> None:
    asked, goes_on = threading.Event(), threading.Event()

    def first(value: bytes) -> None:
        if value == b"0":
            asked.wait(20)
            raise ValueError("it reached nobody")

    def second(_value: bytes) -> None:
        goes_on.wait(20)

    pool = ThreadPool(tg.from_kafka("t", group="g").sink(first).sink(second).plan(), "g")
    pool.begin_round(20.0)
    jobs = [Job([Attempt(Written(at))], [(PLACE, None)]) for at in (0, 1)]
    for job in jobs:
        pool.submit(job)
    until(lambda: jobs[0].progress is not None)
    progress = jobs[0].progress  # as the work thread takes it, which may then have to wait for its turn
    asked.set()
    until(lambda: jobs[1].progress is not None and bool(jobs[1].progress()))
    assert progress is not None
    assert progress() == frozenset()
    goes_on.set()
    pool.close()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)
