"""The oldest PySpark of the promised range, in an environment of its own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "try-oldest-spark"


@pytest.mark.timeout(3600)
def test_rounds_and_crashes_on_the_oldest_spark() -> None:
    done = subprocess.run([str(SCRIPT)], capture_output=True, text=True, check=False, timeout=3500)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert re.search(r"^pyspark 4\.1\.", done.stdout, re.M), done.stdout[:400]
    assert re.search(r"^\d+ passed in ", done.stdout, re.M)
