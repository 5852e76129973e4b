"""Find a Java that Spark and Kafka can run on."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from tidegate.errors import JavaMissing
from tidegate.machine import java_home, said_of_java, spark_home

OLDEST = 17

# The first of these that a machine has is the one its owner installs with.
_INSTALL_LINES = {
    "apt-get": "sudo apt-get install openjdk-17-jre-headless",
    "dnf": "sudo dnf install java-21-openjdk-headless",
    "brew": "brew install --cask temurin@17",
}
_CHOSEN = re.compile(r"-XX:\+Use\w*GC\b|-Xm[xs]|(?i:driver.memory|conf_dir|--conf|--properties-file)")
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def find_java() -> Path:
    """Return the `java` to run: the one in JAVA_HOME where that is set, else the first on the PATH.

    JAVA_HOME decides alone where it is set, as it does for Spark: another Java would help only half of the run.
    """
    return _found()[0]


def describe_java() -> str:
    """Return the Java that would run, in words."""
    java, version = _found()
    return f"Java {version} ({java})"


def _found() -> tuple[Path, int]:
    home = java_home()
    if home is not None:
        return _checked(home / "bin" / "java", f"JAVA_HOME={home}")
    on_path = shutil.which("java")
    if on_path is None:
        raise JavaMissing(f"no Java was found (Java {OLDEST} or newer is needed)", f"install it: {install_line()}")
    return _checked(Path(on_path), on_path)


def install_line() -> str:
    """Return the line that installs Java on this machine."""
    for tool, line in _INSTALL_LINES.items():
        if shutil.which(tool) is not None:
            return line
    return f"any Java {OLDEST} or newer will do; set JAVA_HOME to its folder"


def small_options() -> list[str]:
    """Return options for the Java of a Spark on this machine, whose heap is as small as Spark makes it.

    It begins rounds and does little else. Java's own choice is a collector for large heaps: it takes 100 MB more, and
    takes them bit by bit for a quarter of an hour, as a leak would. Who says anything of Java's memory is not
    contradicted, and two collectors would end it at once.
    """
    if _CHOSEN.search(said_of_java()) or spark_home():
        return []
    return ["-XX:+UseSerialGC", "-Xms128m"]


def parse_version(printed: str) -> int | None:
    """Return the major version that `java -version` printed, None where it printed none."""
    match = _VERSION.search(printed)
    if match is None:
        return None
    first, second = match.groups()
    # Up to Java 8 the number that counts was the second one: 1.8.0.
    return int(second) if first == "1" and second is not None else int(first)


def _checked(java: Path, where: str) -> tuple[Path, int]:
    version = _version_of(java)
    if version is None:
        raise JavaMissing(f"{where} holds no Java that runs", f"mend or unset it, or install one: {install_line()}")
    if version < OLDEST:
        raise JavaMissing(
            f"{where} is Java {version}, and Java {OLDEST} or newer is needed",
            f"install one and let JAVA_HOME or the PATH name it: {install_line()}",
        )
    return java, version


def _version_of(java: Path) -> int | None:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(answer.stderr + answer.stdout) if answer.returncode == 0 else None
