"""Trials and attacks without a broker: faults count with evidence only, and nothing outlives a trial."""

from __future__ import annotations

import os
import signal
import socket
import socketserver
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.support import is_alive, wait_until
from tidegate.errors import BrokerUnreachable
from tidegate.ops.produce import Message
from tidegate.testing import (
    Attack,
    CutConnections,
    DelayRequests,
    DenyCommits,
    DropConnections,
    Due,
    FailSink,
    FillDisk,
    FreezeDriver,
    KillDriver,
    KillExecutor,
    PlannedFault,
    Program,
    Rebalance,
    Schedule,
    SkewClock,
    SlowSink,
    Stage,
    Struck,
    Subject,
    Switch,
    Trial,
)
from tidegate.testing import attack as attacking
from tidegate.testing.evidence import Witness
from tidegate.testing.remains import Remains
from tidegate.testing.requests import METADATA
from tidegate.testing.trial import dated

SPEAK = (
    "import datetime, json, signal, sys, time\n"
    "def say(action):\n"
    "    now = datetime.datetime.now(datetime.UTC).isoformat(timespec='milliseconds')\n"
    "    print(json.dumps({'time': now, 'action': action, 'message': action}), file=sys.stderr, flush=True)\n"
)
SLEEP = "import time; time.sleep(60)"
CHILD = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); "
UP = "import sys, time; print('up', file=sys.stderr, flush=True); time.sleep(60)"


@pytest.fixture
def stage() -> Iterator[Stage]:
    """One whose broker is never started."""
    made = Stage()
    yield made
    made.proxy.close()


@pytest.fixture
def make_trial(stage: Stage, tmp_path: Path) -> Iterator[Callable[..., Trial]]:
    made: list[Trial] = []

    def make(code: str = "", **subject: object) -> Trial:
        """A trial with one running copy that does this; without code none runs."""
        folder = tmp_path / f"trial-{len(made)}"
        folder.mkdir()
        trial = Trial(stage, Subject(**{"app": "app.py", "topic": "t", "group": "g", **subject}), folder)  # type: ignore[arg-type]  # a test's
        made.append(trial)
        if code:
            trial.copies.append(start(folder, f"{SPEAK}\nsay('up')\n{code}"))
            wait_until(lambda: "up" in trial.copies[0].err, within=20, what="it is up")
        return trial

    yield make
    for trial in made:
        trial.close()


def start(folder: Path, code: str) -> Program:
    return Program([sys.executable, "-c", code], folder, dict(os.environ))


def ask(switch: Switch, name: str) -> None:
    """Ask it as a program does."""
    assert switch.is_on(name)


def strike(trial: Trial, fault: PlannedFault, meanwhile: Callable[[], None] = lambda: None) -> Struck:
    """Strike once; `meanwhile` is called when it has begun."""
    attack = Attack(trial.stage, [trial], lambda _: meanwhile())
    attack.run(Schedule(0.3, (Due(0.0, fault, 0.0),)))
    assert trial.attacks == [attack]
    return attack.struck[0]


# --- evidence


@pytest.mark.parametrize(
    ("fault", "name"), [(FailSink(seconds=0.2), "fail sink"), (SlowSink(seconds=0.2), "slow sink")]
)
def test_a_sink_counts_as_away_or_slow_when_a_record_met_it(
    make_trial: Callable[..., Trial], fault: PlannedFault, name: str
) -> None:
    trial = make_trial()
    met = strike(trial, fault, partial(ask, trial.switch, name))
    assert (met.happened, met.told) == (True, "it was met")
    assert not trial.switch.is_on(name)

    unmet = strike(make_trial(), fault)
    assert (unmet.happened, unmet.told) == (False, "no record met it")


def test_a_sink_that_is_taken_away_counts_when_a_run_says_so(
    make_trial: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attacking, "_SAID_SECONDS", 5.0)
    calls: list[bool] = []
    trial = make_trial("while True: say('held'); time.sleep(0.02)", sink_away=calls.append)
    struck = strike(trial, FailSink(seconds=0.1))
    assert (struck.happened, struck.told, calls) == (True, "held", [True, False])


