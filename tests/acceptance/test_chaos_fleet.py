"""Every pipeline that chaos attacks starts, works, keeps the laws when nothing is done to it, and can be judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.fleet import KINDS
from tests.chaos.report import as_text
from tests.chaos.run import run_chaos
from tidegate.testing import Schedule

SIDE_BY_SIDE = 3
"""So many Sparks start at once on two cores: more would take so long that it would be a fault of its own."""
OF_A_FLEET = 5
FLEETS = [KINDS[first : first + OF_A_FLEET] for first in range(0, len(KINDS), OF_A_FLEET)]
IN_DATAFRAMES = {"frames", "jdbc"}
TRANSACTIONS = {"kafka-once", "kafka-ordered"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kinds", FLEETS, ids="-".join)
def test_every_pipeline_of_the_fleet_works_and_is_judged(kinds: tuple[str, ...], tmp_path: Path) -> None:
    said: list[str] = []
    report = run_chaos(Schedule(2.0, ()), kinds, tmp_path, copies=1, together=SIDE_BY_SIDE, say=said.append)
    story = "\n".join([as_text(report), *said])

    assert report.is_good, story
    assert [one.kind for one in report.pipelines] == list(kinds)
    # Nothing was done to it: what is there twice would be its own doing.
    assert [one.kind for one in report.pipelines if one.again or one.lost or not one.seen] == [], story
    assert all(one.marks_told for one in report.pipelines), "somebody asked for their marks while they ran"
    notes = {one.kind: one.met_work is not None for one in report.pipelines}
    assert notes == {kind: kind not in IN_DATAFRAMES for kind in kinds}, "each notes when a record begins"
    counts = {one.kind: one.aborted is not None for one in report.pipelines}
    assert counts == {kind: kind in TRANSACTIONS for kind in kinds}, "and each that has transactions counts them"
