"""Archives of the classes that Spark's Java loads: with them a Spark on this machine starts about a third sooner.

`tidegate prepare` makes them, once; runs use those that are there. Java itself leaves one alone that does not fit its
version, its jars or its options, or that is damaged: it then starts as it does without.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tidegate.errors import SparkFailed
from tidegate.machine import cache_folder, environment_without, said_of_java, spark_home, suggest

OF_SPARK = "SPARK_SUBMIT_OPTS"
OF_LAUNCHER = "SPARK_LAUNCHER_OPTS"
"""Spark starts two Javas one after the other: the second runs Spark, the first finds out how to start it."""
_LONGEST_SECONDS = 600.0
_SAID = re.compile(r"SharedArchiveFile|ArchiveClassesAtExit|-Xshare")
# One that does not fit is no reason to speak: what the launcher prints is read as a command.
_SILENT = "-Xlog:cds*=off"


@dataclass(frozen=True, slots=True)
class Archives:
    """Where the archives of one Java and one PySpark are, or would be."""

    spark: Path
    launcher: Path

    @property
    def are_there(self) -> bool:
        """Whether both have been made."""
        return self.spark.is_file() and self.launcher.is_file()

    @property
    def megabytes(self) -> float:
        """How much room they take."""
        return sum(path.stat().st_size for path in (self.spark, self.launcher)) / 1e6


def archives_of(java: Path) -> Archives:
    """Return where the archives of this Java and of the installed PySpark belong.

    Their names tell one environment from another, and what it had installed from what it has now.
    """
    home = pyspark_home()
    parts = [java.resolve(), *sorted((home / "jars").glob("*.jar"))]
    # Whole seconds: the layers of an image keep no more of a file's time.
    seen = "\n".join(f"{part} {part.stat().st_size} {int(part.stat().st_mtime)}" for part in parts)
    stem = f"{_digest(str(home))}-{_digest(seen)}"
    folder = cache_folder() / "java"
    return Archives(folder / f"spark-{stem}.jsa", folder / f"launcher-{stem}.jsa")


def pyspark_home() -> Path:
    """Return the folder of the installed PySpark, which has a whole Spark in it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise SparkFailed(
            f"PySpark is not installed for {sys.executable}", f"install it: {sys.executable} -m pip install pyspark"
        )
    return Path(spec.submodule_search_locations[0]).resolve()


def start_sooner(java: Path) -> list[str]:
    """Return the options with which Spark's Java reads its archive, and let the launcher read its own.

    Nothing is added where the environment names archives, or another Spark than the one that they were made of.
    """
    if _SAID.search(said_of_java()) or spark_home():
        return []
    found = archives_of(java)
    if not found.are_there:
        return []
    suggest(OF_LAUNCHER, " ".join(reading(found.launcher)))
    return reading(found.spark)


def reading(archive: Path) -> list[str]:
    """Return the options with which a Java reads an archive, where it fits and is whole."""
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-XX:+VerifySharedSpaces", _SILENT]


def make(java: Path) -> float:
    """Make the archives: one Spark does a job and leaves its classes behind, a second one proves that they serve.

    Return after how many seconds that second one had done its first job.
    """
    wanted = archives_of(java)
    folder = wanted.spark.parent
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        fresh = Archives(Path(made) / wanted.spark.name, Path(made) / wanted.launcher.name)
        _run_one(_writing(fresh.spark), _writing(fresh.launcher))
        if not fresh.are_there:
            raise SparkFailed("Java wrote no archive of its classes", _CURE)
        took = _run_one(reading(fresh.spark), reading(fresh.launcher))
        for stale in folder.glob(f"*-{_digest(str(pyspark_home()))}-*.jsa"):
            stale.unlink(missing_ok=True)
        for one, place in ((fresh.spark, wanted.spark), (fresh.launcher, wanted.launcher)):
            _keep(one, place)
    return took


_CURE = "runs start without it, as they do now; --debug shows Spark's own log"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _writing(archive: Path) -> list[str]:
    return [f"-XX:ArchiveClassesAtExit={archive}", _SILENT]


def _keep(fresh: Path, place: Path) -> None:
    """Put a file in its place, whole: one that a power cut leaves half written would be found by every start."""
    with fresh.open("rb") as written:
        os.fsync(written.fileno())
    fresh.replace(place)


def _run_one(of_spark: list[str], of_launcher: list[str]) -> float:
    """Run a Spark as runs do, until its Java has ended; return how many seconds its start took."""
    environment = environment_without() | {OF_SPARK: " ".join(of_spark), OF_LAUNCHER: " ".join(of_launcher)}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ONE_SPARK],
            env=environment,
            check=False,
            timeout=_LONGEST_SECONDS,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        raise SparkFailed(f"Spark had not started and ended within {_LONGEST_SECONDS:g} s", _CURE) from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"it ended with exit code {done.returncode}"])[-1]
        raise SparkFailed(f"Spark could not start: {last}", _CURE)
    return float(done.stdout.split()[-1])


# Rounds, and a DataFrame of the kinds that most pipelines read, write and reckon with.
_ONE_SPARK = """
import sys, tempfile, time
from pathlib import Path

from pyspark import SparkContext
from tidegate.engine.spark import open_spark

began = time.monotonic()
spark = open_spark(None, master="local[2]", app_name="tidegate-prepare", debug=False)
for _ in range(2):
    spark.run_round(lambda job, attempt: (job, True), b"", name="one", description="one round")
took = time.monotonic() - began
with tempfile.TemporaryDirectory() as folder:
    rows = spark.session.createDataFrame([(1, '{"id": 1}')], "number int, value string")
    rows = rows.selectExpr("number", "from_json(value, 'id long').id as id").groupBy("number").sum("id")
    rows.write.parquet(str(Path(folder) / "rows"))
    spark.session.read.parquet(str(Path(folder) / "rows")).collect()
java = SparkContext._gateway.proc
spark.stop()
java.stdin.close()
java.wait()
print(took)
sys.exit(java.returncode)
"""
