"""What the environment says of this machine: folders, Java, Python, whether to show more. It steers no run."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

CACHE_VARIABLE = "TIDEGATE_CACHE"
DEBUG_VARIABLE = "TIDEGATE_DEBUG"


def cache_folder() -> Path:
    """Where downloaded parts (the development broker's jars) are kept between runs."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tidegate"


def state_folder() -> Path:
    """Where the history is kept, unless it is told otherwise."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "tidegate"


def debug_asked() -> bool:
    """Whether TIDEGATE_DEBUG asks for Java's own logs and stack traces."""
    return os.environ.get(DEBUG_VARIABLE, "") not in ("", "0", "false")


def ask_for_debug() -> None:
    """Show Java's own logs and stack traces from now on, in child processes too."""
    os.environ[DEBUG_VARIABLE] = "1"


def java_home() -> Path | None:
    """Return JAVA_HOME, where it is set."""
    home = os.environ.get("JAVA_HOME")
    return Path(home) if home else None


def spark_home() -> str | None:
    """Return SPARK_HOME, where it is set: PySpark starts that Spark instead of its own."""
    return os.environ.get("SPARK_HOME") or None


def spark_remote() -> str | None:
    """Return SPARK_REMOTE, where it is set: PySpark then makes sessions on that Connect server alone."""
    return os.environ.get("SPARK_REMOTE") or None


def said_of_java() -> str:
    """Return all that the environment says of Java's memory and options, by itself or for Spark."""
    names = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS")
    words = [os.environ.get(name, "") for name in names]
    # A folder of Spark's settings may say more: what it says is not looked up.
    return " ".join([*words, *(name for name in ("SPARK_DRIVER_MEMORY", "SPARK_CONF_DIR") if name in os.environ)])


def choose_worker_python(executable: str) -> str:
    """Make Spark's Python workers use this interpreter, unless PYSPARK_PYTHON says otherwise; return which they use.

    Without it they use `python3` from the PATH, which has none of this environment's packages.
    """
    os.environ.setdefault("PYSPARK_PYTHON", executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", executable)
    return os.environ["PYSPARK_PYTHON"]


def suggest(name: str, value: str) -> None:
    """Give a variable a value for this process and those that it starts, unless it has one."""
    os.environ.setdefault(name, value)


def is_submitted() -> bool:
    """Whether spark-submit started this program: then its master, and its settings, are those that count."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def environment_without(*prefixes: str, keeping: Iterable[str] = ()) -> dict[str, str]:
    """Return all variables but those whose names begin so: for programs that must not inherit settings."""
    kept = set(keeping)
    return {name: value for name, value in os.environ.items() if name in kept or not name.startswith(prefixes)}
