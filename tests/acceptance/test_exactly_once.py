"""Exactly once, attacked: whatever is killed, frozen, overtaken or cut off, each effect is visible once."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
from collections import Counter

import pytest

from tests.acceptance.conftest import Scene, channel, evenly
from tests.acceptance.outlets import Copy, Outlet, TableOutlet, TopicOutlet
from tests.acceptance.test_group import owned_by, wait_for_members
from tests.postgres_server import Server
from tests.support import is_alive, wait_until, ways
from tidegate.ops.produce import Message
from tidegate.records import Partition

KILLS = int(os.environ.get("PROOF_KILLS", "2"))
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


def stop(copy: Copy) -> None:
    copy.program.send(signal.SIGTERM)
    ended = copy.program.wait(within=60)
    assert ended.code == 0, ended.err


def wait_for_the_end(scene: Scene) -> None:
    wait_until(lambda: scene.marks() == scene.ends, within=120, what="everything committed")


@pytest.mark.timeout(120 + 60 * KILLS)
@pytest.mark.parametrize("outlet", ways("kafka", "postgres"), indirect=True)
def test_a_program_killed_at_the_edges_of_its_transactions_has_every_effect_once(scene: Scene, outlet: Outlet) -> None:
    count = 1200 * (KILLS + 1)
    chance = random.Random(f"edges {outlet.name} {KILLS}")
    scene.fill(PARTITIONS, evenly(count, PARTITIONS))
    settings = {"ROW": "later", "FAILING": "1", "SECONDS_EACH": SLOW, "SECONDS_FILLED": "0.03"}
    for number in range(KILLS):
        step = ("filled", "committed", None)[number % 3]
        live = chance.choice(["true", "false"])
        # Without a name that outlives it, a transaction that it leaves open holds the next life up for its timeout:
        # that is for the longer proof.
        name = ("--instance", "one") if step and number < 3 else ()
        copy = Copy(scene, outlet, *name, "--set", f"live={live}", **settings)
        copy.wait_for("committed", chance.randrange(1, 5))
        with copy.held(step) if step else contextlib.nullcontext():
            # Every other time the driver alone: its workers live on for a while, and the next life meets them.
            copy.program.kill() if number % 2 else copy.program.kill_all()
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
@pytest.mark.parametrize("outlet", ways("kafka", "postgres"), indirect=True)
def test_workers_killed_in_their_transactions_are_replaced_and_their_tasks_not_run_again(
    scene: Scene, outlet: Outlet, live: str
) -> None:
    count = 2400
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


@pytest.mark.timeout(300)
@channel("live")
@pytest.mark.parametrize("outlet", ways("postgres", "kafka"), indirect=True)
def test_a_partition_taken_by_another_copy_in_the_middle_of_a_transaction_has_every_effect_once(
    scene: Scene, outlet: Outlet, live: str
) -> None:
    count = 4000
    ids = evenly(count, PARTITIONS)
    scene.fill(PARTITIONS, itertools.islice(ids, 1000))
    words = ("--set", f"live={live}")
    first = Copy(scene, outlet, *words, SECONDS_EACH=SLOW)
    first.wait_for("committed", 2)
    with first.held("filled"):
        second = Copy(scene, outlet, *words, SECONDS_EACH=SLOW)
        # Two partitions are no longer the first one's and not yet the second one's: they are being given back.
        wait_for_members(scene, [0, 2], first.program, second.program)
    wait_for_members(scene, [2, 2], first.program, second.program)
    scene.produce(ids)
    second.wait_for("committed", 2)
    with second.held("filled"):
        second.program.kill_all()
    assert scene.marks() != scene.ends, "the kill came after the work"
    wait_for_the_end(scene)
    stop(first)

    check_once(outlet, set(range(count)))
    assert ran_twice(scene), "nothing ran again, so nothing was proved"


@pytest.mark.timeout(300)
@channel("plain")
@pytest.mark.parametrize("outlet", ways("kafka", "postgres"), indirect=True)
def test_the_late_transaction_of_a_frozen_copy_has_no_effect(scene: Scene, outlet: Outlet, live: str) -> None:
    count = 3000
    scene.fill(2, evenly(count, 2))
    words = ("--set", f"live={live}")
    frozen = Copy(scene, outlet, *words, SECONDS_EACH=SLOW)
    frozen.wait_for("committed", 3)
    with frozen.held("begins") as worker:
        frozen.program.send(signal.SIGSTOP)
        wait_until(lambda: owned_by(scene) == [], within=60, what="the group gives the frozen member up")
        other = Copy(scene, outlet, *words, SECONDS_EACH=SLOW)
        other.wait_for("committed", 3)
        assert is_alive(worker), "the frozen driver's workers go on"
        assert frozen.edges.count("refused") == 0
    wait_until(lambda: worker in frozen.edges.pids("refused"), within=60, what="its late transaction is refused")
    frozen.program.send(signal.SIGCONT)
    frozen.program.wait_until(
        lambda: "partitions lost" in frozen.program.err, within=60, what="the frozen one notices its loss"
    )
    wait_for_the_end(scene)
    for copy in (frozen, other):
        stop(copy)

    check_once(outlet, set(range(count)))
    assert ran_twice(scene), "the other one did nothing of what was in the late transaction"


@pytest.mark.timeout(300)
@channel("live")
def test_the_late_commit_of_a_cancelled_round_is_shut_out(scene: Scene, topic: TopicOutlet, live: str) -> None:
    count = 3000
    scene.fill(2, evenly(count, 2))
    # One lane: its one round holds the partition that goes and the one that stays.
    words = ("--set", f"live={live}", "--set", "timeout=1s", "--set", "stop_budget=7s", "--set", "lanes=1")
    lives_on = "--conf spark.python.task.killTimeout=60s pyspark-shell"
    first = Copy(scene, topic, *words, SECONDS_EACH=SLOW, PYSPARK_SUBMIT_ARGS=lives_on)
    first.wait_for("committed", 3)
    with first.held("filled") as worker:
        assert not topic.is_settled, "its transaction is open"
        second = Copy(scene, topic, *words, SECONDS_EACH=SLOW)
        first.program.wait_until(
            lambda: "not finished in time" in first.program.err, within=60, what="the budget of the revoke is over"
        )
        wait_until(lambda: topic.is_settled, within=60, what="its transaction is ended for it")
        assert is_alive(worker), "a cancelled task lives on for a while"
        assert first.edges.count("refused") == 0
    wait_until(lambda: worker in first.edges.pids("refused"), within=30, what="its late commit is refused")
    wait_for_the_end(scene)
    for copy in (first, second):
        stop(copy)

    check_once(topic, set(range(count)))
    assert ran_twice(scene)
    assert topic.written().total() > count, "what the cancelled round wrote was aborted"


@pytest.mark.timeout(300)
@channel("plain")
def test_a_database_that_dies_in_a_transaction_stops_the_run_or_is_waited_for(
    scene: Scene, table: TableOutlet, postgres: Server, live: str
) -> None:
    count = 4000
    scene.fill(2, evenly(count, 2))
    words = ("--set", f"live={live}", "--until", "caught-up")
    try:
        first = Copy(scene, table, *words, SECONDS_EACH=SLOW)
        first.wait_for("committed", 3)
        with first.held("filled") as worker:
            postgres.stop("immediate")
        stopped = first.program.wait(within=90)
        assert stopped.code == 3, stopped.err
        assert worker in first.edges.pids("refused")
        postgres.start()
        assert scene.marks() != scene.ends, "it stopped before the end"

        second = Copy(scene, table, *words, ROW="hold", SECONDS_EACH=SLOW)
        second.wait_for("committed", 3)
        with second.held("filled") as worker:
            postgres.stop("immediate")
        second.wait_for("refused")
        second.program.wait_until(
            lambda: "the store" in second.program.err, within=60, what="the run says what it waits for"
        )
    finally:
        postgres.start()
    finish(second)

    assert worker in second.edges.pids("refused")
    check_once(table, set(range(count)), dead=set())
    assert ran_twice(scene)


@pytest.mark.proof
@pytest.mark.timeout(240)
def test_a_group_moved_behind_the_back_of_its_table_is_refused_until_one_of_them_is_trusted(
    scene: Scene, table: TableOutlet
) -> None:
    scene.fill(2, evenly(200, 2))
    finish(Copy(scene, table, "--until", "caught-up"))
    check_once(table, set(range(200)))
    back = {Partition(scene.topic, number): (10, "") for number in (0, 1)}
    scene.admin.commit_for_empty_group(scene.group, back)

    refused = Copy(scene, table, "--until", "caught-up").program.wait(within=90)
    assert refused.code == 1, refused.err
    for number in (0, 1):
        assert f"{scene.topic}[{number}] (group 10, table 100)" in refused.err
    assert "--trust" in refused.err
    assert scene.marks() == {0: 10, 1: 10}, "nothing was moved"
    assert scene.log.count("began") == 200, "nothing was run"

    scene.produce(Message(str(number), partition=number % 2) for number in range(200, 300))
    finish(Copy(scene, table, "--until", "caught-up", "--trust", "table"))
    check_once(table, set(range(300)))
    assert scene.log.count("began") == 300

    scene.admin.commit_for_empty_group(scene.group, back)
    finish(Copy(scene, table, "--until", "caught-up", "--trust", "group"))
    assert table.ids() == Counter(range(300)) + Counter(range(20, 300)), "written again from where the group was set"
    table.check_marks()
