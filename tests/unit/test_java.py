from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidegate.errors import JavaMissing
from tidegate.java import find_java, install_line, parse_version, small_options

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = [
    # printed                                                   major  because
    ('openjdk version "17.0.15" 2025-04-15', 17, "the usual form"),
    ('openjdk version "21" 2023-09-19', 21, "a first release has one number"),
    ('java version "1.8.0_402"', 8, "up to 8 the second number counts"),
    ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25.0.1"', 25, "other lines may come before"),
    ("The operation couldn't be completed. Unable to locate a Java Runtime.", None, "a stub is no Java"),
]


@pytest.mark.parametrize(("printed", "major", "because"), VERSIONS)
def test_the_major_version_is_read_from_what_java_prints(printed: str, major: int | None, because: str) -> None:
    assert parse_version(printed) == major, because


def write_java(folder: Path, version: str, code: int = 0) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\nexit {code}\n", encoding="utf-8")
    java.chmod(0o755)
    return java


def test_java_home_wins_over_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = write_java(tmp_path / "home", "17.0.1")
    other = write_java(tmp_path / "path", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(other.parent))
    assert find_java() == chosen


def test_without_java_home_the_path_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = write_java(tmp_path, "17.0.1")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(java.parent))
    assert find_java() == java


def test_a_missing_java_is_said_with_the_line_that_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text("#!/bin/sh\n", encoding="utf-8")
    apt.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match="apt-get install openjdk-17-jre-headless"):
        find_java()


def test_where_no_installer_is_known_the_cure_names_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "JAVA_HOME" in install_line()


def test_an_old_java_is_refused_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match="is Java 11, and Java 17 or newer is needed"):
        find_java()


def test_a_java_home_without_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match=f"JAVA_HOME={tmp_path} holds no Java that runs"):
        find_java()


def test_a_java_that_fails_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_java(tmp_path, "17.0.1", code=1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match="holds no Java that runs"):
        find_java()


SAID = [
    # variable              value                               is_small because
    ("JAVA_TOOL_OPTIONS", "-Dfile.encoding=UTF-8", True, "that says nothing of memory"),
    ("JAVA_TOOL_OPTIONS", "-XX:+UseZGC", False, "two collectors would end Java at its start"),
    ("JDK_JAVA_OPTIONS", "-Xmx4g", False, "a large heap wants another collector"),
    ("SPARK_SUBMIT_OPTS", "-XX:+UseG1GC -Xshare:auto", False, "Spark passes these on"),
    ("PYSPARK_SUBMIT_ARGS", "--driver-memory 8g pyspark-shell", False, "the heap is as large as that"),
    ("SPARK_DRIVER_MEMORY", "8g", False, "the same, said otherwise"),
    ("SPARK_CONF_DIR", "/etc/spark", False, "its files may say so"),
    ("SPARK_HOME", "/opt/spark", False, "so may this one's"),
]


@pytest.mark.parametrize(("variable", "value", "is_small", "because"), SAID, ids=[row[3] for row in SAID])
def test_java_is_kept_small_unless_somebody_chose(
    variable: str, value: str, is_small: bool, because: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in {row[0] for row in SAID}:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    assert (small_options() == ["-XX:+UseSerialGC", "-Xms128m"]) is is_small, because
