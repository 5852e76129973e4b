"""Programs and workers that are killed midway: nothing is missing, and repeats stay within the law."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.conftest import DOOMED, Scene, channel, evenly
from tests.support import is_alive, wait_until

if TYPE_CHECKING:
    from tests.acceptance.program import Program

KILLS = int(os.environ.get("PROOF_KILLS", "2"))
RECORDS_PER_LIFE = 5000
PARTITIONS = 4
SLOW = "0.0003"


@pytest.mark.timeout(180 + 90 * KILLS)
def test_a_program_killed_again_and_again_loses_nothing_and_repeats_only_what_was_open(scene: Scene) -> None:
    chance = random.Random(f"kills {KILLS}")
    scene.fill(PARTITIONS, evenly(RECORDS_PER_LIFE * (KILLS + 1), PARTITIONS))
    for number in range(KILLS):
        program = scene.start(
            "slow.py", *DOOMED, "--set", f"live={chance.choice(['true', 'false'])}", SECONDS_EACH=SLOW
        )
        scene.wait_for_records(chance.randrange(1, RECORDS_PER_LIFE), program)
        # Every other time the driver alone: its workers live on for a while, and the next life meets them.
        scene.log.fault("driver_killed", driver=program.pid)
        program.kill_all() if number % 2 else program.kill()
        assert scene.log.count(driver=program.pid) > 0
        assert scene.marks() != scene.ends, f"kill {number + 1} came after the work"

    ended = scene.start("slow.py", "--until", "caught-up", SECONDS_EACH=SLOW).wait(within=120)

    assert ended.code == 0, ended.err
    assert scene.breaches() == []
    assert scene.marks() == scene.ends
    assert scene.log.count() > len(scene.produced), "no kill made anything run again, so nothing was proved"
    for program in scene.programs:
        program.check_gone()


@pytest.mark.timeout(240)
@channel("live")
def test_a_run_goes_on_by_itself_when_its_workers_are_killed(live: str, scene: Scene) -> None:
    chance = random.Random("workers")
    scene.fill(PARTITIONS, evenly(8000, PARTITIONS))
    program = scene.start("slow.py", "--until", "caught-up", "--set", f"live={live}", SECONDS_EACH="0.001")
    for kill in range(1, 4):
        scene.wait_for_records(1500 * kill + chance.randrange(1000), program)
        kill_the_worker_at_work(scene, program)
    ended = program.wait(within=120)
    entries = scene.log.read()

    assert ended.code == 0, ended.err
    assert scene.breaches() == []
    assert scene.marks() == scene.ends
    died_at_work = {
        fault.worker for fault in entries.faults if any(event.pid == fault.worker for event in entries.events)
    }
    assert len(died_at_work) == 3
    assert ended.err.count("a worker died in round") >= 2, ended.err


def kill_the_worker_at_work(scene: Scene, program: Program) -> None:
    """Kill the worker that settled a record last, if it still lives and belongs to this program."""

    def hits() -> bool:
        worker = scene.log.read().events[-1].pid
        if worker not in program.processes():
            return False
        scene.log.fault("worker_killed", worker=worker)
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
        wait_until(lambda: not is_alive(worker), within=5, what=f"the death of worker {worker}")
        return True

    wait_until(hits, within=30, what="a worker at work to kill")
