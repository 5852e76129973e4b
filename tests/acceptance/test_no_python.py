"""Workers that cannot be started any more: the run ends and says why, and no record pays for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.acceptance.conftest import Scene, channel, evenly
from tidegate.testing import read_copies


@pytest.mark.timeout(240)
@channel("plain")
def test_no_record_is_given_up_for_workers_that_could_not_be_started(scene: Scene, tmp_path: Path, live: str) -> None:
    gone, python = tmp_path / "gone", tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ -e {gone} ] && exit 97\nexec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    scene.fill(2, evenly(3000, 2))
    words = {"GONE": str(gone), "PYSPARK_PYTHON": str(python)}
    program = scene.start("poorly_kept.py", "--set", f"live={live}", **words)
    scene.wait_for_records(200, program)
    scene.log.fault("workers_killed", lasts_seconds=30)
    gone.touch()
    ended = program.wait(within=120)
    assert ended.code == 1, ended.err
    assert "Spark could not start a Python worker 5 times in a row" in ended.err
    assert "Traceback" not in ended.err
    assert read_copies(scene.kafka, scene.group) == [], "nothing is the records' fault"
    assert scene.log.count() < len(scene.produced), "it ended before the work"

    gone.unlink()
    scene.log.fault("driver_killed", driver=program.pid)
    rest = scene.start("poorly_kept.py", "--until", "caught-up", "--set", f"live={live}", **words)
    assert rest.wait(within=120).code == 0, rest.err
    assert read_copies(scene.kafka, scene.group) == []
    assert scene.breaches() == []
