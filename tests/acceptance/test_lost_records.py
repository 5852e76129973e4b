"""Records that retention took: the command stops with exit code 1, or goes on and says how many."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.acceptance.conftest import Scene, evenly
from tidegate.records import Partition

APP = """
import os
import tidegate as tg
source = tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"], lost=os.environ["LOST"])
pipeline = source.map(tg.text).sink(lambda value: None)
"""


@pytest.mark.timeout(240)
def test_lost_records_stop_the_command_or_are_in_its_last_lines(scene: Scene, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP, encoding="utf-8")
    scene.fill(1, evenly(10, 1))
    scene.admin.commit_for_empty_group(scene.group, {Partition(scene.topic, 0): (4, "")})
    client = AdminClient({"bootstrap.servers": scene.bootstrap})
    for future in client.delete_records([TopicPartition(scene.topic, 0, 7)]).values():
        future.result(20)

    stopped = scene.start(app, "--until", "caught-up", LOST="stop").wait(within=120)
    assert stopped.code == 1
    assert f"{scene.topic}[0]: the group stands at 4, and the log begins at 7: 3 records are lost" in stopped.err
    assert scene.marks() == {0: 4}

    went_on = scene.start(app, "--until", "caught-up", LOST="earliest").wait(within=120)
    assert went_on.code == 0
    assert "3 records lost: gone before they were settled" in went_on.out
    assert "3 records are lost; it goes on at 7" in went_on.err, "a warning says it while it runs"
    assert scene.marks() == {0: 10}