def test_a_fault_that_cannot_be_ended_keeps_no_other_one_from_its_end(make_trial: Callable[..., Trial]) -> None:
    def away(is_away: bool) -> None:
        if not is_away:
            raise BrokerUnreachable("it does not start again", "look at its log")

    broken, other = make_trial(sink_away=away), make_trial()
    attack = Attack(broken.stage, [broken, other])
    first, second = Due(0.0, FailSink(seconds=0.1), 0.0), Due(0.0, SlowSink(seconds=0.1), 0.9)
    with pytest.raises(BrokerUnreachable):
        attack.run(Schedule(0.5, (first, second)))
    assert not other.switch.is_on("slow sink")


@pytest.mark.parametrize(("word", "happened"), [("history_failed", True), ("gained", False)])
def test_a_disk_counts_as_full_when_the_run_says_so(
    make_trial: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch, word: str, happened: bool
) -> None:
    monkeypatch.setattr(attacking, "_SAID_SECONDS", 0.5)
    trial = make_trial(f"while True: say({word!r}); time.sleep(0.02)")
    assert strike(trial, FillDisk(seconds=0.1)).happened is happened


@pytest.mark.parametrize(
    ("word", "session", "happened"),
    [("gained", "6s", True), ("lost", "0.1s", True), ("gained", "0.1s", False)],
    ids=["shorter than the session", "longer, and lost", "longer, and not lost"],
)
def test_a_freeze_counts_when_it_stood_still_and_its_member_was_lost_where_it_had_to_be(
    make_trial: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch, word: str, session: str, happened: bool
) -> None:
    monkeypatch.setattr(attacking, "_SAID_SECONDS", 0.5)
    trial = make_trial(f"while True: say({word!r}); time.sleep(0.02)", words=("--set", f"session_timeout={session}"))
    struck = strike(trial, FreezeDriver(seconds=0.3))
    assert (struck.happened, "stood still" in struck.told) == (happened, True)
    assert not trial.copies[0].is_frozen


def test_a_freeze_of_what_was_killed_meanwhile_does_not_count(make_trial: Callable[..., Trial]) -> None:
    trial = make_trial(SLEEP)
    [program] = trial.copies

    def kill() -> None:
        trial.copies.clear()
        program.kill()

    struck = strike(trial, FreezeDriver(seconds=0.1), kill)
    assert (struck.happened, struck.told) == (False, f"process {program.pid} had ended")
    program.kill_all()


def test_a_clock_counts_as_wrong_when_something_was_produced_by_it(
    make_trial: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attacking, "_GRACE_SECONDS", 0.2)
    days: list[int] = []

    trial = make_trial()
    assert not strike(trial, SkewClock(seconds=0.1), lambda: days.append(trial.skew_days)).happened
    assert (days, trial.skew_days) == ([-10], 0)


def test_what_is_produced_by_a_wrong_clock_carries_its_time() -> None:
    now = datetime.now(UTC)
    message = dated(Message("x", key="k", timestamp=now), -10)
    assert (message.value, message.key, message.timestamp) == ("x", "k", now - timedelta(days=10))
    plain = dated({"id": 1}, 3)
    assert plain.value == {"id": 1}
    assert plain.timestamp is not None
    assert timedelta(days=3) <= plain.timestamp - now < timedelta(days=3, minutes=1)


def test_a_copy_without_java_has_lost_none(make_trial: Callable[..., Trial]) -> None:
    trial = make_trial(SLEEP)
    struck = strike(trial, KillExecutor())
    assert (struck.happened, struck.told) == (False, "it had no Java just then")
    assert trial.log.read().faults == ()


def test_a_copy_that_ends_when_told_to_has_been_rebalanced(make_trial: Callable[..., Trial]) -> None:
    trial = make_trial("signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); say('ready'); time.sleep(60)")
    [program] = trial.copies
    wait_until(lambda: "ready" in program.err, within=20, what="it is ready")
    attack = Attack(trial.stage, [trial])
    struck = attack.strike(Due(0.0, Rebalance(), 0.0))
    assert not struck.happened, "not yet"
    assert program.ended_within(20) == 0


# --- what happens on the way to Kafka


FRAME = struct.pack(">hhi", METADATA, 12, 1)
"""A request without a body."""


