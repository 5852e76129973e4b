"""Random faults against running pipelines, from a seed: all laws hold, and every copy comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.report import as_text
from tests.chaos.run import run_chaos

SECONDS = 30.0
SEED = 4
FEWEST_FAULTS = 6


@pytest.mark.timeout(900)
def test_pipelines_under_random_faults_keep_all_laws(tmp_path: Path) -> None:
    said: list[str] = []
    report = run_chaos(SEED, SECONDS, ["function", "kafka-once"], tmp_path, every=3.0, say=said.append)

    assert report.is_good, "\n".join([as_text(report), *said])
    assert sum(fault.happened for fault in report.faults) >= FEWEST_FAULTS, as_text(report)
    assert all(one.records and one.seen for one in report.pipelines)
