"""Nodes of Kafka that are killed, lost and restarted under running pipelines: all laws hold, and every copy goes on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.chaos.report import as_text
from tests.chaos.run import run_chaos
from tidegate.testing import Due, KillBroker, LoseNode, RestartBroker, Schedule

FIRST, SECOND, THIRD = 0.1, 0.5, 0.9
"""Which of the three nodes a fault draws."""
SCHEDULE = Schedule(
    55.0, (Due(1.0, KillBroker(), FIRST), Due(18.0, LoseNode(), SECOND), Due(40.0, RestartBroker(), THIRD))
)


@pytest.mark.timeout(900)
def test_nodes_that_are_killed_lost_and_restarted_break_no_law(tmp_path: Path) -> None:
    said: list[str] = []
    report = run_chaos(SCHEDULE, ["later", "kafka-ordered"], tmp_path, copies=1, nodes=3, say=said.append)
    story = "\n".join([as_text(report), *said])

    assert report.is_good, story
    assert {one.kind: one.happened for one in report.faults} == {due.fault.kind: 1 for due in SCHEDULE.due}, story
    struck = [re.search(r": node (\d), which led [1-9]", told) for told in report.notes]
    assert [one and one[1] for one in struck] == ["1", "2", "3"], story
    assert all(one.records and one.seen and one.met_work for one in report.pipelines), story