@pytest.fixture
def echo(stage: Stage) -> Iterator[None]:
    """What answers each request of the stage with itself."""

    class Answer(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while size := self.rfile.read(4):
                self.wfile.write(size + self.rfile.read(int.from_bytes(size)))

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stage.proxy.forward_to(f"127.0.0.1:{server.server_address[1]}")
        yield
        server.shutdown()


def connect(stage: Stage) -> socket.socket:
    host, _, port = stage.bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), 20)


def asked(line: socket.socket) -> bytes:
    """Send a request, and return the answer; nothing where the connection ends."""
    line.sendall(len(FRAME).to_bytes(4) + FRAME)
    try:
        return line.recv(100)
    except ConnectionResetError:
        return b""


CUTS = [CutConnections(), DropConnections(seconds=0.1)]


@pytest.mark.parametrize("fault", CUTS, ids=lambda fault: fault.kind)
@pytest.mark.usefixtures("echo")
def test_connections_count_as_cut_when_there_was_one_and_it_ended(
    make_trial: Callable[..., Trial], stage: Stage, fault: PlannedFault
) -> None:
    trial = make_trial()
    with connect(stage) as line:
        assert asked(line)
        struck = strike(trial, fault)
        assert (struck.happened, struck.told) == (True, "1 connections")
        assert line.recv(1) == b""
    assert len(trial.log.read().faults) == 1
    with connect(stage) as line:
        assert asked(line), "connections are taken again"


@pytest.mark.parametrize("fault", CUTS, ids=lambda fault: fault.kind)
def test_no_connection_is_none_that_was_cut(make_trial: Callable[..., Trial], fault: PlannedFault) -> None:
    struck = strike(make_trial(), fault)
    assert (struck.happened, struck.told) == (False, "0 connections")


@pytest.mark.usefixtures("echo")
def test_requests_count_as_delayed_when_one_was(make_trial: Callable[..., Trial], stage: Stage) -> None:
    trial = make_trial()
    with connect(stage) as line:

        def ask_and_wait() -> None:
            line.sendall(len(FRAME).to_bytes(4) + FRAME)
            [delay] = stage.proxy._disturbances
            wait_until(lambda: delay.struck > 0, within=20, what="the request is held")

        struck = strike(trial, DelayRequests(seconds=0.1, by_seconds=3600.0), ask_and_wait)
        assert (struck.happened, struck.told) == (True, "1 requests")
        assert line.recv(100), "what was held is let go when the fault is over"
        assert asked(line), "and nothing more is held"


@pytest.mark.parametrize("fault", [DelayRequests(seconds=0.1), DenyCommits(seconds=0.1)], ids=lambda fault: fault.kind)
@pytest.mark.usefixtures("echo")
def test_where_nothing_was_asked_nothing_was_delayed_or_refused(
    make_trial: Callable[..., Trial], stage: Stage, fault: PlannedFault
) -> None:
    trial = make_trial()
    with connect(stage) as line:
        struck = strike(trial, fault)
        assert (struck.happened, struck.told) == (False, "0 requests")
        assert asked(line)
    # Refused commits excuse no record that runs again.
    assert [one.kind for one in trial.log.read().faults] == ["requests_delayed"][: isinstance(fault, DelayRequests)]


def test_a_witness_looks_until_its_time_is_up() -> None:
    witness = Witness(look_seconds=0.0)
    seen, unseen = Struck(KillDriver(), 0, "g", told="process 1"), Struck(KillDriver(), 0, "g", happened=True)
    answers = iter(["", "", "gone"])
    witness.watch(seen, lambda: next(answers), within=60, missing="")
    witness.watch(unseen, lambda: "", within=0, missing="nobody saw it")
    while witness.is_looking:
        witness.look()
    assert (seen.happened, seen.told) == (True, "process 1, gone")
    assert (unseen.happened, unseen.told) == (False, "nobody saw it")


# --- what ends, and what it leaves


