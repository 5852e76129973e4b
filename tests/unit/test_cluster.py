"""What a cluster adds, without one: slots that come and go, modules that are sent, sentences about what is missing."""

from __future__ import annotations

import importlib
import socket
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkRuntimeError

from tests.unit.test_board import A, B, C, D, answer, board_with
from tidegate.engine.masters import refuse_silent_master
from tidegate.engine.shipping import own_files, pack, pack_own_modules
from tidegate.engine.wording import lacking
from tidegate.errors import SparkFailed
from tidegate.records import Partition

# --- slots


def test_without_a_slot_nothing_is_leased_and_nothing_counts_as_stalled() -> None:
    board = board_with(A, B, lanes=0)
    assert board.leases() == []
    assert board.workable_marks(0.0) == {}


def test_with_fewer_slots_every_round_is_asked_to_end_and_all_partitions_share_what_is_left() -> None:
    board = board_with(A, B, C, D, lanes=4)
    leases = board.leases()
    board.resize(1)
    assert board.kept_waiting() == leases
    for lease in leases:
        board.accept(answer(lease, {}))
    [left] = board.leases()
    assert {item.partition for item in left.partitions} == {A, B, C, D}


def test_a_round_without_a_slot_keeps_its_partitions_until_it_has_ended() -> None:
    board = board_with(A, B, lanes=2)
    first, second = board.leases()
    board.resize(1)
    board.accept(answer(first, {}))
    [again] = board.leases()
    held = {item.partition for item in second.partitions}
    assert not held & {item.partition for item in again.partitions}


def test_new_slots_are_used_when_the_rounds_have_ended() -> None:
    board = board_with(A, B, lanes=1)
    [lease] = board.leases()
    board.resize(2)
    assert board.kept_waiting() == [lease]
    board.accept(answer(lease, {}))
    assert len(board.leases()) == 2


@pytest.mark.parametrize("lanes", [2, 3, 40])
def test_slots_that_nobody_needs_disturb_no_round(lanes: int) -> None:
    board = board_with(A, B, lanes=2)
    board.leases()
    board.resize(lanes)
    assert board.kept_waiting() == []


def test_a_lane_that_waits_for_a_slot_is_not_stalled() -> None:
    board = board_with(A, B, lanes=2)
    first, second = board.leases()
    board.waiting = frozenset({second.lane})
    [only] = first.partitions
    assert list(board.workable_marks(0.0)) == [only.partition]


def test_partitions_are_all_served_whatever_the_slots_do() -> None:
    board = board_with(*(Partition("t", number) for number in range(7)), lanes=3)
    for lanes in (3, 1, 0, 5, 2, 7, 1):
        board.resize(lanes)
        for lease in board.flying():
            board.accept(answer(lease, {}))
        served = [item.partition for lease in board.leases() for item in lease.partitions]
        assert sorted(served) == ([] if lanes == 0 else sorted(board.owned))


# --- modules beside the program


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    files = {
        "cl_prices.py": "CENTS = 100",
        "cl_never_imported.py": "",
        "cl_shop/__init__.py": "",
        "cl_shop/tax.py": "RATE = 0.2",
        "cl_shop/late.py": "",
        "cl_shop/rates.json": "{}",
        "cl_shop/__pycache__/tax.pyc": "",
        "cl_spaces/inner.py": "",
        "tidegate_app_mine.py": "",
    }
    for place, text in files.items():
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ("cl_prices", "cl_shop.tax", "cl_spaces.inner", "tidegate_app_mine")
    for name in names:
        importlib.import_module(name)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith(("cl_", "tidegate_app_mine"))]:
        del sys.modules[name]


def test_what_the_program_imported_is_sent_and_packages_go_whole(beside: Path) -> None:
    assert set(own_files(sys.modules, [str(beside)])) == {
        "cl_prices.py",
        "cl_shop/__init__.py",
        "cl_shop/tax.py",
        "cl_shop/late.py",
        "cl_shop/rates.json",
        "cl_spaces/inner.py",
    }


def test_an_archive_can_be_imported_from_and_is_named_by_its_contents(beside: Path, tmp_path: Path) -> None:
    files = own_files(sys.modules, [str(beside)])
    first = pack(files, tmp_path)
    assert zipfile.ZipFile(first).read("cl_shop/tax.py") == b"RATE = 0.2"
    assert pack(files, tmp_path) == first
    (beside / "cl_prices.py").write_text("CENTS = 99", encoding="utf-8")
    assert pack(files, tmp_path) != first


def test_nothing_beside_the_program_is_nothing_to_send(tmp_path: Path) -> None:
    assert pack_own_modules(sys.modules, [str(tmp_path)]) is None


def test_what_is_too_large_is_named_and_not_sent(
    beside: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tidegate.engine.shipping.MOST_BYTES", 5)
    assert pack_own_modules(sys.modules, [str(beside)]) is None
    assert "(cl_prices, cl_shop, cl_spaces)" in caplog.text
    assert "--py-files" in caplog.text


# --- masters


def test_a_master_that_does_not_answer_is_named_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        there = listener.getsockname()[1]
        refuse_silent_master(f"spark://127.0.0.1:1,127.0.0.1:{there}")
    with pytest.raises(SparkFailed, match=f"no Spark master answers at 127.0.0.1:1, 127.0.0.1:{there}; start it"):
        refuse_silent_master(f"spark://127.0.0.1:1,127.0.0.1:{there}")


@pytest.mark.parametrize("master", ["local[2]", "yarn", "k8s://https://127.0.0.1:1"])
def test_of_other_masters_nothing_is_asked(master: str) -> None:
    refuse_silent_master(master)


# --- what workers lack


def test_another_python_on_the_workers_is_one_sentence() -> None:
    versions = {"worker_version": "3.12", "driver_version": "3.11"}
    theirs = PySparkRuntimeError(errorClass="PYTHON_VERSION_MISMATCH", messageParameters=versions)
    said, cure = lacking(f"Traceback ...\n{theirs}", "Please check")
    assert said == "they run Python 3.12, and this program runs Python 3.11"
    assert "PYSPARK_PYTHON" in cure


def test_a_missing_package_is_one_sentence() -> None:
    said, cure = lacking("Traceback ...", "ModuleNotFoundError: No module named 'tidegate'")
    assert said == "their Python has no module tidegate"
    assert "install Tidegate for it, on every machine of the cluster" in cure
    assert lacking("Traceback ...", "ValueError: no") == ("ValueError: no", "")
