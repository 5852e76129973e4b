"""Several copies of one program share a group: handed over in good order, killed, frozen, cut off."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from tests.acceptance.conftest import DOOMED, Scene, channel, evenly
from tests.acceptance.program import Program
from tests.support import wait_until
from tidegate.ops.produce import Message

HANDOVERS = int(os.environ.get("PROOF_HANDOVERS", "1"))


def owned_by(scene: Scene) -> list[int]:
    """How many partitions each member of the group has."""
    return sorted(len(member.partitions) for member in scene.admin.group_members(scene.group).members)


def wait_for_members(scene: Scene, shares: list[int], *programs: Program) -> None:
    def shared() -> bool:
        assert all(program.is_running for program in programs), [program.err for program in programs]
        return owned_by(scene) == shares

    wait_until(shared, within=90, what=f"members with {shares} partitions, not {owned_by(scene)}")


@pytest.mark.timeout(120 + 60 * HANDOVERS)
@channel("live")
def test_copies_that_come_and_go_hand_over_without_a_repeat(scene: Scene, live: str) -> None:
    scene.fill(4, evenly(2000, 4))
    words = ("--set", f"live={live}")
    first = scene.start("slow.py", *words, SECONDS_EACH="0.04")
    scene.wait_for_records(50, first)
    for _ in range(HANDOVERS):
        second = scene.start("slow.py", *words, SECONDS_EACH="0.04")
        wait_for_members(scene, [2, 2], first, second)
        assert scene.log.count() < len(scene.produced), "the second came after the work"
        scene.produce(evenly(1000, 4))
        scene.wait_for_records(20, second)
        second.send(signal.SIGTERM)
        ended = second.wait(within=60)
        assert ended.code == 0, ended.err
        wait_for_members(scene, [4], first)
        assert scene.log.count() < len(scene.produced), "the second went after the work"
    scene.hurry()
    wait_until(lambda: scene.marks() == scene.ends, within=120, what="everything committed")
    first.send(signal.SIGTERM)
    assert first.wait(within=60).code == 0

    assert scene.breaches() == []
    assert scene.log.count() == len(scene.produced), "an orderly handover repeats nothing"


@pytest.mark.timeout(240)
@channel("plain")
def test_when_one_of_two_copies_is_killed_the_other_takes_over(scene: Scene, live: str) -> None:
    chance = random.Random(f"two copies {live}")
    scene.fill(4, evenly(6000, 4))
    copies = [scene.start("slow.py", *DOOMED, "--set", f"live={live}", SECONDS_EACH="0.01") for _ in range(2)]
    wait_for_members(scene, [2, 2], *copies)
    for copy in copies:
        scene.wait_for_records(chance.randrange(50, 400), copy)
    scene.log.fault("driver_killed", driver=copies[0].pid)
    copies[0].kill()
    assert scene.marks() != scene.ends, "the kill came after the work"
    wait_for_members(scene, [4], copies[1])
    scene.hurry()
    wait_until(lambda: scene.marks() == scene.ends, within=120, what="everything committed by the other")
    copies[1].send(signal.SIGTERM)
    assert copies[1].wait(within=60).code == 0
    assert scene.breaches() == []


@pytest.mark.timeout(240)
def test_a_spare_of_a_run_until_caught_up_has_not_done_while_the_other_works_and_takes_over(scene: Scene) -> None:
    scene.fill(1, evenly(2000, 1))
    words = ("--until", "caught-up", *DOOMED)
    first = scene.start("slow.py", *words, SECONDS_EACH="0.02")
    scene.wait_for_records(20, first)
    spare = scene.start("slow.py", *words, SECONDS_EACH="0.002")
    wait_for_members(scene, [0, 1], first, spare)
    scene.wait_for_records(scene.log.count(driver=first.pid) + 200, first)
    assert spare.is_running, f"it did nothing and said that all is done: {spare.err}"
    scene.log.fault("driver_killed", driver=first.pid)
    first.kill()
    assert scene.marks() != scene.ends, "the kill came after the work"
    ended = spare.wait(within=120)

    assert ended.code == 0, ended.err
    assert scene.marks() == scene.ends
    settled = {(one.partition.topic, one.partition.number, one.record_offset) for one in scene.log.read().settled}
    assert settled == scene.produced
    assert scene.breaches() == []


@pytest.mark.timeout(240)
def test_copies_of_a_run_until_caught_up_end_together_when_the_last_of_them_is_there(scene: Scene) -> None:
    # All but a few records lie in the first partition: who has the second is there long before.
    scene.fill(2, [Message(str(number), partition=number % 100 == 99) for number in range(2000)])
    copies = [scene.start("slow.py", "--until", "caught-up", SECONDS_EACH="0.02") for _ in range(2)]
    wait_for_members(scene, [1, 1], *copies)
    wait_until(lambda: scene.marks().get(1) == scene.ends[1], within=60, what="the second partition at its end")
    stood = scene.marks()[0]
    wait_until(lambda: scene.marks()[0] > stood, within=60, what="work in the first")
    assert [copy.is_running for copy in copies] == [True, True], "one left work to the other and said that all is done"
    assert scene.marks() != scene.ends
    for copy in copies:
        ended = copy.wait(within=120)
        assert ended.code == 0, ended.err
        assert scene.marks() == scene.ends
    assert scene.breaches() == []


@pytest.mark.timeout(240)
@channel("live")
def test_the_late_word_of_a_frozen_driver_does_not_count(scene: Scene, live: str) -> None:
    scene.fill(2, evenly(3000, 2))
    frozen = scene.start("slow.py", *DOOMED, "--set", f"live={live}", SECONDS_EACH="0.004")
    scene.wait_for_records(200, frozen)
    # Its worker goes on with what it has, until it misses its driver; then the driver may get its partitions back.
    scene.log.fault("driver_frozen", driver=frozen.pid, lasts_seconds=60)
    frozen.send(signal.SIGSTOP)
    wait_until(lambda: owned_by(scene) == [], within=60, what="the group gives the frozen member up")
    other = scene.start("slow.py", "--set", f"live={live}", SECONDS_EACH="0.001")
    scene.wait_for_records(500, other)
    stood = scene.marks()
    frozen.send(signal.SIGCONT)
    wait_until(lambda: "partitions lost" in frozen.err, within=60, what=f"it notices its loss: {frozen.err}")
    # What it had in work since its last commit is open again from here on: it may get its partitions back.
    scene.log.fault("partitions_lost")
    wait_until(lambda: scene.marks() == scene.ends, within=120, what="everything committed")
    assert all(scene.marks()[number] >= mark for number, mark in stood.items())
    for program in (frozen, other):
        program.send(signal.SIGTERM)
        assert program.wait(within=60).code == 0
    assert scene.breaches() == []


@pytest.mark.timeout(240)
def test_a_rebalance_that_moves_nothing_drops_no_outcome(scene: Scene) -> None:
    scene.fill(1, evenly(1500, 1))
    first = scene.start("slow.py", "--set", "live=false", SECONDS_EACH="0.03")
    scene.wait_for_records(50, first)
    second = scene.start("slow.py", SECONDS_EACH="0.03")
    wait_for_members(scene, [0, 1], first, second)
    assert scene.log.count() < len(scene.produced), "the rebalance came after the work"
    scene.hurry()
    wait_until(lambda: scene.marks() == scene.ends, within=120, what="everything committed")
    for program in (first, second):
        program.send(signal.SIGTERM)
        assert program.wait(within=60).code == 0
    assert scene.log.count() == len(scene.produced)
    assert scene.breaches() == []


@pytest.mark.timeout(240)
def test_thirty_partitions_on_two_slots_all_move(scene: Scene) -> None:
    scene.fill(30, evenly(9000, 30))
    program = scene.start("slow.py", SECONDS_EACH="0.002")
    scene.wait_for_records(1500, program)
    wait_until(
        lambda: len(scene.marks()) == 30 and all(mark > 0 for mark in scene.marks().values()),
        within=60,
        what=f"every partition moves: {scene.marks()}",
    )
    assert scene.marks() != scene.ends, "they moved together, not one after the other"
    program.send(signal.SIGTERM)
    assert program.wait(within=60).code == 0


@pytest.mark.timeout(240)
def test_a_static_name_has_its_partitions_back_at_once_after_a_kill(scene: Scene) -> None:
    scene.fill(2, evenly(4000, 2))
    words = ("--instance", "copy-1", "--set", "session_timeout=45s")
    first = scene.start("slow.py", *words, SECONDS_EACH="0.002")
    scene.wait_for_records(200, first)
    scene.log.fault("driver_killed", driver=first.pid)
    first.kill_all()
    second = scene.start("slow.py", *words, SECONDS_EACH="0.002")
    wait_until(lambda: "reads" in second.err, within=60, what="the second life is about to join")
    began = time.monotonic()
    scene.wait_for_records(1, second)
    assert time.monotonic() - began < 30, "it did not wait for the dead one's session of 45 s"
    second.send(signal.SIGTERM)
    assert second.wait(within=60).code == 0
    assert [one for one in scene.breaches() if one.law != "L2"] == []


@pytest.mark.timeout(240)
def test_the_broker_led_protocol_shares_and_hands_over_too(scene: Scene) -> None:
    scene.fill(4, evenly(3000, 4))
    words = ("--set", "group_protocol=consumer")
    copies = [scene.start("slow.py", *words, SECONDS_EACH="0.02") for _ in range(2)]
    wait_for_members(scene, [2, 2], *copies)
    for copy in copies:
        scene.wait_for_records(20, copy)
    copies[0].send(signal.SIGTERM)
    assert copies[0].wait(within=60).code == 0
    assert scene.log.count() < len(scene.produced), "it went after the work"
    scene.hurry()
    wait_until(lambda: scene.marks() == scene.ends, within=120, what="everything committed by the other")
    copies[1].send(signal.SIGTERM)
    assert copies[1].wait(within=60).code == 0
    assert scene.breaches() == []
    assert scene.log.count() == len(scene.produced), "an orderly handover repeats nothing"
