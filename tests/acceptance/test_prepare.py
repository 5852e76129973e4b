"""A Spark that starts soon: its Java reads its classes from an archive, and its workers are born with their modules."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.class_archives import Archives, archives_of, pyspark_home
from tidegate.java import find_java
from tidegate.machine import CACHE_VARIABLE, environment_without
from tidegate.testing.programs import tidegate

ONE_SPARK = """
import os
from pathlib import Path

import pyspark
from tidegate.engine.spark import open_spark

def tell(job, attempt):
    parent = Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\\0")
    return f"{Path(pyspark.__file__).parent} {parent[2]}".encode(), True

spark = open_spark(None, master="local[1]", app_name="prepared", debug=False)
print(spark.run_round(tell, b"", name="one", description="one").decode())
spark.stop()
"""


@pytest.fixture
def archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archives:
    """What the command made, in a cache of its own. It has nothing to do where `make test` has called it before."""
    environment = environment_without("SPARK_", "PYSPARK_", "TIDEGATE_", "JAVA_", keeping=[CACHE_VARIABLE, "JAVA_HOME"])
    done = subprocess.run(tidegate("prepare"), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = archives_of(find_java())
    assert f"{made.megabytes:.0f} MB in {made.spark.parent}" in done.stdout
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    own = archives_of(find_java())
    own.spark.parent.mkdir(parents=True)
    for name in ("spark", "launcher"):
        shutil.copyfile(getattr(made, name), getattr(own, name))
    return own


def classes_read(folder: Path) -> tuple[int, int]:
    """Start a Spark; return how many classes its two Javas read from archives that were made, and how many in all."""
    folder.mkdir()
    environment = environment_without("SPARK_", "PYSPARK_", "JAVA_", keeping=["JAVA_HOME"])
    environment["JAVA_TOOL_OPTIONS"] = f"-Xlog:class+load:file={folder}/%p"
    done = subprocess.run(
        [sys.executable, "-c", ONE_SPARK], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told = f"{pyspark_home()} tidegate.engine.worker_daemon\n"
    assert done.stdout == told, "an archive says nothing, whether it fits or not"
    lines = [line for path in folder.iterdir() if path.name.isdigit() for line in path.read_text().splitlines()]
    return sum("shared objects file (top)" in line for line in lines), len(lines)


@pytest.mark.timeout(600)
def test_a_prepared_spark_reads_its_classes_from_the_archive_and_a_damaged_one_does_no_harm(
    archives: Archives, tmp_path: Path
) -> None:
    read, every = classes_read(tmp_path / "whole")
    assert read > every / 2

    size = archives.spark.stat().st_size
    with archives.spark.open("r+b") as damaged:
        damaged.seek(size // 2)
        damaged.write(os.urandom(size // 4))
    read, every = classes_read(tmp_path / "damaged")
    assert read < every / 10, "the launcher's archive alone"
