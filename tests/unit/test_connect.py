"""What is known of Spark Connect before any server is called: refusals, and what is sent along."""

from __future__ import annotations

import importlib
import re
import sys
import zipfile
from pathlib import Path

import pytest
from pyspark.errors import PythonException
from typer.testing import CliRunner

from tidegate.cli import app
from tidegate.engine.shipping import own_files, own_paths, pack, tidegate_files
from tidegate.engine.spark import RoundBroken, RoundDied, open_spark
from tidegate.engine.spark_connect import told_apart
from tidegate.errors import SettingsError, SparkFailed


def opened(master: str) -> None:
    open_spark(None, master=master, app_name="unit", debug=False)


def test_a_token_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(SettingsError, match="SPARK_CONNECT_AUTHENTICATE_TOKEN") as refused:
        opened("sc://spark:443/;use_ssl=true;token=xyzzy")
    assert "xyzzy" not in str(refused.value)


@pytest.mark.parametrize("address", ["sc:///", "sc://host:15002/path"])
def test_what_is_no_address_of_a_server_is_refused(address: str) -> None:
    with pytest.raises(SettingsError, match="write sc://host:port"):
        opened(address)


def test_a_missing_package_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc_status", None)
    with pytest.raises(SettingsError, match=r"needs grpcio-status, .*'tidegate\[connect\]'"):
        opened("sc://spark:15002")


def test_a_server_in_the_environment_is_refused_beside_another_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://spark:15002")
    with pytest.raises(SettingsError, match=r"SPARK_REMOTE is set and master=local\[2\]"):
        opened("local[2]")


def packed(folder: Path) -> Path:
    return pack({**own_files(sys.modules, own_paths()), **tidegate_files()}, folder)


def test_tidegate_and_the_modules_that_the_program_imported_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_prices.py").write_text("PRICE = 1\n", encoding="utf-8")
    (tmp_path / "shop_unused.py").write_text("", encoding="utf-8")
    package = tmp_path / "shop_parts" / "deep"
    package.mkdir(parents=True)
    for place in (package.parent / "__init__.py", package / "__init__.py", package / "late.py"):
        place.write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("shop_prices", "shop_parts"):
        monkeypatch.setitem(sys.modules, name, importlib.import_module(name))

    sent = set(zipfile.ZipFile(packed(tmp_path)).namelist())

    assert {"shop_prices.py", "shop_parts/deep/late.py", "tidegate/engine/task.py"} <= sent
    assert "shop_unused.py" not in sent, "it was not imported"
    assert not {name for name in sent if name.startswith(("pytest/", "orjson/", "pydantic/"))}, "workers have their own"


def test_check_asks_for_the_packages_of_connect_and_not_for_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_MASTER", "sc://spark:15002")
    monkeypatch.setenv("TIDEGATE_BROKER_TIMEOUT", "100ms")
    monkeypatch.setenv("TIDEGATE_HISTORY", "off")
    said = CliRunner().invoke(app, ["check", "--bootstrap", "127.0.0.1:1"]).output
    assert re.search(r"^ok +spark: pyspark [\d.]+, for sc://spark:15002$", said, re.MULTILINE), said
    assert "java:" not in said


JAVA = "\n\nJVM stacktrace:\norg.apache.spark.api.python.PythonException\n\tat org.apache.spark.Some.method"
TRACE = "\n\n  An exception was thrown:\nTraceback (most recent call last):\n  File app.py, line 1\n"
ERRORS = [
    # what Spark's client raises                               what it means, in whose words
    (PythonException(f"{TRACE}ValueError: no good\n SQLSTATE: 38000{JAVA}"), RoundBroken, "ValueError: no good"),
    (PythonException(f"{TRACE}ModuleNotFoundError: No module named 'orjson'{JAVA}"), RoundBroken, "no module orjson"),
    (PythonException(f"{TRACE}OSError: StatusCode.UNAVAILABLE{JAVA}"), RoundBroken, "OSError: StatusCode.UNAVAILABLE"),
    (Exception(f"[OPERATION_CANCELED] Operation has been canceled. SQLSTATE: HY008{JAVA}"), RoundDied, "cancelled"),
    (Exception("[INVALID_HANDLE.SESSION_CHANGED] The handle 1 is invalid."), SparkFailed, "has lost this session"),
    (Exception("[NO_ACTIVE_SESSION] No active Spark session found."), SparkFailed, "has lost this session"),
    (Exception("<_MultiThreadedRendezvous: status = StatusCode.UNAVAILABLE>"), SparkFailed, "sc://x does not answer"),
    (Exception('java.io.IOException: Cannot run program "python9"'), RoundBroken, "no Python at python9"),
    (Exception("Job aborted: Lost task 0.0 in stage 1.0: Python worker exited"), RoundDied, "Python worker exited"),
]


@pytest.mark.parametrize(("error", "kind", "words"), ERRORS, ids=[words for _, _, words in ERRORS])
def test_errors_of_rounds_over_connect_are_told_apart(error: Exception, kind: type[Exception], words: str) -> None:
    cause = told_apart(error, "sc://x")
    assert type(cause) is kind
    assert words in str(cause)
    assert "JVM" not in str(cause)
