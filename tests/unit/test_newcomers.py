"""The mistakes of a first program: each is told in one sentence that says what happened, where, and what to do.

Those that need a broker or Spark to be made are in the acceptance and the Spark ring.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyspark
import pytest
from typer.testing import CliRunner

from tidegate.cli import app
from tidegate.engine import spark
from tidegate.engine.failure import places
from tidegate.engine.parts import pickle_plan
from tidegate.errors import JavaMissing, SettingsError, SparkFailed
from tidegate.pipeline import from_kafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEAD = "import tidegate as tg\n"
NOWHERE = "127.0.0.1:1"
GOOD = 'p = tg.from_kafka("orders", group="billing").sink(print)\n'


@dataclass(frozen=True)
class Mistake:
    what: str
    program: str | None
    """Below `import tidegate as tg`, so its first line is line 2; None: there is no app.py."""
    says: tuple[str, ...]
    words: tuple[str, ...] = ("run", "app.py")
    environment: dict[str, str] = field(default_factory=dict)
    code: int = 1
    file: str = ""
    """The content of tidegate.toml."""


JAVA = {"JAVA_HOME": "java"}
"""One that says what it should, and is never asked to do more."""


def made(what: str, line: str, *says: str) -> Mistake:
    """A mistake in the program's one line."""
    return Mistake(what, line + "\n", says)


PROGRAMS = [
    made("no group", 'p = tg.from_kafka("o", group=None)', "app.py line 2: from_kafka has no group", "name one"),
    made("an empty group", 'p = tg.from_kafka("o", group="")', "app.py line 2: from_kafka has no group"),
    made("a group of spaces", 'p = tg.from_kafka("o", group=" ")', "app.py line 2: group=' ' is no group's name"),
    made("a list as group", 'p = tg.from_kafka("o", group=["b"])', "line 2: group=['b'] is no group's name", "text"),
    made("the group is left out", 'p = tg.from_kafka("o")', "'group' (app.py line 2)", 'group="billing"'),
    made("the group by position", 'p = tg.from_kafka("o", "b")', "(app.py line 2)", 'group="billing"'),
    made("a number as topic", "p = tg.from_kafka(5, group='b')", "line 2: 5 is no topic's name", "text of letters"),
    made("no topic", "p = tg.from_kafka(None, group='b')", "line 2: from_kafka has no topic", "name one"),
    made("two topics in one text", "p = tg.from_kafka('a, b', group='b')", "'a, b' is no topic", "['a', 'b']"),
    made("a pattern as text", "p = tg.from_kafka('^a.*', group='b')", "is no topic's name", "re.compile(r'a.*')"),
    made("a port as address", "p = tg.from_kafka('o', group='b', kafka=9092)", "kafka=9092 is no address", "host"),
    made("a web address", "k = tg.Kafka('http://localhost')", "'http://localhost' is no address", "host:port"),
    made("a mistyped argument", "p = tg.from_kafka('o', group='b', strting='x')", "line 2", "did you mean 'starting'?"),
    made("a mistyped method", "p = tg.from_kafka('o', group='b').flatmap(print)", "did you mean 'flat_map'?"),
    made("a mistyped name", "p = tg.form_kafka('o', group='b')", "(app.py line 2)", "did you mean 'from_kafka'?"),
    made("a decoder that is called", "p = tg.from_kafka('o', group='b').map(tg.json())", ".map(tg.json)"),
    made("a step that is nothing", "p = tg.from_kafka('o', group='b').map(None)", "map(None) is not callable"),
    made("the answer of print as sink", "p = tg.from_kafka('o', group='b').sink(print)\nq = p.sink(None)", "line 3"),
    made("an object without write", "p = tg.from_kafka('o', group='b').sink(object())", "sink(object) is not callable"),
    made(
        "a class as sink",
        "class S:\n    def write(self, value): ...\np = tg.from_kafka('o', group='b').sink(S)",
        "app.py line 4: sink(S) is a class",
        "sink(S(...))",
    ),
    made("a step that is not called", "p = tg.from_kafka('o', group='b').on_error(tg.retry)", "call it: tg.retry(...)"),
    made("the end first", "p = tg.from_kafka('o', group='b').on_error(tg.skip(), tg.retry(1))", "line 2", "order"),
    made(
        "an async key",
        "async def f(v): ...\np = tg.from_kafka('o', group='b').sink(tg.kafka('x', key=f))",
        "app.py line 3: kafka(key=f) is an async def",
        "make it a plain function",
    ),
    made(
        "an async address",
        "async def f(v): ...\np = tg.from_kafka('o', group='b').sink(tg.http(f))",
        "app.py line 3: http: url=f is an async def",
    ),
    made(
        "a header's name with its colon",
        "p = tg.from_kafka('o', group='b').sink(tg.http('http://x', headers={'X-A:': 'b'}))",
        "app.py line 2: http(headers=...): 'X-A:' is no name of a header",
        "write it like",
    ),
    made(
        "a chain without a sink", "p = tg.from_kafka('o', group='b').map(print)", "no pipeline with a sink: p", ".sink("
    ),
    made("no pipeline", "", "app.py has no pipeline with a sink", "assign one to a name"),
    made("a pipeline in main", "if __name__ == '__main__':\n    ...", "no pipeline with a sink", "python app.py"),
    made("run() at the top", GOOD + "p.run()", "app.py line 3: run() is called while the program is loaded", "remove"),
    made(
        "two pipelines", GOOD + GOOD.replace("p =", "q =").replace("billing", "b"), "has 2 pipelines: p, q", "app.py:p"
    ),
    made("a syntax error", "p = (", "SyntaxError: '(' was never closed (app.py line 2)", "mend it there"),
    made("an indentation", "for i in []:\nprint(i)", "IndentationError", "(app.py line 3)"),
    made("a missing import", "import requestz", "No module named 'requestz' (app.py line 2)", "install the package"),
    made("a module beside it that fails", "import beside", "KeyError: 'x' (beside.py line 2)", "mend it there"),
    made("a client setting", "k = tg.Kafka('a:1', {'group.id': 'x'})", "app.py line 2", "pass group= to from_kafka"),
]

