"""The pages about testing: every public name is there, and the four lines do what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import blocks, text
from tidegate import testing
from tidegate.testing import fixtures

PAGE = "docs/how-to/test-your-pipeline.md"


def test_every_name_of_the_kit_has_a_row_and_no_other() -> None:
    page = text("docs/api-testing.md")
    cells = re.findall(r"^\| (`[^|]*`) \|", page, re.MULTILINE)
    named = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    in_the_text = {"EVERY_FAULT", "EVERY_FAULT_OF_NODES"}
    assert sorted([*named, *in_the_text]) == sorted(testing.__all__)
    assert all(f"`{name}`" in page for name in in_the_text)


def test_every_fixture_is_named() -> None:
    made = {name for name in vars(fixtures) if name.startswith("tidegate_")}
    assert made == set(re.findall(r"`(tidegate_\w+)`", text("docs/api-testing.md")))


def test_every_field_of_what_is_tried_is_named() -> None:
    [row] = [line for line in text("docs/api-testing.md").splitlines() if line.startswith("| `Subject` |")]
    assert set(testing.Subject.__dataclass_fields__) == set(re.findall(r"`(\w+)`", row)) - {"Subject"}


@pytest.mark.timeout(600)
def test_the_four_lines_of_the_page_start_strike_and_judge(tmp_path: Path) -> None:
    [app] = [block for block in blocks(PAGE, "python") if "switch.meet()" in block]
    [four] = [block for block in blocks(PAGE, "python") if "trial.attack(" in block]
    (tmp_path / "app.py").write_text(app, encoding="utf-8")
    happened = "    assert sum(one.happened for one in trial.attacks[0].struck) >= 2\n"
    (tmp_path / "test_app.py").write_text(four + happened, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tidegate.testing.fixtures", "test_app.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=False, timeout=580
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
