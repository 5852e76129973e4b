"""Faults of many kinds against running pipelines: each happens, all laws hold, and every copy comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.report import as_text
from tests.chaos.run import run_chaos
from tidegate.testing import (
    CutConnections,
    CutPower,
    Due,
    FreezeDriver,
    KillBroker,
    KillDriver,
    KillWorker,
    RewindGroup,
    Schedule,
)

FUNCTION, KAFKA_ONCE = 0.25, 0.75
"""Which of the two pipelines a fault draws."""
# Far enough from each other. Within some twelve seconds after a fault that lasts, repeats are excused whatever caused
# them: what a fault does is judged only where the next one comes later.
SCHEDULE = Schedule(
    100.0,
    (
        Due(1.0, KillDriver(), KAFKA_ONCE),
        Due(10.0, CutPower(), FUNCTION),
        Due(22.0, KillWorker(), KAFKA_ONCE),
        Due(28.0, CutConnections(), 0.0),
        Due(44.0, KillBroker(), 0.0),
        Due(62.0, FreezeDriver(), FUNCTION),
        Due(88.0, RewindGroup(), FUNCTION),
    ),
)


@pytest.mark.timeout(900)
def test_pipelines_under_faults_of_many_kinds_keep_all_laws(tmp_path: Path) -> None:
    said: list[str] = []
    report = run_chaos(SCHEDULE, ["function", "kafka-once"], tmp_path, again_with="this test", say=said.append)
    story = "\n".join([as_text(report), *said])

    assert report.is_good, story
    assert {one.kind: one.happened for one in report.faults} == {due.fault.kind: 1 for due in SCHEDULE.due}, story
    assert all(one.records and one.seen and one.met_work for one in report.pipelines), story
