"""The broker goes away in mid-flight and comes back: the run waits for it and goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import Scene, evenly, new_name
from tests.support import wait_until
from tidegate.dev.broker import Broker


@pytest.fixture
def own_scene(tmp_path: Path) -> Iterator[Scene]:
    """A scene on a broker of its own, which the test may end."""
    with Broker(tmp_path / "broker") as own:
        made = Scene(own.bootstrap, tmp_path, new_name())
        made.broker = own  # type: ignore[attr-defined]  # for this file only
        yield made
        made.clean_up()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["restarted", "killed"])
def test_a_run_outlives_its_broker(own_scene: Scene, how: str) -> None:
    broker: Broker = own_scene.broker  # type: ignore[attr-defined]  # see above
    own_scene.fill(4, evenly(6000, 4))
    # A session that outlasts the outage: no partition is lost, so nothing may run twice.
    program = own_scene.start("slow.py", "--set", "session_timeout=45s", SECONDS_EACH="0.002")
    own_scene.wait_for_records(800, program)
    before = own_scene.log.count()
    own_scene.log.fault(f"broker_{how}")
    if how == "killed":
        broker.kill()
        broker.start()
    else:
        broker.restart()
    assert before < len(own_scene.produced), "the fault came after the work"
    wait_until(lambda: own_scene.marks() == own_scene.ends, within=120, what=f"everything committed: {program.err}")
    assert program.is_running, program.err
    program.send(signal.SIGTERM)
    assert program.wait(within=60).code == 0
    assert own_scene.breaches() == []
