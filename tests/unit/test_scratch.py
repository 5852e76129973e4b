"""The folder for what Java puts aside: gone with its process, whatever way that ends, and never before."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.engine import scratch

PROCESS = """
import sys
from tidegate.engine.scratch import scratch_folder
folder = scratch_folder()
assert folder == scratch_folder()
(folder / "left").write_text("something")
print(folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A place with a short name: those that the tests are given leave no room for Spark's sockets."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as made:  # see above
        yield Path(made)


class Process:
    """A process that has such a folder, until it is told to end."""

    def __init__(self, place: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROCESS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"TMPDIR": str(place), "PYTHONPATH": ":".join(sys.path)},
        )
        assert self.process.stdout is not None
        self.folder = Path(self.process.stdout.readline().decode().strip())
        assert (self.folder / "left").exists()

    def end(self) -> None:
        self.process.communicate()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_it_goes_with_the_end_of_its_process(place: Path) -> None:
    process = Process(place)
    process.end()
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next_and_what_lives_is_kept(place: Path) -> None:
    killed, living = Process(place), Process(place)
    killed.kill()
    assert killed.folder.exists()

    later = Process(place)
    assert set(place.iterdir()) == {living.folder, later.folder}
    living.end()
    later.end()
    assert list(place.iterdir()) == []


SENDER = """
import sys, tempfile
from pathlib import Path
from types import SimpleNamespace
from tidegate.engine.scratch import cleared_after_a_kill, scratch_folder
module = SimpleNamespace(tempfile=tempfile)
with cleared_after_a_kill(module):
    made = Path(module.tempfile.mkdtemp())
    assert module.tempfile.gettempdir() == tempfile.gettempdir()
assert made.parent == scratch_folder() and module.tempfile is tempfile
Path("beside.py").write_text("")
sys.path.insert(0, "")
import beside
from tidegate.engine.shipping import pack_own_modules
assert scratch_folder() in pack_own_modules(sys.modules, [str(Path.cwd())]).parents
"""


def test_what_pyspark_puts_aside_and_modules_that_are_sent_lie_there(place: Path, tmp_path: Path) -> None:
    environment = {"TMPDIR": str(place), "PYTHONPATH": ":".join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", SENDER], env=environment, cwd=tmp_path, check=True, timeout=60)
    assert list(place.iterdir()) == []


def test_links_and_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / f"{scratch.PREFIX}link").symlink_to(tmp_path / "target")
    (tmp_path / f"{scratch.PREFIX}file").touch()
    assert scratch.remove_leftovers(tmp_path) == []
    assert (tmp_path / "target").is_dir()


@pytest.mark.parametrize("name", ["a" * 60, "two words"])
def test_where_java_or_its_sockets_could_not_be_there_is_none(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / name
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    monkeypatch.setattr(scratch, "_own", None)
    assert scratch.scratch_folder() is None
    assert list(place.iterdir()) == []
