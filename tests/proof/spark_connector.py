"""Spark's own Kafka connector, fetched by artifact name. Its newest release fits PySpark 4.2."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tidegate.dev.jars import spark_jar
from tidegate.java import find_java

PYSPARK = "4.2.*"
_ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),  # there is none of 4.2.0
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)


def fetch_connector(folder: Path) -> list[Path]:
    """Return the jars that a session needs to read from Kafka by itself."""
    for group, artifact, version in _ARTIFACTS:
        command = [
            str(find_java()),
            f"-Divy.default.ivy.user.dir={folder / 'ivy'}",
            "-jar",
            str(spark_jar("ivy-*.jar")),
        ]
        command += ["-cache", str(folder / "ivy" / "cache"), "-dependency", group, artifact, version, "-notransitive"]
        command += ["-confs", "default", "-retrieve", f"{folder}/jars/[artifact]-[revision].[ext]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    found = sorted((folder / "jars").glob("*.jar"))
    assert len(found) == len(_ARTIFACTS), found
    return found
