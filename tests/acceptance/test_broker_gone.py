"""The broker is gone for good: the run says so, and a stop still ends it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.acceptance.conftest import Scene, evenly, new_name
from tests.support import wait_until
from tidegate.dev.broker import Broker


@pytest.mark.timeout(240)
def test_a_stop_ends_a_run_whose_broker_is_gone(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker") as own:
        scene = Scene(own.bootstrap, tmp_path, new_name(), stays_connected=False)
        scene.fill(2, evenly(400, 2))
        program = scene.start("slow.py", SECONDS_EACH="0.002")
        scene.wait_for_records(100, program)
        own.kill()
        wait_until(lambda: "does not answer; the run waits" in program.err, within=60, what=f"a word: {program.err}")
        program.send(signal.SIGTERM)
        ended = program.wait(within=60)
        assert ended.code == 0, ended.err  # it was asked to stop, and did: what the group has not runs again
        assert ended.seconds < 60
        # Which of the two comes first is the session's affair; either says that what was settled last may not be known.
        told = ("partitions lost", "the last commit did not work out")
        assert any(words in ended.err for words in told), ended.err
        assert "Traceback" not in ended.err
