"""What cannot work ends with its exit code and one sentence that names the cure; no offset moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.acceptance.conftest import Scene, evenly
from tests.acceptance.program import Ended, tidegate

HEAD = "import os\nimport tidegate as tg\nTOPIC, GROUP = os.environ['TOPIC'], os.environ['GROUP']\n"
GOOD = HEAD + "p = tg.from_kafka(TOPIC, group=GROUP).sink(print)\n"
UNREACHABLE = "127.0.0.1:1"


@dataclass(frozen=True)
class Case:
    because: str
    program: str
    says: tuple[str, ...]
    """Parts of the sentence: what happened, and the cure."""
    words: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    code: int = 1
    topic: str | None = None


NO_SPARK_NEEDED = [
    Case(
        "a pattern that matches nothing",
        HEAD + "import re\np = tg.from_kafka(re.compile('no-such-.*'), group=GROUP).sink(print)\n",
        ("no topic matches the pattern no-such-.*", "the whole name must match"),
    ),
    Case(
        "a partition that does not exist",
        HEAD + "p = tg.from_kafka(tg.at({TOPIC: {7: 0}}), group=GROUP).sink(print)\n",
        ("[7] does not exist: the topic has 2 partitions", "choose a partition from 0 to 1"),
    ),
    Case("no pipeline", "import tidegate\n", ("app.py has no pipeline with a sink", "assign one to a name")),
    Case(
        "no sink",
        HEAD + "p = tg.from_kafka(TOPIC, group=GROUP)\n",
        ("app.py has no pipeline with a sink: p would do nothing", "end it with .sink(a_function)"),
    ),
    Case(
        "two pipelines",
        HEAD + "a = tg.from_kafka(TOPIC, group=GROUP).sink(print)\nb = tg.from_kafka(TOPIC, group='b').sink(print)\n",
        ("has 2 pipelines: a, b", "choose one: tidegate run", "app.py:a"),
    ),
    Case(
        "an error while it is loaded",
        HEAD + "int('x')\n",
        ("app.py failed while it was loaded: ValueError: invalid literal", "app.py line 4", "mend it there"),
    ),
    Case("a syntax error", "p = (\n", ("app.py failed while it was loaded: SyntaxError", "mend it there")),
    Case(
        "an import that is missing",
        "import no_such_module\n",
        ("No module named 'no_such_module'", "app.py line 1", "mend it there"),
    ),
    Case("sys.exit while it is loaded", "raise SystemExit('enough')\n", ("app.py", "enough", "mend it there")),
    Case(
        "no such topic",
        GOOD,
        ("the topic no-such-topic does not exist", "create it with: tidegate topics create no-such-topic"),
        topic="no-such-topic",
    ),
    Case(
        "nobody listens",
        GOOD,
        (f"Kafka at {UNREACHABLE} does not answer", "check the address"),
        ("--set", "broker_timeout=2s", "--bootstrap", UNREACHABLE),
    ),
    Case(
        "an unknown setting as an option",
        GOOD,
        ("unknown setting 'comit_every'", "did you mean 'commit_every'?"),
        ("--set", "comit_every=1s"),
    ),
    Case(
        "an unknown setting in the environment",
        GOOD,
        ("unknown setting TIDEGATE_COMIT_EVERY (environment)", "did you mean 'commit_every'?"),
        environment={"TIDEGATE_COMIT_EVERY": "1s"},
    ),
    Case(
        "a value that no setting takes",
        GOOD,
        ("setting commit_every='soon' (argument) cannot work", "is not a duration", "docs/settings.md"),
        ("--set", "commit_every=soon"),
    ),
    Case(
        "a round longer than the stop budget",
        GOOD,
        ("a round may last commit_every + timeout = 21s", "set stop_budget to at least 26s"),
        ("--set", "stop_budget=5s"),
    ),
    Case(
        "auto-commit",
        HEAD + "k = tg.Kafka('x:1', {'enable.auto.commit': True})\n",
        ("enable.auto.commit=True cannot work: auto-commit moves the group past records", "remove this setting"),
    ),
    Case(
        "a function that cannot travel",
        HEAD
        + "import threading\nlock = threading.Lock()\n"
        + "def write(value):\n    with lock:\n        print(value)\n"
        + "p = tg.from_kafka(TOPIC, group=GROUP).sink(write)\n",
        ("sink(write) (app.py line 6) cannot be sent to Spark's workers: its lock: cannot pickle", "tg.resource(make)"),
    ),
    Case(
        "two addresses",
        HEAD + "p = tg.from_kafka(TOPIC, group=GROUP, kafka='other:9092').sink(print)\n",
        ("the program's own kafka=other:9092 and", "exclude each other; remove one of the two"),
    ),
    Case(
        "a master that Spark does not know",
        GOOD,
        ("master='somewhere' is no Spark master", "use local[N]"),
        ("--master", "somewhere"),
    ),
    Case("an unknown end", GOOD, ("--until later is unknown", "stopped or caught-up"), ("--until", "later"), code=2),
    Case("a setting without a value", GOOD, ("--set 'lanes' has no name or no value",), ("--set", "lanes")),
]

SPARK_NEEDED = [
    Case(
        "more lanes than slots",
        GOOD,
        ("lanes=3, but Spark runs 2 tasks at a time", "set lanes to at most 2"),
        ("--set", "lanes=3"),
    ),
    Case(
        "no commit to start from",
        HEAD + "p = tg.from_kafka(TOPIC, group=GROUP, starting='none').sink(print)\n",
        ("has no commit for", "starting is 'none'", 'choose starting="earliest" or "latest"'),
    ),
    Case(
        "an offset that is not in the log",
        HEAD + "p = tg.from_kafka(tg.at({TOPIC: {1: 6}}), group=GROUP).sink(print)\n",
        ("[1] cannot start at 6: its log goes from 0 to 5", "choose an offset in between"),
    ),
    Case(
        "speculation",
        GOOD
        + "from pyspark.sql import SparkSession\n"
        + "builder = SparkSession.builder.master('local[2]').config('spark.ui.enabled', 'false')\n"
        + "spark = builder.config('spark.speculation', 'true').getOrCreate()\n",
        ("spark.speculation=true would run records twice at a time", "switch it off in the Spark session"),
    ),
]


@pytest.fixture(scope="module")
def filled(module_scene: Scene) -> Scene:
    module_scene.fill(2, evenly(10, 2))
    return module_scene


@pytest.mark.parametrize("case", NO_SPARK_NEEDED, ids=lambda case: case.because)
def test_what_cannot_work_is_one_sentence_with_its_cure(case: Case, filled: Scene, tmp_path: Path) -> None:
    ended = run_case(case, filled, tmp_path)

    assert ended.err.count("\n") == 1, "Spark was not needed to know it, so there is nothing else to say"


@pytest.mark.parametrize("case", SPARK_NEEDED, ids=lambda case: case.because)
def test_what_only_spark_can_tell_is_one_sentence_too(case: Case, filled: Scene, tmp_path: Path) -> None:
    run_case(case, filled, tmp_path)


def test_a_coroutine_that_nobody_would_await_ends_the_run_before_a_loss(filled: Scene, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    lines = "async def write(value): ...\np = tg.from_kafka(TOPIC, group=GROUP).sink(lambda value: write(value))\n"
    app.write_text(HEAD + lines, encoding="utf-8")
    group = f"{filled.group}-coroutine"
    ended = filled.start(app, GROUP=group).wait(within=90)

    assert ended.code == 1, ended.err
    last = ended.err.splitlines()[-1]
    assert "returned the coroutine write, which would never be awaited; pass the async function itself" in last
    marks = filled.admin.committed(group, filled.admin.describe([filled.topic])[filled.topic].each_partition())
    assert {one.mark for one in marks.values()} == {0}, "nothing was settled"


def test_a_program_that_is_not_there(filled: Scene) -> None:
    ended = filled.start_command(tidegate("run", "nowhere.py", "--bootstrap", filled.bootstrap)).wait(within=60)

    check_sentence(ended, 1, ("there is no program nowhere.py", "name a Python file"))


def test_a_program_is_needed(filled: Scene) -> None:
    ended = filled.start_command(tidegate("run")).wait(within=60)

    assert ended.code == 2
    assert "Missing argument 'APP.py[:NAME]'" in ended.err


def run_case(case: Case, scene: Scene, folder: Path) -> Ended:
    """Run the case under a group of its own and check how it ended."""
    app = folder / "app.py"
    app.write_text(case.program, encoding="utf-8")
    group = f"{scene.group}-{case.because.replace(' ', '-')}"
    own = {"GROUP": group, "TOPIC": case.topic or scene.topic}
    ended = scene.start(app, *case.words, **own, **case.environment).wait(within=90)

    check_sentence(ended, case.code, case.says)
    assert scene.admin.committed(group) == {}, "an offset was stored by a run that could not work"
    assert group not in scene.admin.groups()
    return ended


def check_sentence(ended: Ended, code: int, says: tuple[str, ...]) -> None:
    assert ended.code == code, ended.err
    assert ended.out == ""
    sentences = [line for line in ended.err.splitlines() if line.startswith("tidegate: ")]
    assert len(sentences) == 1, ended.err
    for part in says:
        assert part in sentences[0]
    for noise in ("Traceback", "\tat ", "Py4JJavaError", "Exception in thread"):
        assert noise not in ended.err
