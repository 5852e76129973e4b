"""Fetch Apache Kafka once, by artifact name, with the Ivy that PySpark ships.

A set of jars is in the cache whole or not at all: it is fetched into a folder beside its place, checked, and renamed.
"""

from __future__ import annotations

import fcntl
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidegate.dev import guard
from tidegate.errors import TidegateError
from tidegate.java import find_java
from tidegate.machine import cache_folder

KAFKA_VERSION = "4.3.1"

Progress = Callable[[int, int], None]
"""Called with how many jars are here, and how many are known to be needed so far."""


class JarsMissing(TidegateError):
    """Apache Kafka's jars are not in the cache and could not be fetched."""


@dataclass(frozen=True)
class JarSet:
    """One artifact, with or without what it depends on, and its folder's name in the cache."""

    artifact: str
    folder: str
    whole: bool = True


BROKER = JarSet("kafka_2.13", f"kafka-{KAFKA_VERSION}")
# Everything that the consumer-groups tool depends on is among the broker's jars.
TOOLS = JarSet("kafka-tools", f"kafka-tools-{KAFKA_VERSION}", whole=False)


def broker_classpath(progress: Progress | None = None) -> str:
    """Return the classpath that runs a broker, fetching its jars where they are not cached."""
    # Kafka's artifact brings a logging interface and nothing behind it, so a broker would log nothing at all.
    # Spark's logging jars fit each other, and being first they win over Kafka's older interface.
    return ":".join([*map(str, _logging_jars()), f"{fetch(BROKER, progress)}/*"])


def tools_classpath(progress: Progress | None = None) -> str:
    """Return the classpath that runs Kafka's own command line tools."""
    return f"{fetch(TOOLS, progress)}/*:{broker_classpath(progress)}"


def fetch(jars: JarSet, progress: Progress | None = None) -> Path:
    """Return the folder that holds this set, fetching it first where it is not cached.

    Safe when several processes ask at once: one fetches, the others wait and find it there.
    """
    cache = cache_folder()
    place = cache / jars.folder
    if place.is_dir():
        return place
    java = find_java()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / "fetch.lock"):
            if not place.is_dir():
                _fetch_into_place(java, jars, place, progress or _silent)
    except OSError as error:
        raise JarsMissing(
            f"the cache folder {cache} cannot be used ({error})", "set TIDEGATE_CACHE to a folder that can be written"
        ) from error
    return place


def spark_jar(pattern: str) -> Path:
    """Return the one jar of the installed PySpark whose name matches."""
    # Found, not imported: importing PySpark takes seconds, and only the engine may.
    spec = importlib.util.find_spec("pyspark")
    folders = spec.submodule_search_locations if spec is not None else None
    found = [jar for folder in folders or [] for jar in sorted((Path(folder) / "jars").glob(pattern))]
    if not found:
        raise JarsMissing(f"PySpark's {pattern} was not found", "install PySpark with pip, which brings its jars")
    return found[0]


def _logging_jars() -> list[Path]:
    names = ("slf4j-api-2*.jar", "log4j-slf4j2-impl-*.jar", "log4j-api-2*.jar", "log4j-core-2*.jar")
    return [spark_jar(name) for name in names]


def _fetch_into_place(java: Path, jars: JarSet, place: Path, progress: Progress) -> None:
    for stale in place.parent.glob(f".{jars.folder}-*"):
        shutil.rmtree(stale, ignore_errors=True)  # we hold the lock, so whoever made it was killed
    fresh = Path(tempfile.mkdtemp(prefix=f".{jars.folder}-", dir=place.parent))
    try:
        printed = _run_ivy(_ivy_command(java, jars, fresh), progress)
        _check(jars, fresh, printed)
        fresh.chmod(0o755)
        fresh.rename(place)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _ivy_command(java: Path, jars: JarSet, folder: Path) -> list[str]:
    # Ivy's own folders stay inside ours; without this it uses and fills the user's ~/.ivy2.
    ivy = cache_folder() / "ivy"
    command = [str(java), f"-Divy.default.ivy.user.dir={ivy}", "-jar", str(spark_jar("ivy-*.jar"))]
    command += ["-cache", str(ivy / "cache"), "-dependency", "org.apache.kafka", jars.artifact, KAFKA_VERSION]
    if not jars.whole:
        command.append("-notransitive")
    return [*command, "-confs", "default", "-retrieve", f"{folder}/[artifact]-[revision].[ext]"]


def _run_ivy(command: list[str], progress: Progress) -> str:
    """Run Ivy, telling of each jar as it comes; return what it printed."""
    printed = []
    done = known = 0
    # Guarded: an Ivy that outlives us would write into its cache beside the next one's, without the lock.
    ivy = subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        for line in ivy.stdout or ():
            printed.append(line)
            found, came = line.strip().startswith("found "), "[SUCCESSFUL ]" in line
            if found or came:
                known, done = known + found, done + came
                progress(done, known)
        code = ivy.wait()
    finally:
        ivy.terminate()
        ivy.wait()
        for pipe in (ivy.stdin, ivy.stdout):
            if pipe is not None:
                pipe.close()
    if code != 0:
        raise JarsMissing(f"Apache Kafka {KAFKA_VERSION} could not be downloaded ({_why(printed)})", _CURE)
    return "".join(printed)


_CURE = "check the network and start again: what was already downloaded is kept"


def _why(printed: list[str]) -> str:
    """Return the line of Ivy's output that says most."""
    lines = [line.strip() for line in printed if line.strip()]
    for telling in ("Host ", "Server access", "download failed", ": not found", "Exception"):
        for line in lines:
            if telling in line:
                return line.strip(": ")
    return lines[-1] if lines else "Ivy said nothing"


def _check(jars: JarSet, folder: Path, printed: str) -> None:
    """Refuse a set that is not whole."""
    copied = re.search(r"(\d+) artifacts copied", printed)
    here = sorted(folder.glob("*.jar"))
    whole = copied is not None and int(copied.group(1)) == len(here)
    if not whole or not (folder / f"{jars.artifact}-{KAFKA_VERSION}.jar").is_file():
        raise JarsMissing(f"Apache Kafka {KAFKA_VERSION} was downloaded only in part", _CURE)
    for jar in here:
        if not zipfile.is_zipfile(jar):
            raise JarsMissing(f"the downloaded {jar.name} is not a jar", _CURE)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file; it falls with the process that holds it."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _silent(done: int, known: int) -> None:
    """Show nothing."""


def main() -> int:
    """Fetch what the tests need before they run: a download is no part of a test's time."""
    try:
        for jars in (BROKER, TOOLS):
            fetch(jars, _show)
    except TidegateError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def _show(done: int, known: int) -> None:
    # One line that changes in a terminal, one line at the end elsewhere.
    if sys.stderr.isatty() or done == known:
        sys.stderr.write(f"\rApache Kafka {KAFKA_VERSION}: {done} of {known} jars" + ("\n" if done == known else ""))


if __name__ == "__main__":
    sys.exit(main())
