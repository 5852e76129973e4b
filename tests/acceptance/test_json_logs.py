"""A run whose lines are read by a program: every line of ours, from every process, is one JSON object."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.acceptance.conftest import Scene
from tidegate.ops.produce import Message

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """import logging
import os

import tidegate as tg


def write(value):
    logging.getLogger("shop").info("sending", extra={"customer": value["customer"]})
    if value["customer"] == 9:
        raise ValueError("nobody\\nof that name")


p = tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"]).map(tg.json).sink(write)
"""


def test_every_line_is_one_object_with_its_run_and_its_record(scene: Scene, tmp_path: Path) -> None:
    scene.fill(1, [Message({"customer": 7}), Message({"customer": 9})])
    (tmp_path / "app.py").write_text(PROGRAM, encoding="utf-8")

    ended = scene.start(tmp_path / "app.py", TIDEGATE_LOG_FORMAT="json").wait(within=120)

    assert ended.code == 3, ended.err
    assert ended.out == "", "the report is a line like the others"
    ours = [line for line in ended.err.splitlines() if not line.startswith("WARNING: ")]  # Java's own, as it starts
    lines: list[dict[str, Any]] = [json.loads(line) for line in ours]
    for line in lines:
        assert list(line)[:4] == ["time", "level", "logger", "message"]

    sent = [line for line in lines if line["logger"] == "shop"]
    assert [(line["message"], line["customer"], line["offset"]) for line in sent] == [
        ("sending", 7, 0),
        ("sending", 9, 1),
    ]
    [failed] = [line for line in lines if line.get("action") == "record_failed"]
    assert (failed["level"], failed["topic"], failed["partition"], failed["offset"]) == ("ERROR", scene.topic, 0, 1)
    assert "(app.py line 10 in write)" in failed["message"]
    assert failed["exception"].endswith("ValueError: nobody\nof that name\n")
    assert {(line["group"], line["run"]) for line in [*sent, failed]} == {(scene.group, failed["run"])}
    stopped, report = lines[-2:]
    assert (stopped["action"], stopped["level"], stopped["offset"]) == ("stopped", "ERROR", 1)
    assert "the group stays at this record" in stopped["message"]
    assert report["action"] == "report"
    assert report["report"]["counts"]["settled"] == 1


def test_an_error_before_the_run_is_such_a_line_too(scene: Scene, tmp_path: Path) -> None:
    ended = scene.start(tmp_path / "nowhere.py", "--log-format", "json").wait(within=60)

    assert ended.code == 1
    line = json.loads(ended.err)
    assert (line["level"], line["action"], line["exit_code"]) == ("ERROR", "ended", 1)
    assert "there is no program" in line["message"]
