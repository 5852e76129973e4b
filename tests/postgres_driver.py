"""PostgreSQL's driver for Java, fetched once by artifact name: what Spark needs to write to it by JDBC."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from tidegate.dev.jars import spark_jar
from tidegate.java import find_java
from tidegate.machine import cache_folder

NAME = "postgresql"
VERSION = "42.7.8"


def fetch() -> Path:
    """Return the jar, fetching it (1 MB) where it is not cached: whole or not at all."""
    cache = cache_folder()
    place = cache / f"{NAME}-{VERSION}.jar"
    if place.is_file():
        return place
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=f".{NAME}-") as folder:
        command = [str(find_java()), f"-Divy.default.ivy.user.dir={folder}", "-jar", str(spark_jar("ivy-*.jar"))]
        command += ["-cache", f"{folder}/cache", "-dependency", "org.postgresql", NAME, VERSION, "-notransitive"]
        command += ["-confs", "default", "-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        (Path(folder) / place.name).rename(place)
    return place


if __name__ == "__main__":
    fetch()
