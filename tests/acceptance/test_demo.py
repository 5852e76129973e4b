"""The demo as a newcomer runs it, from the wheel, in an environment that has nothing else: its story and its audit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.acceptance.conftest import Scene
from tests.installed import build_wheel, files_in, files_in_source, install


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel: Path) -> None:
    assert files_in(wheel) == files_in_source()


@pytest.mark.timeout(900)
def test_the_demo_tells_its_story_and_nothing_is_lost(scene: Scene, wheel: Path, tmp_path: Path) -> None:
    programs = install(wheel, tmp_path, "serve,http")
    program = scene.start_command([str(programs / "tidegate"), "demo", "--records", "2000"])
    ended = program.wait(within=600)
    assert ended.code == 0, ended.out + ended.err
    found = re.findall(r"^  (\w[\w ]*?) +(\d+)(?: |$)", ended.out.replace(",", ""), re.M)
    figures = {name: int(number) for name, number in found}
    dead = len([number for number in range(2000) if number % 500 == 77])
    assert figures["produced"] == 2000
    assert (figures["taken by the service"], figures["dead letters"], figures["lost"]) == (2000 - dead, dead, 0)
    for part in (
        "The order service goes away",
        "It is back",
        "kill -9",
        "A restart",
        "the dashboard at http://127.0.0.1:",
    ):
        assert part in ended.out
    held = re.search(r"(\d+) attempts? found it away; meanwhile 0 orders were taken, 0 were given up for it", ended.out)
    assert held is not None, ended.out
