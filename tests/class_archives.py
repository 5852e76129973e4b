"""The many short Javas of the tests: they read archives of their classes, and do not compile for hours."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tidegate.class_archives import OF_LAUNCHER, OF_SPARK, archives_of, pyspark_home, reading
from tidegate.java import find_java

if TYPE_CHECKING:
    from pathlib import Path

VERIFIES = "-XX:+VerifySharedSpaces"
QUICK = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


def use() -> None:
    """Let every Spark that this process or one of its programs starts begin quickly."""
    # Archives and programs must know it by one name.
    os.environ["SPARK_HOME"] = str(pyspark_home())
    found = archives_of(find_java())
    for variable, path in ((OF_SPARK, found.spark), (OF_LAUNCHER, found.launcher)):
        os.environ.setdefault(variable, " ".join([*QUICK, *_reading(path)]))


def _reading(path: Path) -> list[str]:
    # Nothing damages an archive between two tests: reading all of it at each start to see that is left out.
    return [option for option in reading(path) if option != VERIFIES] if path.is_file() else []