COMMANDS = [
    Mistake("a name that is not there", GOOD, ("no pipeline named 'q'", "are: p"), ("run", "app.py:q")),
    Mistake("a name of something else", GOOD, ("named 'tg', but a module", "are: p"), ("run", "app.py:tg")),
    Mistake("a name that is taken", None, ("queue.py would hide the module queue", "rename it"), ("run", "queue.py")),
    Mistake("no such file", GOOD, ("there is no program ap.py", "did you mean app.py?"), ("run", "ap.py")),
    Mistake("a folder", None, ("folder is a folder", "name the Python file in it"), ("run", "folder")),
    Mistake("no Python file", None, ("notes.txt is not a Python program", "ends in .py"), ("run", "notes.txt")),
    Mistake(
        "a setting as option", GOOD, ("'comit_every'", "'commit_every'?"), ("run", "app.py", "--set", "comit_every=1")
    ),
    Mistake("a setting in the environment", GOOD, ("TIDEGATE_LANS", "'lanes'?"), environment={"TIDEGATE_LANS": "1"}),
    Mistake("a setting in the file", GOOD, ("'lans' (tidegate.toml)", "did you mean 'lanes'?"), file="lans = 1"),
    Mistake("a file that is no TOML", GOOD, ("is not valid TOML", "line 1", "mend that line"), file="lanes 1"),
    Mistake("a value", GOOD, ("lanes='x' (tidegate.toml) cannot work", "docs/settings.md"), file='lanes = "x"'),
    Mistake(
        "a client setting",
        GOOD,
        ('No such configuration property: "sasl.usrname"', "did you mean sasl.username?"),
        ("run", "app.py", "-X", "sasl.usrname=x"),
    ),
    Mistake(
        "an old Java",
        None,
        ("is Java 8, and Java 17 or newer is needed", "JAVA_HOME"),
        ("broker",),
        {"JAVA_HOME": "old-java"},
    ),
    Mistake("no Java", None, ("no Java was found", "JAVA_HOME"), ("broker",), {"JAVA_HOME": "", "PATH": "/nowhere"}),
    Mistake("a JAVA_HOME without Java", None, ("holds no Java that runs",), ("broker",), {"JAVA_HOME": "/nowhere"}),
    Mistake("no folder", None, ("cannot hold", "--data FOLDER"), ("broker", "--data", "notes.txt/x"), JAVA),
    Mistake("no broker", None, (f"Kafka at {NOWHERE} does not answer", "tidegate broker"), ("topics", "list")),
    Mistake("a mistyped command", None, ("No such command 'rnu'", "'run'?"), ("rnu",), code=2),
    Mistake("a mistyped option", None, ("--bootstap", "--bootstrap"), ("lag", "--bootstap", "x"), code=2),
    Mistake("no program", None, ("Missing argument 'APP.py[:NAME]'",), ("run",), code=2),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder, in which a newcomer works; nothing of it is left in this process."""
    for name in os.environ:
        if name.startswith("TIDEGATE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TIDEGATE_BOOTSTRAP", NOWHERE)
    monkeypatch.setenv("TIDEGATE_BROKER_TIMEOUT", "300ms")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, version in (("old-java", "1.8.0_402"), ("java", "17.0.1")):
        java = tmp_path / name / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\necho 'java version \"{version}\"' >&2\n", encoding="utf-8")
        java.chmod(0o755)
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("", encoding="utf-8")
    (tmp_path / "queue.py").write_text("", encoding="utf-8")
    (tmp_path / "beside.py").write_text("def f():\n    return {}['x']\nf()\n", encoding="utf-8")
    yield tmp_path
    sys.modules.pop("tidegate_app_app", None)


@pytest.mark.parametrize("mistake", [*PROGRAMS, *COMMANDS], ids=lambda mistake: mistake.what)
def test_a_mistake_is_one_sentence(mistake: Mistake, folder: Path) -> None:
    if mistake.program is not None:
        (folder / "app.py").write_text(HEAD + mistake.program, encoding="utf-8")
    if mistake.file:
        (folder / "tidegate.toml").write_text(mistake.file, encoding="utf-8")

    ended = CliRunner().invoke(app, list(mistake.words), env=mistake.environment, prog_name="tidegate")

    assert ended.exit_code == mistake.code, ended.output
    assert ended.stdout == ""
    lines = ended.stderr.splitlines()
    sentence = lines[-1]
    assert mistake.code == 2 or (len(lines) == 1 and sentence.startswith("tidegate: ")), ended.stderr
    for part in mistake.says:
        assert part in sentence
    assert "Traceback" not in ended.stderr


EXTRAS = [
    # the program's line                                     the module     the extra
    ("p = tg.from_kafka('o', group='b').sink(tg.http('http://x'))", "httptools", "tidegate[http]"),
    (
        "p = tg.from_kafka('o', group='b').sink(tg.postgres('postgresql://x', table='t'))",
        "psycopg",
        "tidegate[postgres]",
    ),
    ("p = tg.from_kafka('o', group='b').map(tg.avro({'type': 'int'}))", "fastavro", "tidegate[avro]"),
]


@pytest.mark.parametrize(("line", "module", "extra"), EXTRAS, ids=lambda text: text[-18:])
def test_a_missing_extra_is_named_with_the_line_that_installs_it(
    line: str, module: str, extra: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [
        name for name in sys.modules if name.split(".")[0] == module or name.startswith("tidegate.formats.avro")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    (folder / "app.py").write_text(f"{HEAD}{line}\n", encoding="utf-8")

    ended = CliRunner().invoke(app, ["run", "app.py"])

    assert ended.exit_code == 1
    assert "app.py line 2: " in ended.stderr
    assert f"pip install '{extra}'" in ended.stderr


def test_fixtures_without_pytest_name_the_extra_and_all_else_needs_none() -> None:
    code = "import sys; sys.modules['pytest'] = None; import tidegate.testing; import tidegate.testing.fixtures"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    sentence = "SettingsError: the fixtures need pytest; install it: pip install 'tidegate[testing]'"
    assert ended.stderr.splitlines()[-1].endswith(sentence), ended.stderr


@pytest.mark.parametrize("words", [["serve"], ["run", "app.py", "--serve", "0"]], ids=["serve", "run --serve"])
def test_serving_without_its_packages(words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("tidegate.web.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    (folder / "app.py").write_text(HEAD + GOOD, encoding="utf-8")

    ended = CliRunner().invoke(app, words)

    assert ended.exit_code == 1
    assert "serving needs packages that are not installed (fastapi); install them: pip install 'tidegate[serve]'" in (
        ended.stderr
    )


def test_what_cannot_travel_is_named_with_its_line() -> None:
    lock = threading.Lock()

    def write(value: object) -> None:
        with lock:
            del value

    plan = from_kafka("orders", group="billing").sink(write).plan()
    with pytest.raises(
        SettingsError, match=r"sink\(.*write\) \(test_newcomers.py line \d+\) .*: its lock: cannot pickle"
    ):
        pickle_plan(plan)


@pytest.mark.parametrize("version", ["3.5.1", "4.0.2"])
def test_an_old_pyspark_is_refused_with_the_line_that_installs_another(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(
        SparkFailed, match=rf"PySpark {version} is installed, and 4\.1 or newer is needed; .*pip install"
    ):
        spark.checked_pyspark()


def test_a_missing_pyspark_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SparkFailed, match=r"PySpark is not installed for .*; install it: .*pip install 'pyspark>=4.1'"):
        spark.checked_pyspark()


def test_the_workers_python_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
    with pytest.raises(
        SettingsError, match="PYSPARK_PYTHON=/nowhere/python is no Python that runs; set PYSPARK_PYTHON"
    ):
        spark.open_spark(None, master="local[1]", app_name="never starts", debug=False)


def test_a_run_needs_java_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(JavaMissing, match="JAVA_HOME=/nowhere holds no Java that runs"):
        spark.open_spark(None, master="local[1]", app_name="never starts", debug=False)


def test_what_is_no_session_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"spark='local\[2\]' is no Spark session; pass SparkSession.builder"):
        spark.open_spark("local[2]", master="local[1]", app_name="x", debug=False)


def test_settings_that_are_no_mapping_are_refused() -> None:
    pipeline = from_kafka("orders", group="billing").sink(print)
    with pytest.raises(SettingsError, match=r"settings=\['lanes'\] is no mapping; write settings="):
        pipeline.run(settings=["lanes"])  # type: ignore[arg-type]  # the mistake


TRACE = """Traceback (most recent call last):
  File "/home/ann/shop/app.py", line 12, in to_invoice
    return tax(order)
  File "/home/ann/shop/prices.py", line 5, in tax
    return order["amount"]
  File "/home/ann/.venv/lib/python3.11/site-packages/lib/x.py", line 9, in get
    raise KeyError(name)
KeyError: 'amount'
"""


def test_only_the_users_own_lines_of_a_trace_are_told() -> None:
    assert places(TRACE) == " (app.py line 12 in to_invoice, prices.py line 5 in tax)"
    assert places(TRACE.replace("/home/ann/shop", "/x/site-packages/y")) == ""
    assert places("") == ""


@pytest.mark.parametrize(
    "folder", ["/usr/lib/python3.12/json", "/opt/x/dist-packages/y", "/v/lib/python3.13/site-packages"]
)
def test_pythons_own_lines_are_nobodys(folder: str) -> None:
    assert places(TRACE.replace("/home/ann/shop", folder)) == ""


def test_of_a_chain_of_errors_the_last_one_is_told() -> None:
    first = 'Traceback (most recent call last):\n  File "/a/early.py", line 1, in f\n    x\nValueError\n\n'
    assert places(f"{first}During handling of the above exception, another exception occurred:\n\n{TRACE}") == places(
        TRACE
    )
