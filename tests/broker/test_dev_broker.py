"""The development broker: it is a real Kafka, keeps what it should, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support import is_alive, wait_until
from tidegate.dev import broker as development_broker
from tidegate.dev.broker import Broker
from tidegate.dev.jars import tools_classpath
from tidegate.errors import BrokerUnreachable, JavaMissing, SettingsError
from tidegate.java import find_java
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka

if TYPE_CHECKING:
    from collections.abc import Iterator

PARENT = """
import sys
from tidegate.dev.broker import Broker
broker = Broker().start()
print(broker.pid, broker.folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """A broker that the test may stop and kill as it likes."""
    with Broker() as running:
        yield running


def topics_of(broker: Broker) -> set[str]:
    client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    return set(client.list_topics(timeout=20).topics)


def create_topic(broker: Broker, name: str) -> None:
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    client.create_topics([NewTopic(name, 1, 1)])[name].result(20)


def test_it_answers_as_kafka_and_makes_no_topic_unasked(broker: Broker) -> None:
    create_topic(broker, "dev-broker-answers")
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    client.list_topics("dev-broker-nobody-made-this", timeout=20)
    topics = topics_of(broker)
    assert "dev-broker-answers" in topics
    assert "dev-broker-nobody-made-this" not in topics


def test_kafkas_own_tool_can_ask_it(broker: Broker) -> None:
    command = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    answer = subprocess.run(
        [find_java(), "-cp", tools_classpath(), command, "--bootstrap-server", broker.bootstrap, "--list"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr


def test_restart_and_kill_keep_port_and_topics(own_broker: Broker) -> None:
    create_topic(own_broker, "kept")
    address, first = own_broker.bootstrap, own_broker.pid
    own_broker.restart()
    assert "kept" in topics_of(own_broker)
    second = own_broker.pid
    own_broker.kill()
    assert not own_broker.is_running
    own_broker.start()
    assert "kept" in topics_of(own_broker)
    assert own_broker.bootstrap == address
    assert len({first, second, own_broker.pid}) == 3


def test_stop_leaves_no_process_and_no_folder() -> None:
    with Broker() as running:
        pid, folder = running.pid, running.folder
        assert pid is not None
        assert is_alive(pid)
    assert not is_alive(pid)
    assert not folder.exists()


def test_a_given_folder_keeps_its_topics_between_brokers(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka") as first:
        create_topic(first, "kept")
    with Broker(tmp_path / "kafka") as second:
        assert "kept" in topics_of(second)
    assert (tmp_path / "kafka").is_dir()


def test_kill_9_of_the_parent_leaves_no_java_and_no_folder() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid_text, _, folder_text = parent.stdout.readline().strip().partition(" ")
    pid, folder = int(pid_text), Path(folder_text)
    assert is_alive(pid)
    assert folder.is_dir()
    parent.kill()
    parent.communicate()
    wait_until(lambda: not is_alive(pid), within=30, what="the broker's java is gone")
    wait_until(lambda: not folder.exists(), within=10, what="the broker's folder is gone")


def test_a_java_that_dies_under_it_is_noticed(own_broker: Broker) -> None:
    assert own_broker.pid is not None
    os.kill(own_broker.pid, signal.SIGKILL)
    wait_until(lambda: not own_broker.is_running, within=10, what="the broker counts as ended")
    own_broker.start()
    assert topics_of(own_broker) == set()


def test_a_taken_port_is_said_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"port {port} is in use; stop what uses it, or choose another: --port"):
            Broker(port=port).start()


def test_afree_port_that_is_taken_meanwhile_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = development_broker.free_port
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        offered = iter([port])
        monkeypatch.setattr(
            development_broker, "free_port", lambda besides=(): next(offered, None) or choose(besides=besides)
        )
        with Broker() as running:
            assert next(offered, None) is None
            assert running.bootstrap != f"127.0.0.1:{port}"
            assert topics_of(running) == set()


def test_named_listeners_stand_beside_the_plain_one_and_keep_their_ports() -> None:
    with Broker(listeners={"OTHER": "PLAINTEXT"}) as running:
        before = (running.bootstrap, running.address("OTHER"))
        Admin(Kafka(running.address("OTHER")), 20.0).create_topic("seen-by-both")
        running.restart()

        assert before == (running.bootstrap, running.address("OTHER"))
        assert len(set(before)) == 2
        assert topics_of(running) == {"seen-by-both"}
        with pytest.raises(BrokerUnreachable, match="no listener THIRD"):
            running.address("THIRD")


def test_a_broker_that_cannot_start_shows_the_end_of_its_log() -> None:
    broker = Broker(settings={"num.io.threads": "none"})
    with pytest.raises(BrokerUnreachable, match=r"num\.io\.threads"):
        broker.start()
    assert not broker.is_running


def test_without_java_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing):
        Broker().start()
