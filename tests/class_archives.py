"""Java's classes as the tests' many short JVMs need them, read and checked once instead of at every start.

`python -m tests.class_archives` makes the archives; a run of tests uses those that are there. They make Java start in
half the time and change nothing else: Java leaves one alone that does not fit its own version or its jars.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tidegate.java import find_java

# Every program that is started has a JVM of its own, which lives for seconds: it should not compile for hours.
QUICK = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
GATEWAY = "SPARK_SUBMIT_OPTS"
LAUNCHER = "SPARK_LAUNCHER_OPTS"
"""Spark starts two JVMs one after the other: the second runs Spark, the first finds out how to start it."""
_LONGEST = 600.0


def spark_home() -> Path:
    """Return the folder of the installed Spark, by the one name that archives and programs know it by."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]).resolve()


def use() -> None:
    """Let every Spark that this process or one of its programs starts begin quickly."""
    os.environ["SPARK_HOME"] = str(spark_home())
    for variable, path in _archives().items():
        os.environ.setdefault(variable, " ".join(_reading(path) if path.is_file() else QUICK))


def make() -> None:
    """Make the archives of Spark, unless they are there: one Spark runs a job and leaves its classes behind."""
    wanted = _archives()
    if all(path.is_file() for path in wanted.values()):
        return
    folder = wanted[GATEWAY].parent
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        fresh = {variable: Path(made) / path.name for variable, path in wanted.items()}
        is_good = _run_once({variable: _writing(path) for variable, path in fresh.items()})
        is_good = is_good and all(path.is_file() for path in fresh.values())
        # One that is damaged would end every JVM that reads it.
        if not is_good or not _run_once({variable: _reading(path) for variable, path in fresh.items()}):
            sys.stderr.write("no archive of Java's classes could be made: the tests take some minutes longer\n")
            return
        for stale in folder.glob("*.jsa"):
            stale.unlink()
        for variable, path in fresh.items():
            path.rename(wanted[variable])


def _archives() -> dict[str, Path]:
    """Where the archives of this Java and this Spark are, or would be."""
    home = spark_home()
    version = subprocess.run([find_java(), "-version"], capture_output=True, text=True, check=True).stderr
    jars = [f"{jar.name} {jar.stat().st_size}" for jar in sorted((home / "jars").glob("*.jar"))]
    fits = hashlib.sha256("\n".join([version, str(home), *jars]).encode()).hexdigest()[:12]
    folder = Path(sys.prefix).resolve() / "class-archives"
    return {GATEWAY: folder / f"spark-{fits}.jsa", LAUNCHER: folder / f"spark-launcher-{fits}.jsa"}


# An archive that does not fit is no reason to speak: the launcher's output is read as a command.
_SILENT = "-Xlog:disable"


def _reading(path: Path) -> list[str]:
    return [*QUICK, f"-XX:SharedArchiveFile={path}", "-Xshare:auto", _SILENT]


def _writing(path: Path) -> list[str]:
    return [*QUICK, f"-XX:ArchiveClassesAtExit={path}", _SILENT]


def _run_once(options: dict[str, list[str]]) -> bool:
    """Run Spark as programs do until its Java has ended; return whether all went well."""
    words = {variable: " ".join(each) for variable, each in options.items()}
    environment = {**os.environ, **words, "SPARK_HOME": str(spark_home())}
    try:
        done = subprocess.run([sys.executable, "-c", _ONE_SPARK], env=environment, check=False, timeout=_LONGEST)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


_ONE_SPARK = """
import sys
from pyspark import SparkContext
from tidegate.engine.spark import open_spark

spark = open_spark(None, master="local[2]", app_name="classes", debug=False)
for _ in range(2):
    spark.run_round(lambda job, attempt: (job, True), b"", lane="one", description="one round")
spark.cancel("one")
spark.stop()
java = SparkContext._gateway.proc
java.stdin.close()
sys.exit(java.wait())
"""


if __name__ == "__main__":
    make()
