"""The command as a process: what it prints, where, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

import pytest

from tests.support import wait_until
from tidegate.dev import broker as development_broker
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.ops.produce import Message, produce
from tidegate.records import Partition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidegate.dev.broker import Broker

COMMAND = [sys.executable, "-m", "tidegate.cli"]
NOWHERE = "127.0.0.1:1"


class Shell:
    """Runs the command in a folder of its own, against the broker of the run."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")},
            "TIDEGATE_BOOTSTRAP": bootstrap,
            "TIDEGATE_BROKER_TIMEOUT": "5s",
        }
        if cache := os.environ.get("TIDEGATE_CACHE"):
            self.environment["TIDEGATE_CACHE"] = cache

    def run(self, *words: str, given: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *words],
            cwd=self.folder,
            env={**self.environment, **variables},
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def shown(self, *words: str, given: str = "") -> str:
        """Return what a command that must succeed has printed."""
        done = self.run(*words, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def start(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Let a command run beside the test; whatever happens there, it ends with it."""
        with subprocess.Popen(
            [*COMMAND, *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as running:
            try:
                yield running
            finally:
                running.kill()


@pytest.fixture
def shell(broker: Broker, tmp_path: Path) -> Shell:
    return Shell(broker.bootstrap, tmp_path)


@pytest.fixture
def kafka(broker: Broker) -> Kafka:
    return Kafka(broker.bootstrap)


@pytest.fixture
def topic(kafka: Kafka) -> str:
    name = f"cli-{uuid.uuid4().hex[:12]}"
    Admin(kafka).create_topic(name, partitions=2)
    return name


def output(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def assert_one_sentence(done: subprocess.CompletedProcess[str], pattern: str, code: int = 1) -> None:
    assert done.returncode == code
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert re.fullmatch(f"tidegate: {pattern}", lines[0]), lines[0]


# Errors: one sentence on stderr, with the next step.


def test_nobody_there(shell: Shell) -> None:
    done = shell.run("topics", "list", "--bootstrap", NOWHERE, TIDEGATE_BROKER_TIMEOUT="500ms")

    assert_one_sentence(done, r"Kafka at 127\.0\.0\.1:1 does not answer \(.*Connection refused\); check the address.*")


@pytest.mark.parametrize("words", [["tail"], ["produce"], ["topics", "show"], ["topics", "delete", "--yes"]])
def test_a_missing_topic(shell: Shell, topic: str, words: list[str]) -> None:
    done = shell.run(*words, f"{topic}x", given="value\n")

    expected = (
        rf"the topic {topic}x does not exist \(did you mean {topic}\?\); create it with: tidegate topics create .*"
    )
    assert_one_sentence(done, expected)


def test_an_unknown_setting(shell: Shell) -> None:
    done = shell.run("topics", "list", TIDEGATE_COMIT_EVERY="1s")

    assert_one_sentence(done, r"unknown setting TIDEGATE_COMIT_EVERY \(environment\); did you mean 'commit_every'\?")


def test_auto_commit_is_refused(shell: Shell, topic: str) -> None:
    done = shell.run("tail", topic, "-X", "enable.auto.commit=true")

    assert_one_sentence(done, r"enable\.auto\.commit=true cannot work: auto-commit moves .*; remove this setting")


def test_an_unknown_client_setting(shell: Shell) -> None:
    assert_one_sentence(shell.run("topics", "list", "-X", "foo=1"), r'.*No such configuration property: "foo"; mend .*')


def test_a_client_setting_without_a_value(shell: Shell) -> None:
    assert_one_sentence(shell.run("topics", "list", "-X", "foo"), r"--client 'foo' has no name or no value; write .*")


def test_a_topic_that_is_taken(shell: Shell, topic: str) -> None:
    assert_one_sentence(shell.run("topics", "create", topic), r"Kafka refused .*already exists; choose another name.*")


def test_a_group_that_nobody_used(shell: Shell, topic: str) -> None:
    assert_one_sentence(shell.run("offsets", f"{topic}-not"), rf"nobody has used the group {topic}-not; .*")


def test_a_place_that_is_none(shell: Shell, topic: str) -> None:
    assert_one_sentence(shell.run("tail", topic, "--from", "middle"), r"'middle' is no place to start from; write .*")


def test_debug_shows_the_trace_as_well(shell: Shell, topic: str) -> None:
    done = shell.run("--debug", "topics", "show", f"{topic}-not")

    assert done.returncode == 1
    assert "Traceback (most recent call last)" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("tidegate: the topic")


@pytest.mark.parametrize("words", [["nonsense"], ["tail"], ["topics", "create", "x", "--partitions", "0"], ["--what"]])
def test_wrong_usage_has_its_own_exit_code(shell: Shell, words: list[str]) -> None:
    done = shell.run(*words)

    assert done.returncode == 2
    assert done.stdout == ""
    assert "Error: " in done.stderr


# What it shows.


def test_the_version(shell: Shell) -> None:
    assert re.match(r"tidegate \d+\.\d+\.\d+\S*\nPython 3\.", shell.shown("--version"))


def test_topics_and_groups_are_completed_where_the_broker_answers(shell: Shell, kafka: Kafka, topic: str) -> None:
    group = f"{topic}-group"
    Admin(kafka).commit_for_empty_group(group, {Partition(topic, 0): (0, "")})

    def completed(line: str) -> list[str]:
        place = str(len(line.split(" ")) - 1)
        done = shell.run(_TIDEGATE_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=place)
        assert done.stderr == ""
        return done.stdout.split()

    assert completed(f"tidegate tail {topic[:-2]}") == [topic]
    assert completed(f"tidegate offsets {topic[:-2]}") == [group]
    assert completed("tidegate tail no-such-topic-") == []


def test_every_command_explains_itself(shell: Shell) -> None:
    listed = shell.shown("--help")
    for command in ("broker", "check", "offsets", "produce", "tail", "topics"):
        assert command in listed
        assert "Usage: tidegate " + command in shell.shown(command, "--help")


def test_topics_from_their_creation_to_their_end(shell: Shell) -> None:
    name = f"cli-{uuid.uuid4().hex[:12]}"
    created = shell.shown("topics", "create", name, "-p", "3", "-c", "cleanup.policy=compact")
    assert created == f"created {name} with 3 partitions\n"
    assert name in shell.shown("topics", "list")
    listed = json.loads(shell.shown("topics", "list", "--json"))
    assert [(info["partitions"], info["is_internal"]) for info in listed if info["name"] == name] == [(3, False)]

    refused = shell.run("topics", "delete", name, given="n\n")
    assert refused.returncode == 1
    assert name in shell.shown("topics", "list")

    assert f"deleted {name}" in shell.shown("topics", "delete", name, given="y\n")
    assert name not in shell.shown("topics", "list")


def test_a_topic_is_shown_with_the_ends_of_its_partitions(shell: Shell, topic: str, kafka: Kafka) -> None:
    produce(topic, [Message("x", partition=1)] * 4, kafka=kafka)
    shown = json.loads(shell.shown("topics", "show", topic, "--json"))

    assert shown["partitions"] == [
        {"partition": 0, "beginning": 0, "end_offset": 0},
        {"partition": 1, "beginning": 0, "end_offset": 4},
    ]
    rows = [line.split() for line in shell.shown("topics", "show", topic).splitlines()[1:]]
    assert rows == [["PARTITION", "BEGINNING", "END"], ["0", "0", "0"], ["1", "0", "4"]]


def test_values_are_produced_and_their_places_told(shell: Shell, topic: str) -> None:
    words = ["a", "b", "--key", "k", "--header", "x=1", "--header", "y=a=b", "--partition", "1"]
    assert shell.shown("produce", topic, *words) == f"{topic}[1]  offsets 0-1  2 delivered\n"
    records = [json.loads(line) for line in shell.shown("tail", topic, "--json").splitlines()]

    assert [(record["offset"], record["value"], record["key"]) for record in records] == [(0, "a", "k"), (1, "b", "k")]
    assert records[0]["headers"] == [["x", "1"], ["y", "a=b"]]
    assert records[0]["timestamp"].endswith("+00:00")


def test_lines_are_produced_with_their_keys(shell: Shell, topic: str) -> None:
    report = json.loads(shell.shown("produce", topic, "-K", ":", "--json", given="k1:v1\nk2:v:2\r\n"))
    records = [json.loads(line) for line in shell.shown("tail", topic, "--json").splitlines()]

    assert report["count"] == 2
    assert {(record["key"], record["value"]) for record in records} == {("k1", "v1"), ("k2", "v:2")}


def test_a_line_without_a_key_is_refused(shell: Shell, topic: str) -> None:
    assert_one_sentence(shell.run("produce", topic, "-K", ":", given="no key\n"), r"'no key' has no key: .*")


def test_a_null_is_produced(shell: Shell, topic: str) -> None:
    shell.shown("produce", topic, "--null", "--key", "gone")

    assert "key=gone  null" in shell.shown("tail", topic)


def test_a_paced_production_repeats_its_values_up_to_the_count(shell: Shell, topic: str) -> None:
    done = shell.run("produce", topic, "tick", "tock", "--every", "50ms", "--count", "3", "--partition", "0")

    assert done.returncode == 0
    assert [line.split()[-1] for line in done.stderr.splitlines()] == ["0", "1", "2"], "each is told of as it arrives"
    values = [json.loads(line)["value"] for line in shell.shown("tail", topic, "--json").splitlines()]
    assert values == ["tick", "tock", "tick"]


def test_a_record_that_is_too_large_is_reported_beside_what_arrived(shell: Shell, topic: str) -> None:
    done = shell.run("produce", topic, "--partition", "0", given="fits\n" + "x" * 2_000_000 + "\n")

    assert done.returncode == 1
    assert done.stdout == f"{topic}[0]  offset 0  1 delivered\n"
    assert re.match(r"tidegate: 1 of 2 records were not delivered .* too large; send less", done.stderr)


def test_bytes_and_control_characters_cannot_disturb_a_terminal(shell: Shell, topic: str, kafka: Kafka) -> None:
    value = b"\x1b[31mred\x07\r\n\t\xff\xe2\x80\xae" + "é😀".encode()
    produce(topic, [Message(value, key=b"\x00k", headers={"h\x1b": b"\x9b"}, partition=0)], kafka=kafka)
    shown = shell.shown("tail", topic)

    assert shown.endswith("key=\\x00k  headers: h\\x1b=\\x9b  \\x1b[31mred\\x07\\r\\n\\t\\xff\\u202eé😀\n")
    assert json.loads(shell.shown("tail", topic, "--json"))["value"].keys() == {"base64"}


def test_tail_starts_where_it_is_told(shell: Shell, topic: str, kafka: Kafka) -> None:
    produce(topic, [Message(str(number), partition=0) for number in range(5)], kafka=kafka)

    def seen(*words: str) -> list[int]:
        return [json.loads(line)["offset"] for line in shell.shown("tail", topic, "--json", *words).splitlines()]

    assert seen("--from", "-2") == [3, 4]
    assert seen("--from", "3", "--partition", "0") == [3, 4]
    assert seen("--from", "end") == []
    assert seen("--partition", "1") == []


def test_following_prints_what_comes_and_ends_on_ctrl_c_without_a_trace(shell: Shell, topic: str, kafka: Kafka) -> None:
    produce(topic, ["first"], kafka=kafka)
    with shell.start("tail", topic, "--follow") as following:
        assert output(following).readline().endswith("first\n")
        produce(topic, ["second"], kafka=kafka)
        assert output(following).readline().endswith("second\n")
        following.send_signal(signal.SIGINT)
        rest, errors = following.communicate(timeout=30)

    assert (following.returncode, rest, errors) == (130, "", "")


def test_offsets_of_a_group(shell: Shell, topic: str, kafka: Kafka) -> None:
    produce(topic, [Message("x", partition=0)] * 5, kafka=kafka)
    Admin(kafka).commit_for_empty_group(topic, {Partition(topic, 0): (2, "note")})
    first, _, row = shell.shown("offsets", topic).splitlines()

    assert first == f"{topic}  empty  0 members  lag 3"
    assert row.split() == [topic, "0", "2", "0", "5", "3", "0", "-", "note"]
    assert json.loads(shell.shown("offsets", topic, "--json"))["partitions"][0]["mark"] == 2


def test_check_names_every_setting_with_its_source_and_finds_the_broker(shell: Shell) -> None:
    (shell.folder / "tidegate.toml").write_text("lanes = 2", encoding="utf-8")
    shown = shell.shown("check")

    assert re.search(r"^ok +setting bootstrap: 127\.0\.0\.1:\d+ \(TIDEGATE_BOOTSTRAP\)$", shown, re.MULTILINE)
    assert re.search(r"^ok +setting lanes: 2 \(tidegate\.toml\)$", shown, re.MULTILINE)
    assert re.search(r"^ok +setting commit_every: 5 \(default\)$", shown, re.MULTILINE)
    for what in ("java", "spark: pyspark", "broker: 127.0.0.1"):
        assert re.search(rf"^ok +{what}", shown, re.MULTILINE), what


def test_check_fails_with_a_word_and_an_exit_code(shell: Shell) -> None:
    done = shell.run("check", "--bootstrap", NOWHERE, TIDEGATE_BROKER_TIMEOUT="500ms")

    assert done.returncode == 1
    assert re.search(r"^failed +broker: Kafka at 127\.0\.0\.1:1 does not answer", done.stdout, re.MULTILINE)

    findings = json.loads(shell.run("check", "--json", TIDEGATE_LANES="0").stdout)
    assert [finding["what"] for finding in findings if not finding["ok"]] == ["settings", "broker"]


def test_check_looks_at_the_topics_of_a_program(shell: Shell, topic: str) -> None:
    program = f"""
import tidegate as tg
invoices = tg.from_kafka(["{topic}", "{topic}-not"], group="billing").sink(print)
"""
    (shell.folder / "app.py").write_text(program, encoding="utf-8")
    done = shell.run("check", "app.py")

    assert done.returncode == 1
    assert re.search(r"^ok +program: app\.py, group billing$", done.stdout, re.MULTILINE)
    assert re.search(rf"^ok +topic {topic}: 2 partitions$", done.stdout, re.MULTILINE)
    assert re.search(
        rf"^failed +topic {topic}-not: the topic .* does not exist.*; create it", done.stdout, re.MULTILINE
    )

    missing = shell.run("check", "nowhere.py")
    assert missing.returncode == 1
    assert re.search(r"^failed +program: there is no program nowhere\.py; name a", missing.stdout, re.MULTILINE)


def test_the_broker_command_runs_a_broker_that_keeps_its_topics(shell: Shell, tmp_path: Path) -> None:
    port, data = str(development_broker.free_port()), str(tmp_path / "kept")
    kafka = Kafka(f"127.0.0.1:{port}")
    for stop, create in ((signal.SIGINT, True), (signal.SIGTERM, False)):
        with shell.start("broker", "--port", port, "--data", data) as running:
            assert output(running).readline().startswith(f"Kafka runs at 127.0.0.1:{port}")
            admin = Admin(kafka)
            if create:
                admin.create_topic("kept")
            assert [info.name for info in admin.topics()] == ["kept"]
            running.send_signal(stop)
            rest, errors = running.communicate(timeout=60)
        assert (running.returncode, rest, errors) == (0, "stopped\n", "")


def test_fresh_forgets_a_brokers_data_and_nothing_else(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
    done = shell.run("broker", "--port", str(development_broker.free_port()), "--data", str(tmp_path), "--fresh")

    assert_one_sentence(done, r".* holds something that is not a broker's; choose another folder for --data")
    assert (tmp_path / "thesis.txt").read_text(encoding="utf-8") == "years of work"


def test_output_into_a_closed_pipe_ends_quietly(shell: Shell, topic: str, kafka: Kafka) -> None:
    produce(topic, (f"{number:0>1000}" for number in range(2_000)), kafka=kafka)
    with shell.start("tail", topic) as running:
        output(running).readline()
        output(running).close()
        assert running.stderr is not None
        wait_until(lambda: running.poll() is not None, within=30, what="the command has ended")
        assert running.stderr.read() == ""
