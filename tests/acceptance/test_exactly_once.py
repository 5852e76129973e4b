"""Exactly once, attacked: whatever is killed, frozen, overtaken or cut off, each effect is visible once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections import Counter

import pytest

from tests.acceptance.conftest import Scene, channel, evenly
from tests.acceptance.outlets import Copy, Outlet, TableOutlet, TopicOutlet
from tests.acceptance.program import Program
from tests.postgres_server import Server
from tests.support import is_alive, wait_until

KILLS = int(os.environ.get("PROOF_KILLS", "3"))
PARTITIONS = 4
SLOW = "0.002"


@pytest.fixture
def topic(scene: Scene) -> TopicOutlet:
    return TopicOutlet(scene)


@pytest.fixture
def table(scene: Scene, postgres: Server) -> TableOutlet:
    return TableOutlet(scene, postgres)


@pytest.fixture(params=["kafka", "postgres"])
def outlet(request: pytest.FixtureRequest) -> Outlet:
    found: Outlet = request.getfixturevalue("topic" if request.param == "kafka" else "table")
    return found


def kill_worker(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), within=5, what=f"the death of worker {pid}")


def ran_twice(scene: Scene) -> set[tuple[int, int]]:
    """The records whose functions ran more than once in the same pass."""
    runs = Counter((one.partition.number, one.record_offset, one.attempt) for one in scene.log.read().events)
    return {(number, at) for (number, at, _), times in runs.items() if times > 1}


def finish(copy: Copy) -> None:
    ended = copy.program.wait(within=120)
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err, ended.err


def check_once(outlet: Outlet, expected: set[int], dead: set[tuple[int, int]] | None = None) -> None:
    """Every id is visible once, every failing one as one dead letter, and the group stands at the end."""
    seen = outlet.ids()
    assert {id_: times for id_, times in seen.items() if times > 1} == {}, "visible more than once"
    assert set(seen) == expected
    letters = Counter((one.partition.number, one.record_offset) for one in outlet.dead()) if dead is not None else {}
    assert set(letters) == (dead or set())
    if isinstance(outlet, TopicOutlet):
        assert set(letters.values()) <= {1}, "a dead letter is as much in the transaction as an output"
    outlet.check_marks()


def stop(program: Program) -> None:
    program.send(signal.SIGTERM)
    ended = program.wait(within=60)
    assert ended.code == 0, ended.err


@pytest.mark.timeout(120 + 60 * KILLS)
def test_a_program_killed_at_the_edges_of_its_transactions_has_every_effect_once(scene: Scene, outlet: Outlet) -> None:
    count = 1200 * (KILLS + 1)
    chance = random.Random(f"edges {outlet.name} {KILLS}")
    scene.fill(PARTITIONS, evenly(count, PARTITIONS))
    settings = {"ROW": "later", "FAILING": "1", "SECONDS_EACH": SLOW, "SECONDS_FILLED": "0.03"}
    held_filled = 0
    for number in range(KILLS):
        live = chance.choice(["true", "false"])
        copy = Copy(scene, outlet, "--set", f"live={live}", **settings)
        copy.wait_for("committed", chance.randrange(1, 5))
        step = ("filled", "committed", None)[number % 3]
        with copy.held(step) if step else contextlib.nullcontext():
            # Every other time the driver alone: its workers live on for a while, and the next life meets them.
            copy.program.kill() if number % 2 else copy.program.kill_all()
            held_filled += step == "filled"
        assert scene.marks() != scene.ends, f"kill {number + 1} came after the work"

    finish(Copy(scene, outlet, "--until", "caught-up", **settings))

    always = {number for number in range(count) if number % 50 == 7}
    dead = {(number % PARTITIONS, number // PARTITIONS) for number in always}
    check_once(outlet, set(range(count)) - always, dead)
    assert ran_twice(scene), "no kill made anything run again, so nothing was proved"
    if isinstance(outlet, TopicOutlet):
        assert outlet.written().total() > outlet.ids().total(), "no output was ever aborted, so nothing was proved"
    assert {one.said.stable_id for one in outlet.dead()} == {
        f"{scene.group}:{scene.topic}:{number}:{at}" for number, at in dead
    }


@pytest.mark.timeout(240)
@channel("live")
def test_workers_killed_in_their_transactions_are_replaced_and_their_tasks_not_run_again(
    scene: Scene, outlet: Outlet, live: str
) -> None:
    count = 6000
    scene.fill(PARTITIONS, evenly(count, PARTITIONS))
    words = ("--master", "local[2,4]", "--until", "caught-up", "--set", f"live={live}")
    copy = Copy(scene, outlet, *words, SECONDS_EACH=SLOW)
    killed = []
    for kill, step in enumerate(["filled", "committed", "begins"], start=1):
        copy.wait_for("committed", 3 * kill)
        with copy.held(step) as worker:
            kill_worker(worker)
            killed.append(worker)
    finish(copy)

    check_once(outlet, set(range(count)))
    assert ran_twice(scene), "no kill made anything run again"
    assert len(set(killed)) == 3
    assert "Spark had to run its task a second time" in copy.program.err, "its task had no second attempt"
    if isinstance(outlet, TopicOutlet):
        assert outlet.written().total() > count, "no output was ever aborted"
