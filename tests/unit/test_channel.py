"""The live channel, over real sockets on loopback."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support import wait_until
from tidegate.engine import channel
from tidegate.engine.channel import LiveDesk, LiveLine, call_driver
from tidegate.records import Counts, Limits, Outcome, Partition, PartitionOutcome, Position

LIMITS = Limits(read_seconds=60, quiet_seconds=60, idle_seconds=60, attempt_seconds=20)
REPORT = Outcome(0, 7, (PartitionOutcome(Partition("t", 0), 1, Position(42)),), counts=Counts(settled=42))


class Office:
    """A desk, and what it has heard."""

    def __init__(self) -> None:
        self.heard: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self.desk = LiveDesk("127.0.0.1", "127.0.0.1", LIMITS, self.heard.put)

    def call(self, lane: int = 0, round_number: int = 7) -> LiveLine:
        line = call_driver(self.desk.address, lane, round_number)
        assert line is not None
        return line


@pytest.fixture
def office(monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    monkeypatch.setattr(channel, "_unreachable_until", 0.0)
    made = Office()
    yield made
    made.desk.close()


def test_a_report_reaches_the_driver_as_it_was(office: Office) -> None:
    line = office.call()
    assert line.report(REPORT)
    assert office.heard.get(timeout=10) == REPORT
    line.close()


def test_finish_is_heard_by_the_round_it_is_meant_for(office: Office) -> None:
    first, second = office.call(0, 7), office.call(1, 8)
    office.desk.finish(1, 8)
    assert second.listen()
    assert second.finish_asked
    assert not first.finish_asked
    first.close()
    second.close()


def test_finish_that_was_said_before_the_call_is_heard_with_it(office: Office) -> None:
    office.desk.finish(0, 7)
    line = office.call()
    assert line.finish_asked
    line.close()
    office.desk.forget(0, 7)
    line = office.call(0, 8)
    assert not line.finish_asked, "it was said to a round that has ended"
    line.close()


def test_a_round_that_calls_after_it_has_ended_for_spark_reads_nothing_and_holds_no_line(office: Office) -> None:
    """A task that lives on for a while: another round may have its partitions by now."""
    office.desk.forget(0, 7)
    office.desk.finish(0, 7)
    late, other, next_one = office.call(0, 7), office.call(1, 6), office.call(0, 8)
    assert late.finish_asked
    assert not late.listen(), "the desk hangs up"
    assert [office.desk.hears(*one) for one in ((0, 7), (1, 6), (0, 8))] == [False, True, True]
    assert (other.finish_asked, next_one.finish_asked) == (False, False)
    wait_until(lambda: len(_lines()) == 2, within=10, what="the late one's thread has ended")
    for line in (late, other, next_one):
        line.close()


def _lines() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "live-line"]


def test_nobody_gets_in_without_the_token(office: Office) -> None:
    stranger = call_driver(replace(office.desk.address, token="guess"), 0, 7)  # noqa: S106  # a wrong one
    assert stranger is None
    line = office.call()
    assert line.report(REPORT)
    assert office.heard.get(timeout=10) == REPORT
    line.close()


@pytest.mark.parametrize(
    "words",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x02{}", b"\x00\x00\x00\x01", b"\xff\xff\xff\xff", b""],
    ids=["http", "no token", "cut short", "a huge frame", "silence"],
)
def test_what_strangers_say_disturbs_nobody(office: Office, words: bytes) -> None:
    with socket.create_connection((office.desk.address.host, office.desk.address.port), 5) as stranger:
        stranger.settimeout(10)
        # The desk may hang up before all of this is said, and what it did not read makes that a reset.
        with contextlib.suppress(ConnectionError, OSError):
            stranger.sendall(words)
            stranger.shutdown(socket.SHUT_WR)
        try:
            answer = stranger.recv(1)
        except ConnectionError:
            answer = b""
        assert answer == b"", "the desk hangs up"
    line = office.call()
    assert line.report(REPORT)
    assert office.heard.get(timeout=10) == REPORT
    line.close()


def test_a_round_notices_that_the_driver_hung_up(office: Office) -> None:
    line = office.call()
    office.desk.close()
    assert not line.listen()
    line.close()


def test_a_driver_whose_loop_turns_is_heard_and_one_that_stands_still_is_noticed(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "SILENCE_SECONDS", 0.3)
    line = office.call()
    office.desk.tick(lambda _: [])
    assert line.listen()
    assert not line.is_silent
    wait_until(lambda: line.is_silent, within=10, what="the silence is noticed")
    line.close()


def test_a_driver_that_cannot_be_reached_is_not_called_again_at_once(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "_unreachable_until", 0.0)
    office.desk.close()
    assert call_driver(office.desk.address, 0, 7) is None
    other = Office()
    assert call_driver(other.desk.address, 0, 7) is None, "this worker tries again only later"
    other.desk.close()


def test_a_closed_desk_leaves_no_thread_behind(office: Office) -> None:
    line = office.call()
    office.desk.close()
    wait_until(
        lambda: not any(thread.name.startswith("live-") for thread in threading.enumerate()),
        within=10,
        what="the desk's threads have ended",
    )
    line.close()


def test_a_worker_that_takes_nothing_is_hung_up_on_and_does_not_hold_up_the_driver(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "SEND_SECONDS", 0.2)
    frozen = office.call(0, 7)
    sent, until = 0, time.monotonic() + 60
    while office.desk.hears(0, 7):  # until its buffers are full
        office.desk.grant({7: sent})
        sent += 1
        assert time.monotonic() < until
    assert sent > 1
    line = office.call(1, 8)
    office.desk.finish(1, 8)
    assert line.listen()
    assert line.finish_asked
    frozen.close()
    line.close()
