"""The benchmark itself, with tiny sizes: figures come out, and every contender has seen every record."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bench.model import Results
from bench.roster import LIVE, PLAIN, TIDEGATE

from tests.docs.pages import ROOT


@pytest.mark.timeout(900)
def test_a_trial_measures_throughput_a_slow_sink_and_recovery(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "A", "B", "D", "--quick", "--only", "plain loop,tidegate"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=880, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = Results.read_file(tmp_path / "results.json")
    assert [run.flaw for run in found.runs if run.flaw] == []
    assert found.cases("A") == found.cases("B") == found.cases("D") == [""]
    assert found.middle("A", "", TIDEGATE)["uncommitted"] == 0
    assert found.middle("A", "", TIDEGATE)["cpu"] > 0
    assert found.middle("A", "", PLAIN)["rate"] > 0
    assert found.middle("D", "", LIVE)["lost"] == 0
    assert (tmp_path / "images" / "performance-d.svg").exists()
    assert "## Targets" in (tmp_path / "performance.md").read_text(encoding="utf-8")
