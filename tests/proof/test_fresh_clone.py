"""The README's commands in a fresh clone, in an empty home."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "try-fresh-clone"


@pytest.mark.timeout(1800)
def test_a_fresh_clone_sets_itself_up_and_tells_the_whole_story() -> None:
    done = subprocess.run([str(SCRIPT)], capture_output=True, text=True, check=False, timeout=1700)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert re.search(r"^=+ \d+ passed in ", done.stdout, re.M), "the unit ring"
    assert re.search(r"^  produced +8,000$", done.stdout, re.M), "the demo in full"
    assert re.search(r"^  lost +0$", done.stdout, re.M)
