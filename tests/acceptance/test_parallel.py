"""Many records in work at a time, killed and handed over in the middle; and Kafka to HTTP seen from outside."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance.conftest import DOOMED, Scene, evenly
from tests.acceptance.test_group import wait_for_members
from tests.http_server import Server
from tests.support import is_alive, wait_until, ways
from tidegate.kafka.admin import Commit
from tidegate.kafka.commits import CommitSeen, read_commits
from tidegate.ledger import FULL_CHARACTERS, METADATA_BYTES, Home, Ranges, decode
from tidegate.ops.produce import Message
from tidegate.records import Partition
from tidegate.testing import Switch
from tidegate.testing.switches import FILL

KILLS = int(os.environ.get("PROOF_KILLS", "1"))
IN_WORK = 16
"""What `parallel.py` asks for."""
TRIES = 3
"""So often a record that waits is tried again, before nothing more is expected of the others."""


def keyed(count: int, partitions: int, keys: int) -> list[Message]:
    return [Message(str(one), key=f"k{one % keys}", partition=(one % keys) % partitions) for one in range(count)]


def ahead_of(commit: CommitSeen | Commit, group: str, partition: Partition) -> Ranges:
    """What a commit says to be settled beyond its mark."""
    assert commit.mark is not None
    return decode(commit.mark, commit.metadata, Home(group, "", partition.number, "")).position.ahead


def most_ahead(scene: Scene) -> int:
    """How many records the fullest commit of the group says to be settled beyond its mark."""
    found = [0]
    for commit in read_commits(scene.kafka, scene.group):
        if commit.mark is not None:
            ahead = ahead_of(commit, scene.group, commit.partition)
            found.append(sum(end - first for first, end in ahead))
    return max(found)


def remembered(scene: Scene) -> set[tuple[int, int]]:
    """Every record that the group knows to be settled, by partition and offset: below the marks, and beyond them."""
    places = [Partition(scene.topic, number) for number in scene.partitions]
    found = set()
    for place, commit in scene.admin.committed(scene.group, places).items():
        ranges = [(0, commit.mark), *ahead_of(commit, scene.group, place)]
        found |= {(place.number, at) for first, end in ranges for at in range(first, end)}
    return found


@pytest.mark.timeout(180 + 60 * KILLS)
@pytest.mark.parametrize(("kind", "order"), ways(("loop", "none"), ("threads", "key")))
def test_what_was_settled_out_of_order_does_not_run_again_after_a_kill(scene: Scene, kind: str, order: str) -> None:
    chance = random.Random(f"{kind} {order}")
    scene.fill(4, keyed(4000 * KILLS, 4, 40))
    lives: list[tuple[int, set[tuple[int, int]]]] = []
    for _ in range(KILLS):
        program = scene.start("parallel.py", *DOOMED, KIND=kind, ORDER=order)
        before = len(remembered(scene))
        scene.wait_for_records(200 + chance.randrange(1500), program)
        program.wait_until(lambda known=before: len(remembered(scene)) > known, within=60, what="a commit")  # type: ignore[misc]
        scene.log.fault("driver_killed", driver=program.pid)
        program.kill_all()
        lives.append((program.pid, remembered(scene)))
    last = scene.start("parallel.py", "--until", "caught-up", KIND=kind, ORDER=order)
    assert last.wait(within=150).code == 0
    assert most_ahead(scene) > 0, "there was something to remember"
    assert scene.breaches(order=order) == []  # type: ignore[arg-type]  # one of the orders there are
    settled_by = [(one.driver, (one.partition.number, one.record_offset)) for one in scene.log.read().settled]
    assert len({place for _, place in settled_by}) == len(scene.produced)
    dead: set[int] = set()
    for killed, committed in lives:
        dead.add(killed)
        again = {place for driver, place in settled_by if driver not in dead and place in committed}
        assert not again, "the group had these when its program was killed"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ways("loop", "threads"))
def test_a_killed_worker_of_a_parallel_lane_costs_what_was_in_work_and_its_second_task_does_nothing(
    scene: Scene, kind: str
) -> None:
    scene.fill(1, evenly(600, 1))
    place, held = Partition(scene.topic, 0), Path(f"{scene.log.path}.held")
    # Spark runs a task of this master up to four times.
    words = ("--master", "local[2,4]", "--set", "live=true", "--until", "caught-up")
    program = scene.start("parallel.py", *words, KIND=kind)
    scene.wait_for_records(100, program)
    held.touch()

    def in_work() -> set[int]:
        events = scene.log.read().events
        return {one.record_offset for one in events if one.kind == "began"} - settled(scene)

    def all_is_committed() -> bool:
        commit = scene.admin.committed(scene.group, [place]).get(place, Commit(0, ""))
        ahead = ahead_of(commit, scene.group, place)
        return {*range(commit.mark), *(at for one in ahead for at in range(*one))} == settled(scene)

    program.wait_until(lambda: len(in_work()) == IN_WORK and all_is_committed(), within=60, what="all else committed")
    before = in_work()
    [worker] = {one.pid for one in scene.log.read().events}
    scene.log.fault("worker_killed", worker=worker)
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: not is_alive(worker), within=20, what="its death")
    held.unlink()
    assert program.wait(within=120).code == 0

    assert "Spark had to run its task a second time" in program.err
    ran = Counter(one.record_offset for one in scene.log.read().events if one.kind == "began")
    assert ran == Counter([*range(600), *before]), "what was in work ran once more, and nothing else"
    assert settled(scene) == set(range(600))
    assert scene.breaches(order="none") == []


def settled(scene: Scene) -> set[int]:
    """The offsets of what is settled, where there is one partition."""
    return {event.record_offset for event in scene.log.read().settled}


@pytest.mark.timeout(300)
def test_full_metadata_stops_the_reading_and_after_a_kill_nothing_is_lost_or_runs_twice(scene: Scene) -> None:
    scene.fill(1, evenly(12_000, 1))
    place, switch = Partition(scene.topic, 0), Switch(scene.log.path)
    switch.turn(FILL, on=True)
    program = scene.start("full.py", *DOOMED)

    def commit() -> Commit:
        return scene.admin.committed(scene.group, [place]).get(place, Commit(0, ""))

    def stands_although_those_that_wait_are_tried() -> bool:
        events = scene.log.read().events
        last = max(event.at_ms for event in events if event.kind == "settled")
        return sum(event.at_ms > last for event in events if event.record_offset == 0) > TRIES

    def all_is_committed() -> bool:
        ahead = ahead_of(commit(), scene.group, place)
        return {at for first, end in ahead for at in range(first, end)} == settled(scene)

    program.wait_until(lambda: len(commit().metadata) > FULL_CHARACTERS, within=120, what="a full commit")
    program.wait_until(stands_although_those_that_wait_are_tried, within=60, what="reading stops")
    program.wait_until(all_is_committed, within=30, what="all that is settled is committed")
    before = settled(scene)
    assert before == {at for at in range(max(before) + 1) if at % 8}, "all but those that wait"
    assert max(before) < scene.ends[0] - 1000, "it read no further although there was more"
    assert len(commit().metadata) <= METADATA_BYTES
    scene.log.fault("driver_killed", driver=program.pid)
    program.kill_all()
    switch.turn(FILL, on=False)

    assert scene.start("full.py", "--until", "caught-up").wait(within=150).code == 0
    assert Counter(event.record_offset for event in scene.log.read().settled) == Counter(range(scene.ends[0]))
    assert scene.breaches(order="none") == []


@pytest.mark.timeout(240)
def test_what_was_settled_out_of_order_goes_with_its_partition(scene: Scene) -> None:
    scene.fill(4, evenly(6000, 4))
    first = scene.start("parallel.py", KIND="loop")
    scene.wait_for_records(300, first)
    second = scene.start("parallel.py", KIND="loop")
    wait_for_members(scene, [2, 2], first, second)
    scene.produce(evenly(3000, 4))
    scene.wait_for_records(50, second)
    second.send(signal.SIGTERM)
    assert second.wait(within=60).code == 0
    wait_until(lambda: scene.marks() == scene.ends, within=120, what="everything is committed")
    first.send(signal.SIGTERM)
    assert first.wait(within=60).code == 0
    assert scene.breaches(order="none") == []
    assert scene.log.count() == len(scene.produced), "an orderly handover repeats nothing"


def kcat(scene: Scene, partition: int, values: list[str]) -> None:
    """Write records with a foreign client."""
    command = ["kcat", "-P", "-b", scene.bootstrap, "-t", scene.topic, "-p", str(partition)]
    subprocess.run(command, input="\n".join(values), text=True, check=True, timeout=60)


@pytest.mark.timeout(240)
def test_kafka_to_http_stops_at_the_first_error_and_goes_on_with_the_queue(scene: Scene) -> None:
    scene.admin.create_topic(scene.topic, partitions=2)
    server = Server()
    server.start()
    for partition in range(2):
        kcat(scene, partition, [f"first {partition} {one}" for one in range(50)])
    program = scene.start("to_http.py", URL=server.url)
    program.wait_until(lambda: len(server.taken) == 100, within=90, what="the first records")
    program.wait_until(lambda: scene_marks(scene) == {0: 50, 1: 50}, within=30, what="their commits")
    server.stop()
    kcat(scene, 0, [f"second 0 {one}" for one in range(20)])
    ended = program.wait(within=90)
    assert ended.code == 3
    assert "cannot be reached" in ended.err
    kcat(scene, 1, [f"second 1 {one}" for one in range(20)])
    assert scene_marks(scene) == {0: 50, 1: 50}, "no commit past the failed record"
    commits = [one.mark for one in read_commits(scene.kafka, scene.group) if one.mark is not None]
    assert max(commits) == 50, "as an outside reader of all commits sees it"

    server.start()
    again = scene.start("to_http.py", "--until", "caught-up", URL=server.url)
    assert again.wait(within=90).code == 0
    server.stop()
    expected = [f"first {p} {one}" for p in range(2) for one in range(50)]
    expected += [f"second {p} {one}" for p in range(2) for one in range(20)]
    assert Counter(one.body.decode() for one in server.taken) == Counter(expected)
    assert len({one.id for one in server.taken}) == len(expected), "each under an id of its own"
    assert scene_marks(scene) == {0: 70, 1: 70}


def scene_marks(scene: Scene) -> dict[int, int]:
    infos = scene.admin.describe([scene.topic])[scene.topic]
    committed = scene.admin.committed(scene.group, infos.each_partition())
    return {partition.number: one.mark for partition, one in committed.items()}
