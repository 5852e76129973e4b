"""DataFrame rounds killed at each of their steps: the same range under the same id again, and no record twice."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.acceptance.conftest import Scene, evenly
from tests.support import PROOF
from tidegate.ledger import decode_any
from tidegate.records import Partition, PlannedRound
from tidegate.testing import read_copies

if TYPE_CHECKING:
    from tests.acceptance.program import Program

PARTITIONS = 3
STEPS = ["planned", "writing", "written", "letters", "done"]
LIVES = STEPS * max(1, int(os.environ.get("PROOF_KILLS", "5")) // 5) if PROOF else ["planned", "letters"]
"""A spare takes over from one that was killed after `written`."""
COUNT = 400 * (len(LIVES) + 2)


def rounds_of(scene: Scene, program: Program) -> list[tuple[str, list[list[int]], bool]]:
    lines = (scene.folder / "rounds").read_text(encoding="utf-8").splitlines()
    noted: list[Any] = [json.loads(line) for line in lines]
    return [(one[1], one[2], one[3]) for one in noted if one[0] == program.pid]


def planned(scene: Scene) -> dict[Partition, tuple[int, PlannedRound]]:
    """The round that the group's commits name, with the mark of each partition."""
    found = scene.admin.committed(scene.group)
    stored = {tp: decode_any(scene.group, tp, one.mark, one.metadata).position for tp, one in found.items()}
    return {tp: (one.mark, one.planned) for tp, one in stored.items() if one.planned is not None}


def files(folder: Path) -> Counter[tuple[int, int]]:
    """What readers see: by partition and offset, without Spark."""
    found: Counter[tuple[int, int]] = Counter()
    for path in folder.glob("tidegate_round=*/*.parquet"):
        rows = pq.ParquetFile(path).read().to_pylist()
        found.update((row["partition"], row["offset"]) for row in rows)
    return found


@pytest.mark.timeout(120 + 60 * len(LIVES))
def test_a_round_killed_at_any_step_is_repeated_as_it_was_and_parquet_has_no_record_twice(scene: Scene) -> None:
    scene.fill(PARTITIONS, evenly(COUNT, PARTITIONS))
    paths = {"OUT": str(scene.folder / "out"), "ROUNDS": str(scene.folder / "rounds")}
    left: tuple[str, list[list[int]]] | None = None
    for step in LIVES:
        program = scene.start("frames.py", KILL_AFTER=step, **paths)
        wait_for_its_death(program, step)
        named = planned(scene)
        assert named, f"killed after {step}, and no round is planned; it said:\n{program.err}"
        [id_] = {one.id for _, one in named.values()}
        seen = rounds_of(scene, program)
        if left is not None:
            assert seen[0] == (*left, True), f"the life that died after {step} began with another round"
        left = (id_, [[tp.number, mark, one.end] for tp, (mark, one) in sorted(named.items())])
        if step != "planned":
            assert seen[-1][:2] == left, "what was written is what the commits name"
        assert set(named) == {tp for _, one in named.values() for tp in one.partitions}

    last = scene.start("frames.py", "--until", "caught-up", **paths)
    ended = last.wait(within=120)

    assert ended.code == 0, ended.err
    assert left is not None
    assert rounds_of(scene, last)[0] == (*left, True)
    check_once(scene, COUNT)
    assert not [one for one in (scene.folder / "out" / "_tidegate").iterdir() if one.name.startswith(left[0])]


@pytest.mark.timeout(240)
def test_a_spare_takes_over_the_round_of_one_that_was_killed(scene: Scene) -> None:
    scene.fill(PARTITIONS, evenly(1600, PARTITIONS))
    paths = {"OUT": str(scene.folder / "out"), "ROUNDS": str(scene.folder / "rounds")}
    go = scene.folder / "go"
    first = scene.start("frames.py", KILL_AFTER="written", GO=str(go), **paths)
    rounds = scene.folder / "rounds"
    first.wait_until(lambda: rounds.exists() and len(rounds_of(scene, first)) == 2, within=120, what="its second round")
    spare = scene.start("frames.py", "--until", "caught-up", **paths)
    spare.wait_until(lambda: "waits for its turn" in spare.err, within=120, what="the spare")
    go.touch()
    wait_for_its_death(first, "written")
    ended = spare.wait(within=120)

    assert ended.code == 0, ended.err
    taken_over = rounds_of(scene, first)[-1]
    assert rounds_of(scene, spare)[0] == (*taken_over[:2], True)
    check_once(scene, 1600)


def check_once(scene: Scene, count: int) -> None:
    """Every good record is in the files once, every bad one in the dead letters, and the group stands at the end."""
    bad = {(number % PARTITIONS, number // PARTITIONS) for number in range(count) if number % 50 == 7}
    every = {(number, at) for _, number, at in scene.produced}
    rows = files(scene.folder / "out")
    assert {place: times for place, times in rows.items() if times > 1} == {}, "written twice"
    assert set(rows) == every - bad
    letters = Counter((one.origin.partition, one.origin.offset) for one in dead_letters(scene))
    assert set(letters) == bad
    assert scene.marks() == scene.ends


def wait_for_its_death(program: Program, step: str) -> None:
    program.wait_until(lambda: not program.is_running, within=120, what=f"its death after {step}")


def dead_letters(scene: Scene) -> list[Any]:
    return [one.said for one in read_copies(scene.kafka, scene.group) if one.topic.endswith(".dead")]
