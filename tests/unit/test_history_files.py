"""A history in a file: several processes at once, kill -9, a disk without room, a file that is read-only or broken."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.histories import CLUSTER, GROUP, batch, failure
from tidegate.errors import HistoryBroken
from tidegate.history.store import History
from tidegate.records import Partition

ROOT = Path(__file__).parents[2]
NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def writing(path: Path, name: str, count: int, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.unit.history_process", str(path), name, str(count), *words]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ids(path: Path) -> set[str]:
    with History(str(path)) as history:
        return {row.failure_id for row in history.failures(CLUSTER, GROUP, limit=100_000)}


def is_whole(path: Path) -> bool:
    connection = sqlite3.connect(path)
    try:
        return bool(connection.execute("pragma integrity_check").fetchall() == [("ok",)])
    finally:
        connection.close()


def test_several_processes_make_and_write_one_file_at_once(path: Path) -> None:
    names = [f"writer{number}" for number in range(3)]
    processes = [writing(path, name, 30) for name in names]
    path.with_suffix(".go").touch()
    for process in processes:
        process.communicate(timeout=60)
    assert [process.returncode for process in processes] == [0, 0, 0]

    assert ids(path) == {f"{name}-{number}" for name in names for number in range(30)}
    history = History(str(path))
    assert {row.partition.topic: row.mark for row in history.offsets(CLUSTER, GROUP)} == dict.fromkeys(names, 29)
    assert {run.run_id for run in history.runs(CLUSTER)} == set(names)
    history.close()
    assert is_whole(path)


def test_requests_that_are_made_at_once_each_have_a_number_of_their_own(path: Path) -> None:
    together = threading.Barrier(4)

    def ask(number: int) -> list[int]:
        with History(str(path)) as history:
            together.wait(60)
            return [history.ask(CLUSTER, GROUP, {Partition("orders", number): 1}, by="anna") for _ in range(10)]

    with ThreadPoolExecutor(4) as pool:
        asked = [each.result(60) for each in [pool.submit(ask, number) for number in range(4)]]
    numbers = [number for each in asked for number in each]
    assert len(set(numbers)) == 40
    assert all(each == sorted(each) for each in asked)


def test_a_reader_is_not_held_up_by_a_writer_in_the_middle_of_its_work(path: Path) -> None:
    with History(str(path)) as history:
        history.write(batch(5))
        writer = sqlite3.connect(path, isolation_level=None)
        writer.execute("BEGIN EXCLUSIVE")
        writer.execute("update tidegate_history_offsets set mark = 6")
        assert [row.mark for row in history.offsets(CLUSTER, GROUP)] == [5]
        writer.execute("COMMIT")
        writer.close()
        assert [row.mark for row in history.offsets(CLUSTER, GROUP)] == [6]


def test_kill_9_in_the_middle_of_writing_leaves_a_file_with_all_that_was_said_to_be_written(path: Path) -> None:
    path.with_suffix(".go").touch()
    process = writing(path, "killed", 1_000_000)
    assert process.stdout is not None
    said = [process.stdout.readline().strip() for _ in range(50)]
    process.kill()
    # Not communicate(): it knows nothing of the lines that readline() has read ahead.
    said += process.stdout.read().split("\n")[:-1]
    process.stdout.close()
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == -9

    found = ids(path)
    assert set(said) <= found
    assert len(found - set(said)) <= 1, "the one that was in its hands"
    assert is_whole(path)
    history = History(str(path))
    history.write(batch(5, failures=(failure("after"),)))
    assert "after" in {row.failure_id for row in history.failures(CLUSTER, GROUP)}
    history.close()


def test_a_disk_without_room_is_a_warning_and_what_was_noted_is_written_when_there_is_room(path: Path) -> None:
    History(str(path)).write(batch(5))
    with writing(path, "full", 4096, "limit") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        warning = process.stdout.readline()
        assert "WARNING" in warning
        assert "the run goes on without its history" in warning
        assert "full-1" not in ids(path)
        process.stdin.write("room\n")
        process.stdin.flush()
        assert "is written again" in process.stdout.readline()
        process.stdin.write("end\n")
        process.stdin.flush()
        assert process.wait(60) == 0
    assert ids(path) == {f"full-{number}" for number in range(100)}
    assert is_whole(path)


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A history that its reader may not write. Root may write everything, so it becomes somebody else meanwhile."""
    folder = Path(tempfile.mkdtemp(prefix="tidegate-read-only-"))
    path = folder / "history.sqlite"
    history = History(str(path))
    history.write(batch(5))
    history.close()
    path.chmod(0o444)
    folder.chmod(0o555)
    was = os.geteuid()
    if was == 0:
        os.seteuid(NOBODY)
    yield path
    os.seteuid(was)
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_file_that_is_read_only_is_told_with_its_cure(read_only: Path) -> None:
    history = History(str(read_only))
    with pytest.raises(HistoryBroken, match="make the file and its folder writable"):
        history.write(batch(6))
    history.close()


def test_a_file_that_is_no_database_is_left_as_it_is(path: Path) -> None:
    content = b"somebody's letter, which is much longer than a line " * 100
    path.write_bytes(content)
    history = History(str(path))
    for call in (lambda: history.write(batch(5)), lambda: history.offsets(CLUSTER, GROUP)):
        with pytest.raises(HistoryBroken, match="move the file away"):
            call()
    assert path.read_bytes() == content

    path.unlink()
    history.write(batch(5))
    assert [row.mark for row in history.offsets(CLUSTER, GROUP)] == [5]
    history.close()


def test_a_file_with_damaged_pages_is_told_and_a_new_one_in_its_place_is_used(path: Path) -> None:
    history = History(str(path))
    for number in range(200):
        history.write(batch(number, failures=(failure(f"f-{number}"),)))
    history.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    with pytest.raises(HistoryBroken, match="malformed"):
        history.write(batch(5))
    path.rename(path.with_suffix(".broken"))
    history.write(batch(7))
    assert [row.mark for row in history.offsets(CLUSTER, GROUP)] == [7]
    history.close()


def test_a_file_that_is_taken_away_while_it_is_open_is_made_anew(path: Path) -> None:
    history = History(str(path))
    history.write(batch(5))
    for one in path.parent.glob("history.sqlite*"):
        one.unlink()
    history.write(batch(6))
    assert [row.mark for row in History(str(path)).offsets(CLUSTER, GROUP)] == [6]
    history.close()
