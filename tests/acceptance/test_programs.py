"""Programs as people write them: modules beside them, logging in their functions."""

from __future__ import annotations

import pytest

from tests.acceptance.conftest import Scene
from tidegate.ops.produce import Message


@pytest.mark.timeout(240)
def test_modules_beside_the_program_work_and_what_they_log_names_the_record(scene: Scene) -> None:
    scene.fill(2, [Message(str(100 * number + at), partition=number) for number in range(2) for at in range(5)])
    ended = scene.start("with_module/app.py", "--until", "caught-up").wait(within=120)

    assert ended.code == 0, ended.err
    assert scene.breaches() == []
    for number in range(2):
        for at in range(5):
            line = f"WARNING shop.prices {scene.topic}[{number}]@{at}: a price of {100 * number + at}\n"
            assert ended.err.count(line) == 1, ended.err
    assert "which nobody asked for" not in ended.err