def test_the_successor_of_a_killed_driver_starts_while_what_it_left_still_lives(
    make_trial: Callable[..., Trial], tmp_path: Path
) -> None:
    app = tmp_path / "app.py"
    app.write_text(f"{CHILD}{UP}", encoding="utf-8")
    trial = make_trial(app=app, copies=1)
    trial.start()
    [first] = trial.copies
    wait_until(lambda: "up" in first.err and len(first.processes()) == 2, within=60, what="it is up, with its child")
    strike(trial, KillDriver())
    [second], [orphan] = trial.copies, first.processes()

    assert (trial.lives, first.code) == (2, -signal.SIGKILL)
    assert second.pid != first.pid
    assert is_alive(orphan), "what a killed driver has started is not killed with it"
    assert trial.surprises == []
    trial.close()
    assert not is_alive(orphan)
    assert second.processes() == []


def test_what_outlives_its_driver_for_too_long_is_killed_and_told(tmp_path: Path) -> None:
    program = start(tmp_path, CHILD + UP)
    wait_until(lambda: "up" in program.err, within=20, what="it is up")
    program.kill()
    [orphan] = program.processes()
    remains = Remains(left_seconds=0.2)
    remains.take(program)
    assert remains.programs == [program]
    [gone] = remains.wait()
    assert gone.program is program
    assert [one.startswith(f"{orphan}: ") and "time.sleep" in one for one in gone.left] == [True]
    assert not is_alive(orphan)
    assert remains.programs == []


def test_what_follows_its_driver_in_time_is_no_surprise(tmp_path: Path) -> None:
    follow = "import sys; sys.stdin.read()"
    code = f"import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', {follow!r}], stdin=-1); "
    program = start(tmp_path, code + UP)
    wait_until(lambda: "up" in program.err, within=20, what="it is up")
    program.kill()
    remains = Remains()
    remains.take(program)
    [gone] = remains.wait()
    assert gone.left == ()


@pytest.mark.parametrize(("ends", "surprises"), [("sys.exit(0)", 0), ("sys.exit(3)", 1)])
def test_a_copy_that_does_not_end_in_good_order_is_a_surprise(
    make_trial: Callable[..., Trial], ends: str, surprises: int
) -> None:
    trial = make_trial(f"signal.signal(signal.SIGTERM, lambda *_: {ends}); say('ready'); time.sleep(60)")
    wait_for_ready(trial)
    trial.stop()
    assert len(trial.surprises) == surprises
    assert trial.copies == []


def test_a_copy_that_was_struck_just_before_it_was_told_to_stop_may_end_as_it_likes(
    make_trial: Callable[..., Trial],
) -> None:
    trial = make_trial("sys.exit(1)")
    trial.may_end(trial.copies[0])
    trial.stop()
    assert trial.surprises == []


@pytest.mark.parametrize(("is_taken_away", "surprises"), [(True, 0), (False, 1)])
def test_a_copy_that_starts_while_its_database_is_taken_away_may_end(
    make_trial: Callable[..., Trial], tmp_path: Path, is_taken_away: bool, surprises: int
) -> None:
    app = tmp_path / "app.py"
    app.write_text(UP, encoding="utf-8")
    taken: list[bool] = []
    code = "print('PostgreSQL cannot be reached', file=sys.stderr); sys.exit(1)"
    trial = make_trial(code, app=app, sink_away=taken.append if is_taken_away else None)
    assert trial.copies[0].ended_within(20) == 1
    trial.copies[0].hear_out()
    trial.keep()
    assert (len(trial.surprises), trial.lives) == (surprises, 1), "whoever keeps it tries again"


def test_a_copy_that_loses_its_partitions_by_itself_is_a_surprise(make_trial: Callable[..., Trial]) -> None:
    lose = "print(json.dumps({'time': now, 'action': 'lost', 'message': 'partitions lost: t[3]'}), file=sys.stderr)"
    code = f"now = datetime.datetime.now(datetime.UTC).isoformat(); {lose}\n"
    code += "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); say('ready'); time.sleep(60)"
    for kind, surprises in (("", 1), ("broker_killed", 0)):
        trial = make_trial()
        if kind:
            trial.log.fault(kind, lasts_seconds=60)
        trial.copies.append(start(trial.folder, SPEAK + code))
        wait_for_ready(trial)
        trial.stop()
        assert len(trial.surprises) == surprises, trial.surprises
        assert len([one for one in trial.faults() if one.kind == "partitions_lost"]) == 1 - surprises


def wait_for_ready(trial: Trial) -> None:
    wait_until(lambda: "ready" in trial.copies[0].err, within=20, what="it is ready")
