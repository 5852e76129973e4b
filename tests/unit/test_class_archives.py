from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from tidegate.class_archives import OF_LAUNCHER, OF_SPARK, Archives, archives_of, pyspark_home, start_sooner
from tidegate.cli import app

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java by name alone, an empty cache, and an environment that says nothing."""
    for name in (OF_SPARK, OF_LAUNCHER, "SPARK_HOME", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "cache"))
    named = tmp_path / "bin" / "java"
    named.parent.mkdir()
    named.write_bytes(b"one Java")
    os.utime(named, (1_000_000_000, 1_000_000_000))
    return named


def fill(found: Archives) -> Archives:
    found.spark.parent.mkdir(parents=True, exist_ok=True)
    for path in (found.spark, found.launcher):
        path.write_bytes(b"classes")
    return found


def test_archives_that_are_there_are_read_by_both_javas(java: Path) -> None:
    assert start_sooner(java) == []
    assert OF_LAUNCHER not in os.environ
    found = fill(archives_of(java))
    assert f"-XX:SharedArchiveFile={found.spark}" in start_sooner(java)
    assert f"-XX:SharedArchiveFile={found.launcher}" in os.environ.pop(OF_LAUNCHER)


SAID = [
    # variable            value                         because
    (OF_SPARK, "-XX:SharedArchiveFile=own.jsa", "somebody has an archive of their own"),
    ("JAVA_TOOL_OPTIONS", "-Xshare:off", "somebody wants none"),
    ("SPARK_HOME", "/opt/spark", "its jars are others"),
]


@pytest.mark.parametrize(("variable", "value", "because"), SAID)
def test_nothing_is_added_where_the_environment_says_something_else(
    java: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, because: str
) -> None:
    fill(archives_of(java))
    monkeypatch.setenv(variable, value)
    assert start_sooner(java) == [], because
    assert OF_LAUNCHER not in os.environ


def test_what_the_launcher_was_told_stays(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(archives_of(java))
    monkeypatch.setenv(OF_LAUNCHER, "-Xmx64m")
    assert start_sooner(java)
    assert os.environ[OF_LAUNCHER] == "-Xmx64m"


def test_an_updated_java_has_other_archives_and_a_part_of_a_second_makes_none(java: Path) -> None:
    before = archives_of(java)
    os.utime(java, ns=(1_000_000_000_500_000_000, 1_000_000_000_500_000_000))
    assert archives_of(java) == before, "the layers of an image keep whole seconds"
    java.write_bytes(b"another one")
    assert archives_of(java) != before


def test_another_spark_than_pyspark_s_own_is_not_prepared(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del java
    monkeypatch.setenv("SPARK_HOME", str(pyspark_home()))
    done = CliRunner().invoke(app, ["prepare"])
    assert done.exit_code == 1
    assert "unset SPARK_HOME" in done.stderr
