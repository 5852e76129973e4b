"""Runs on a secured broker: what the driver was given reaches the workers, and shows up nowhere else."""

from __future__ import annotations

import os
import subprocess
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidegate as tg
from tests.acceptance.program import Program, tidegate
from tests.secured import KEY_PASSWORD, PASSWORD, USER, Secured, secured_broker, unsecured_token
from tests.spark.conftest import Trail
from tests.support import wait_until
from tidegate.engine import marks as finding
from tidegate.kafka.admin import Admin
from tidegate.records import Partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

VARIABLE = "KAFKA_PASSWORD_OF_THIS_TEST"
RECORDS = [f"record {number}" for number in range(20)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture
def topic(secured: Secured) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    Admin(secured.plain, 20.0).create_topic(name)
    return name


def token_maker(subject: str) -> Callable[[str], tuple[str, float]]:
    """Make a callback that no module has a name for: it must travel as it is."""

    def make(config: str) -> tuple[str, float]:
        return unsecured_token(config, subject)

    return make


KINDS: dict[str, Callable[[Secured], tg.Kafka]] = {
    "scram": lambda it: it.scram(tg.secret(f"env:{VARIABLE}")),
    "tls": lambda it: it.tls(),
    "mutual tls": lambda it: it.mutual(tg.secret(lambda: KEY_PASSWORD)),
    "oauth": lambda it: it.oauth(token_maker("oscar")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_reads_and_commits_on_a_secured_broker(
    secured: Secured, spark: SparkSession, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv(VARIABLE, PASSWORD)  # Spark's workers have the environment of their JVM, which is older
    kafka, trail = KINDS[kind](secured), Trail(tmp_path / "trail")
    tg.produce(topic, RECORDS, kafka=kafka)

    def write(value: bytes) -> None:
        assert VARIABLE not in os.environ
        trail(value.decode())

    report = tg.from_kafka(topic, group=topic, kafka=kafka).sink(write).run(until="caught-up", spark=spark)

    assert report.failures == ()
    assert trail.values() == [repr(record) for record in RECORDS]
    assert [one.mark for one in tg.offsets(topic, kafka=kafka).partitions] == [len(RECORDS)]


def test_the_right_to_read_the_topic_and_the_group_is_enough(
    secured: Secured, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    secured.add_user("jana")
    secured.allow("jana", "TOPIC", topic, "READ")
    secured.allow("jana", "GROUP", topic, "READ")
    tg.produce(topic, RECORDS, kafka=secured.plain)
    trail = Trail(tmp_path / "trail")
    pipeline = tg.from_kafka(topic, group=topic, kafka=secured.scram(user="jana")).sink(trail)

    report = pipeline.run(until="caught-up", spark=spark)

    assert report.marks == {Partition(topic, 0): len(RECORDS)}
    assert trail.offsets() == list(range(len(RECORDS)))


@pytest.fixture
def soon_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that cannot be read end the run soon: nothing here will make them readable."""
    monkeypatch.setattr(finding, "UNREAD_SECONDS", 1.0)


def refused_run(kafka: tg.Kafka, topic: str, spark: SparkSession, trail: Trail) -> tg.BrokerRefused:
    with pytest.raises(tg.BrokerRefused) as caught:
        tg.from_kafka(topic, group=topic, kafka=kafka).sink(trail).run(until="caught-up", spark=spark)
    assert caught.value.exit_code == 1
    assert trail.lines() == []
    return caught.value


def test_a_topic_that_is_not_ours_to_see_stops_the_run_before_it_begins(
    secured: Secured, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    secured.add_user("gina")
    secured.allow("gina", "GROUP", topic, "READ")

    error = refused_run(secured.scram(user="gina"), topic, spark, Trail(tmp_path / "trail"))

    assert f"describing topic {topic}" in error.happened
    assert "ACL" in error.cure
    assert Admin(secured.plain).committed(topic) == {}


def test_dead_letters_that_may_not_be_written_hold_the_group_until_they_may(
    secured: Secured, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    def refuse(value: bytes) -> bytes:
        if value == b"bad":
            raise ValueError("no good")
        return value

    def pipeline(kafka: tg.Kafka, trail: Trail) -> tg.Pipeline:
        made = tg.from_kafka(topic, group=topic, kafka=kafka).map(refuse).sink(trail)
        return made.on_error(tg.dead_letter())

    trail = Trail(tmp_path / "trail")
    tg.produce(topic, ["one"], kafka=secured.plain)
    pipeline(secured.plain, trail).run(until="caught-up", spark=spark)  # makes the group's own topics
    secured.add_user("dora")
    secured.allow("dora", "GROUP", topic, "READ")
    for name, rights in ((topic, ("READ",)), (f"{topic}.redrive", ("READ", "DESCRIBE_CONFIGS"))):
        for right in rights:
            secured.allow("dora", "TOPIC", name, right)
    secured.allow("dora", "TOPIC", f"{topic}.dead", "DESCRIBE_CONFIGS")
    secured.allow("dora", "TOPIC", f"{topic}.dead", "DESCRIBE")
    tg.produce(topic, ["bad", "two"], kafka=secured.plain)
    dora = secured.scram(user="dora")

    report = pipeline(dora, trail).run(until="caught-up", spark=spark)

    assert report.exit_code == 3
    assert report.failure is not None
    assert (report.failure.error_type, report.failure.record_offset) == ("CopyRefused", 1)
    assert f"{topic}.dead" in report.failure.message
    assert report.marks[Partition(topic, 0)] == 1
    assert list(tg.dead_letters(topic, kafka=secured.plain)) == []

    secured.allow("dora", "TOPIC", f"{topic}.dead", "WRITE")
    report = pipeline(dora, trail).run(until="caught-up", spark=spark)

    assert (report.exit_code, report.dead) == (0, 1)
    assert [letter.origin_offset for letter in tg.dead_letters(topic, kafka=secured.plain)] == [1]
    assert sorted(set(trail.offsets())) == [0, 2]


def test_a_group_that_is_not_ours_to_join_stops_the_run_and_moves_nothing(
    secured: Secured, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    secured.add_user("hans")
    secured.allow("hans", "TOPIC", topic, "READ")
    secured.allow("hans", "GROUP", topic, "DESCRIBE")
    marks = stand_at(secured, topic, 3)

    error = refused_run(secured.scram(user="hans"), topic, spark, Trail(tmp_path / "trail"))

    assert f"joining group {topic}" in error.happened
    assert "ACL" in error.cure
    assert Admin(secured.plain).committed(topic) == marks


def test_transactions_that_are_not_ours_to_begin_stop_the_run_and_move_nothing(
    secured: Secured, spark: SparkSession, topic: str
) -> None:
    secured.add_user("tina")
    Admin(secured.plain, 20.0).create_topic(f"{topic}-out")
    for name in (topic, f"{topic}-out"):
        secured.allow("tina", "TOPIC", name, "READ", "WRITE", "DESCRIBE_CONFIGS")
    secured.allow("tina", "GROUP", topic, "READ")
    marks = stand_at(secured, topic, 3)
    pipeline = tg.from_kafka(topic, group=topic, kafka=secured.scram(user="tina"))

    with pytest.raises(tg.SparkFailed, match=r"transactions tidegate\..*ACL.*transactional ids"):
        pipeline.sink(tg.kafka(f"{topic}-out", exactly_once=True)).run(until="caught-up", spark=spark)

    assert Admin(secured.plain).committed(topic) == marks


@pytest.mark.usefixtures("soon_unread")
def test_records_that_are_not_ours_to_read_stop_the_run_and_move_nothing(
    secured: Secured, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    secured.add_user("ines")
    secured.allow("ines", "TOPIC", topic, "DESCRIBE")
    secured.allow("ines", "GROUP", topic, "READ")
    marks = stand_at(secured, topic, 3)

    error = refused_run(secured.scram(user="ines"), topic, spark, Trail(tmp_path / "trail"))

    assert f"{topic}[0]" in error.happened
    assert "may be read" in error.cure
    assert Admin(secured.plain).committed(topic) == marks


@pytest.mark.usefixtures("soon_unread")
def test_a_token_source_that_fails_in_the_workers_stops_the_run_and_moves_nothing(
    secured: Secured, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    driver = os.getpid()
    marks = stand_at(secured, topic, 3)

    def token_here_only(config: str) -> tuple[str, float]:
        if os.getpid() != driver:
            raise RuntimeError(PASSWORD)
        return unsecured_token(config)

    error = refused_run(secured.oauth(token_here_only), topic, spark, Trail(tmp_path / "trail"))

    assert "oauth_cb failed: RuntimeError" in error.happened
    assert PASSWORD not in str(error)
    assert Admin(secured.plain).committed(topic) == marks


def test_a_function_that_cannot_travel_is_refused_before_the_group_is_touched(
    secured: Secured, spark: SparkSession, topic: str
) -> None:
    lock = threading.Lock()

    def locked(config: str) -> tuple[str, float]:
        with lock:
            return unsecured_token(config)

    with pytest.raises(tg.SettingsError, match="cannot be sent to Spark's workers"):
        tg.from_kafka(topic, group=topic, kafka=secured.oauth(locked)).sink(print).run(spark=spark)

    assert Admin(secured.plain).committed(topic) == {}


def stand_at(secured: Secured, topic: str, mark: int) -> object:
    """Give the topic records and its group a mark."""
    tg.produce(topic, RECORDS, kafka=secured.plain)
    admin = Admin(secured.plain)
    admin.commit_for_empty_group(topic, {Partition(topic, 0): (mark, "")})
    return admin.committed(topic)


APP = """
import os, time
import tidegate as tg

kafka = tg.Kafka(os.environ["BOOTSTRAP"], {
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.password": tg.secret("file:" + os.environ["KEY_FILE"]),
})

def write(value):
    with open(os.environ["TRAIL"], "a") as trail:
        trail.write(value.decode() + "\\n")
    if value == b"last":
        raise ValueError(f"{kafka} and {kafka.settings}")
    while not os.path.exists(os.environ["GO_ON"]):
        time.sleep(0.05)

pipeline = tg.from_kafka(os.environ["TOPIC"], group=os.environ["TOPIC"], kafka=kafka).sink(write)
"""


@pytest.mark.parametrize("how", ["plain", "debug"])
def test_a_secret_is_in_no_output_no_report_no_command_line_and_no_environment(
    secured: Secured, topic: str, tmp_path: Path, how: str
) -> None:
    tg.produce(topic, ["first", "last"], kafka=secured.plain)
    app, key, trail, go_on = (tmp_path / name for name in ("app.py", "key", "trail", "go-on"))
    app.write_text(APP, encoding="utf-8")
    key.write_text(PASSWORD, encoding="utf-8")
    environment = {
        "BOOTSTRAP": secured.broker.address("SCRAM"),
        "KEY_FILE": str(key),
        "TRAIL": str(trail),
        "GO_ON": str(go_on),
        "TOPIC": topic,
        "TIDEGATE_CLIENT_SASL_USERNAME": USER,
    }
    debug = ["--debug"] if how == "debug" else []
    (tmp_path / "run").mkdir()
    program = Program(
        tidegate(*debug, "run", str(app), "--json", "--master", "local[1]"), tmp_path / "run", environment
    )
    try:
        wait_until(
            lambda: trail.exists() or not program.is_running, within=90, what=f"a record at work:\n{program.err}"
        )
        assert program.is_running, program.err
        processes = program.processes()
        shown = processes_as_shown(processes)
        go_on.touch()
        ended = program.wait(within=60)
    finally:
        program.kill_all()

    assert ended.code == 3, ended.err
    assert len(processes) >= 3, "the driver, Spark's Java and a Python worker"
    assert f"sasl.password=secret(file:{key})" in ended.out, "the failure shows the settings, masked"
    for text in (ended.out, ended.err, shown):
        assert len(text) > 100
        assert PASSWORD not in text


def processes_as_shown(processes: list[int]) -> str:
    """Return every command line of the machine, and the environment of these processes."""
    every = Path("/proc").glob("[0-9]*/cmdline")
    files = [*every, *(Path(f"/proc/{pid}/environ") for pid in processes)]
    listed = subprocess.run(["ps", "axww"], capture_output=True, text=True, check=True).stdout
    return listed + "".join(read(path) for path in files)


def read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
