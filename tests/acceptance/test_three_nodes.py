"""Three nodes of Kafka: leaders and coordinators move, nodes are killed and lost for good, and the laws hold."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.conftest import Scene, evenly, new_name
from tests.acceptance.outlets import Copy, TopicOutlet
from tests.acceptance.test_exactly_once import check_once
from tests.support import wait_until
from tidegate.dev.cluster import OFFSETS, Cluster
from tidegate.kafka.leaders import read_replicas
from tidegate.names import dead_topic, redrive_topic
from tidegate.ops.produce import Message
from tidegate.records import Partition
from tidegate.testing import read_copies

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.acceptance.program import Program

PARTITIONS = 3
PATIENT = ("--set", "session_timeout=5m")
"""The session outlasts what happens to the nodes: no partition is lost by it, so nothing may run twice."""


@pytest.fixture
def scene(kafka_cluster: Cluster, tmp_path: Path) -> Iterator[Scene]:
    """A scene on three nodes; what a test ended is there again after it."""
    made = Scene(kafka_cluster.bootstrap, tmp_path, new_name(), stays_connected=False)
    yield made
    made.clean_up()
    kafka_cluster.start()
    wait_until(lambda: kafka_cluster.is_whole(OFFSETS), within=60, what="three nodes in sync for the next test")


def wait_for_the_end(scene: Scene, program: Program) -> None:
    program.wait_until(lambda: scene.marks() == scene.ends, within=120, what="everything committed")


def stop(program: Program) -> None:
    program.send(signal.SIGTERM)
    ended = program.wait(within=60)
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err, ended.err


def other_than(kafka_cluster: Cluster, *numbers: int | None) -> int:
    return next(number for number in kafka_cluster.nodes if number not in numbers)


@contextmanager
def fed(scene: Scene) -> Iterator[None]:
    """Write records all the time, whatever happens to the nodes; each is acknowledged by two of them."""
    enough = threading.Event()

    def feed() -> None:
        while not enough.is_set():
            scene.produce(evenly(30, PARTITIONS))

    with ThreadPoolExecutor(1) as threads:
        feeding = threads.submit(feed)
        try:
            yield
        finally:
            enough.set()
        feeding.result()


@pytest.mark.timeout(300)
def test_leaders_that_move_and_a_coordinator_that_is_killed_under_load_lose_and_repeat_nothing(
    kafka_cluster: Cluster, scene: Scene
) -> None:
    scene.fill(PARTITIONS, evenly(300, PARTITIONS))
    program = scene.start("slow.py", *PATIENT, SECONDS_EACH="0.001")
    with fed(scene):
        scene.wait_for_records(600, program)
        move_a_leader_away_and_back(kafka_cluster, scene, program)
        wait_until(lambda: kafka_cluster.is_whole(OFFSETS), within=60, what="three nodes in sync")
        kill_the_coordinator_between_commits(kafka_cluster, scene, program)
    wait_for_the_end(scene, program)
    stop(program)
    # No fault was noted: a record that ran twice would be a breach.
    assert scene.breaches() == []


def move_a_leader_away_and_back(kafka_cluster: Cluster, scene: Scene, program: Program) -> None:
    first = Partition(scene.topic, 0)
    planned = kafka_cluster.leader_of(first)
    assert planned is not None
    kafka_cluster.node(planned).shut_down()  # in order: it hands its partitions over
    wait_until(lambda: kafka_cluster.leader_of(first) not in (planned, None), within=30, what="another leader")
    scene.wait_for_records(scene.log.count() + 300, program)
    kafka_cluster.node(planned).start()
    wait_until(lambda: kafka_cluster.leader_of(first) == planned, within=60, what="its return as leader")
    scene.wait_for_records(scene.log.count() + 300, program)


def kill_the_coordinator_between_commits(kafka_cluster: Cluster, scene: Scene, program: Program) -> None:
    """Every mark is kept: commits go on from where they were."""
    killed = kafka_cluster.coordinator_of(scene.group)
    assert killed is not None
    before = scene.marks()
    kafka_cluster.node(killed).kill()
    wait_until(
        lambda: kafka_cluster.coordinator_of(scene.group) not in (killed, None), within=30, what="another coordinator"
    )
    program.wait_until(
        lambda: all(mark > before.get(number, 0) for number, mark in scene.marks().items()),
        within=60,
        what="commits to the new coordinator",
    )


@pytest.mark.timeout(300)
def test_a_killed_keeper_of_transactions_leaves_every_output_once(kafka_cluster: Cluster, scene: Scene) -> None:
    scene.fill(PARTITIONS, evenly(2400, PARTITIONS))
    outlet = TopicOutlet(scene)
    copy = Copy(scene, outlet, "--instance", "one", *PATIENT, SECONDS_EACH="0.004", SECONDS_FILLED="0.03")
    copy.wait_for("committed", 3)
    killed = kafka_cluster.transactions_of(f"tidegate.{scene.group}.one.0")
    assert killed is not None
    with copy.held("filled"):
        kafka_cluster.node(killed).kill()
    done = copy.edges.count("committed")
    copy.wait_for("committed", done + 3)
    assert scene.marks() != scene.ends, "the node was killed after the work"
    wait_for_the_end(scene, copy.program)
    stop(copy.program)
    check_once(outlet, set(range(2400)))


@pytest.mark.timeout(400)
def test_a_node_lost_for_good_holds_nobody_up_and_two_lost_are_waited_for(kafka_cluster: Cluster, scene: Scene) -> None:
    messages = [Message("bad" if number % 40 == 0 else "good", partition=number % PARTITIONS) for number in range(6000)]
    scene.fill(PARTITIONS, messages)
    program = scene.start("failing.py", *PATIENT, ROW="dead", SECONDS_EACH="0.003")
    scene.wait_for_records(300, program)
    for own in (dead_topic(scene.group), redrive_topic(scene.group)):
        copies = read_replicas(scene.kafka, own).values()
        assert {len(one.nodes) for one in copies} == {3}, f"{own} would not outlive its only node"

    first = other_than(kafka_cluster, kafka_cluster.coordinator_of(scene.group))
    kafka_cluster.lose(first)
    before = scene.log.count()
    scene.wait_for_records(before + 900, program)
    program.wait_until(lambda: sum(scene.marks().values()) > before + 300, within=60, what="commits with two nodes")

    second = kafka_cluster.coordinator_of(scene.group)
    assert second is not None
    kafka_cluster.node(second).kill()
    program.wait_until(lambda: "the run waits" in program.err, within=90, what="a word that the run waits")
    assert program.is_running

    kafka_cluster.node(second).start()
    program.wait_until(lambda: sum(scene.marks().values()) > before + 1200, within=120, what="commits again")
    kafka_cluster.node(first).start()
    wait_for_the_end(scene, program)
    stop(program)
    # Whatever was called settled while two nodes were away is in the log and in the dead letters. A letter whose answer
    # was lost with a node may be there once more: it is the only thing that may.
    letters = {(copy.partition.number, copy.record_offset) for copy in read_copies(scene.kafka, scene.group)}
    assert letters == {(number % PARTITIONS, number // PARTITIONS) for number in range(0, 6000, 40)}
    assert [one for one in scene.breaches() if "was copied to" not in one.sentence] == []
