"""The record log keeps what many processes wrote, whatever became of them."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidegate.context import Hand, current, take_in_hand
from tidegate.errors import SettingsError
from tidegate.records import Partition
from tidegate.testing import Fault, RecordLog

# Newer Pythons warn of every fork beside a thread, and the Kafka client of another test may have left some.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@dataclass(frozen=True)
class FakeMessage:
    at: int
    name: bytes | None = None

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return b"v"

    def headers(self) -> Sequence[tuple[str, bytes | None]] | None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (0, 0)


@contextmanager
def in_hand(record_offset: int, key: bytes | None = None) -> Iterator[None]:
    hand = Hand("billing")
    hand.message = FakeMessage(record_offset, key)
    take_in_hand(hand)
    try:
        yield
    finally:
        take_in_hand(None)


@pytest.fixture
def log(tmp_path: Path) -> RecordLog:
    return RecordLog(tmp_path / "log")


def in_a_child(work: Callable[[], object]) -> int:
    """Run this in a forked process and return its id."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    return pid


def test_an_empty_log_holds_nothing(log: RecordLog) -> None:
    entries = log.read()

    assert (entries.events, entries.faults, log.count()) == ((), (), 0)


def test_an_event_says_which_record_ran_where(log: RecordLog) -> None:
    with in_hand(41, b"\x00k"):
        assert log.began("value") == "value"
        log.settled("value")
    began, settled = log.read().events

    assert (began.kind, settled.kind) == ("began", "settled")
    assert log.read().settled == (settled,)
    assert (settled.partition, settled.record_offset) == (Partition("orders", 3), 41)
    assert (settled.stable_id, settled.key, settled.attempt) == ("billing:orders:3:41", b"\x00k", 1)
    assert (settled.pid, settled.driver) == (os.getpid(), os.getpid())
    assert began.at_ms <= settled.at_ms


def test_a_fault_keeps_its_facts(log: RecordLog) -> None:
    log.fault("worker_killed", worker=7, signal="KILL")
    log.fault("partition_lost")
    killed, lost = log.read().faults

    assert killed == Fault("worker_killed", killed.at_ms, None, 7, {"signal": "KILL"})
    assert (lost.kind, lost.driver, lost.worker) == ("partition_lost", None, None)


def test_a_worker_writes_under_its_own_name_and_that_of_the_program(log: RecordLog) -> None:
    """The log was used before the fork, as a daemon that forks workers may have done."""
    with in_hand(1):
        log.settled()
        sink = pickle.loads(pickle.dumps(log.settled))  # noqa: S301  # made one call before
        child, other = in_a_child(sink), in_a_child(sink)
    here, first, second = log.read().events

    assert (here.pid, first.pid, second.pid) == (os.getpid(), child, other)
    assert len({here.process, first.process, second.process}) == 3
    assert {event.driver for event in (here, first, second)} == {os.getpid()}
    assert len({event.run for event in (here, first, second)}) == 1


def test_each_start_of_a_program_is_a_run_of_its_own(log: RecordLog) -> None:
    with in_hand(1):
        log.settled()
        RecordLog(log.path).settled()

    assert len({event.run for event in log.read().events}) == 2


def test_half_a_line_of_a_killed_process_swallows_no_other(log: RecordLog) -> None:
    with in_hand(1):
        log.settled()
        with Path(log.path).open("ab") as file:
            file.write(b'\n{"kind":"settled","topic":"or')
        log.settled()

    assert [event.record_offset for event in log.read().events] == [1, 1]


def test_counting_can_ask_for_one_kind_and_one_program(log: RecordLog) -> None:
    with in_hand(1):
        log.began(None)
        log.settled()
        in_a_child(lambda: RecordLog(log.path).settled())
    log.fault("worker_killed")

    assert (log.count(), log.count("began"), log.count(driver=os.getpid())) == (2, 1, 1)


def test_work_is_waited_for_where_a_program_has_done_some(log: RecordLog) -> None:
    assert not log.wait_for_work(os.getpid(), within=60), "it has done nothing yet: nobody waits"
    with in_hand(1):
        log.began(None)
        log.settled()
        assert not log.wait_for_work(os.getpid(), within=0.02), "what was begun before is no work of now"
        with ThreadPoolExecutor(1) as threads:
            waited = threads.submit(log.wait_for_work, os.getpid(), 60)
            while not waited.done():
                log.settled()
                log.began(None)
        assert waited.result()


def test_many_processes_at_once_lose_no_line(log: RecordLog) -> None:
    def write_many() -> None:
        for number in range(2000):
            with in_hand(number):
                log.settled()

    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                write_many()
            finally:
                os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    events = log.read().events

    for pid in children:
        assert [event.record_offset for event in events if event.pid == pid] == list(range(2000))


def test_outside_of_a_record_nothing_can_be_noted(log: RecordLog) -> None:
    with pytest.raises(SettingsError, match="outside of a record's work"):
        log.settled()


def test_a_list_of_records_is_noted_record_by_record(tmp_path: Path) -> None:
    log = RecordLog(tmp_path / "records")
    made = []
    for record_offset in (4, 5):
        with in_hand(record_offset, b"k"):
            made.append(current())
    log.settled(made)
    log.settled([])

    found = [(one.record_offset, one.stable_id, one.key) for one in log.read().settled]
    assert found == [(4, "billing:orders:3:4", b"k"), (5, "billing:orders:3:5", b"k")]
