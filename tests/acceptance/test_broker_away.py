"""The broker goes away in mid-flight and comes back: the run waits for it and goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import Scene, evenly, new_name
from tidegate.dev.broker import Broker


@pytest.fixture
def own_scene(tmp_path: Path) -> Iterator[Scene]:
    """A scene on a broker of its own, which the test may end."""
    with Broker(tmp_path / "broker") as own:
        made = Scene(own.bootstrap, tmp_path, new_name(), stays_connected=False)
        made.broker = own  # type: ignore[attr-defined]  # for this file only
        yield made
        made.clean_up()


@pytest.mark.timeout(300)
def test_a_run_outlives_its_broker(own_scene: Scene) -> None:
    broker: Broker = own_scene.broker  # type: ignore[attr-defined]  # see above
    own_scene.fill(4, evenly(3000, 4))
    # A session that outlasts the outage: no partition is lost, so nothing may run twice.
    program = own_scene.start("slow.py", "--set", "session_timeout=45s", SECONDS_EACH="0.01")
    for how in ("restarted", "killed"):
        own_scene.wait_for_records(own_scene.log.count() + 300, program)
        own_scene.log.fault(f"broker_{how}")
        assert own_scene.marks() != own_scene.ends, f"the broker was {how} after the work"
        if how == "killed":
            broker.kill()
            broker.start()
        else:
            broker.restart()
        own_scene.hurry()
        program.wait_until(
            lambda: own_scene.marks() == own_scene.ends, within=120, what="everything committed to the broker " + how
        )
        own_scene.take_time()
        own_scene.produce(evenly(3000, 4))
    own_scene.hurry()
    program.wait_until(lambda: own_scene.marks() == own_scene.ends, within=120, what="the last records committed")
    program.send(signal.SIGTERM)
    assert program.wait(within=60).code == 0
    assert own_scene.breaches() == []
