"""The one broker, schema registry, Spark cluster of a run, and the log of each beside every failure that used it."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
from typing import TYPE_CHECKING

import pytest

from tests import class_archives
from tests.connect_server import ConnectServer
from tests.postgres_server import Server
from tests.registry_server import RegistryServer
from tests.spark_cluster import SparkCluster, command
from tests.support import PROOF, is_alive, wait_until
from tidegate.dev.broker import Broker
from tidegate.dev.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

# Where the tests run in the background Ctrl-C is ignored, and every process that they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

class_archives.use()

# No test, and no program that one starts, writes into the history of whoever runs them.
_STATE = tempfile.mkdtemp(prefix="tidegate-state-")
atexit.register(shutil.rmtree, _STATE, ignore_errors=True)
os.environ["XDG_STATE_HOME"] = _STATE

_BROKER = pytest.StashKey[Broker]()
_KAFKA_CLUSTER = pytest.StashKey[Cluster]()
_SPARK_CLUSTER = pytest.StashKey[SparkCluster]()
_REGISTRY = pytest.StashKey[RegistryServer]()
_CONNECT = pytest.StashKey[ConnectServer]()
_LOG_LINES = 60


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A real Kafka, one for the whole run. Give every test topics and groups of its own."""
    with Broker() as running:
        request.config.stash[_BROKER] = running
        yield running
        pid = running.pid
    assert pid is not None
    assert not is_alive(pid), f"the broker outlived its test run as process {pid}"


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three real nodes of Kafka, for tests that end some of them; whoever does starts them again."""
    with Cluster() as running:
        request.config.stash[_KAFKA_CLUSTER] = running
        yield running
        pids = [running.node(number).pid for number in running.nodes]
    assert not [pid for pid in pids if pid is not None and is_alive(pid)], "a node outlived its test run"


@pytest.fixture(scope="session")
def schema_registry(request: pytest.FixtureRequest) -> Iterator[RegistryServer]:
    """A real schema registry, one for the whole run. Give every test subjects of its own."""
    with RegistryServer() as running:
        request.config.stash[_REGISTRY] = running
        yield running
        pid = running.pid
    assert pid is not None
    assert not is_alive(pid), f"the schema registry outlived its test run as process {pid}"


@pytest.fixture(scope="session")
def connect_server(request: pytest.FixtureRequest) -> Iterator[ConnectServer]:
    """A real Spark Connect server, one for all tests that ask for it. Whoever kills it starts it again."""
    with ConnectServer() as running:
        request.config.stash[_CONNECT] = running
        yield running
        pid = running.pid
    assert pid is not None
    assert not is_alive(pid), f"the Connect server outlived its test run as process {pid}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A real PostgreSQL, one for the whole run. Give every test a schema of its own."""
    running = Server()
    yield running
    pid = running.pid
    running.end()
    assert not is_alive(pid), f"PostgreSQL outlived its test run as process {pid}"


@pytest.fixture(scope="session")
def one_cluster(request: pytest.FixtureRequest) -> Iterator[SparkCluster]:
    """A real Spark cluster, one for the whole run; ask for `cluster`, which waits until it is free and whole."""
    with SparkCluster() as running:
        request.config.stash[_SPARK_CLUSTER] = running
        yield running
        left = {pid: command(pid) for pid in running.processes()}
    try:
        wait_until(lambda: not any(map(is_alive, left)), within=60, what="the end of all processes of the cluster")
    except AssertionError as error:
        raise AssertionError(f"{error}; left are {[left[pid][:200] for pid in left if is_alive(pid)]}") from None


@pytest.fixture
def cluster(one_cluster: SparkCluster) -> SparkCluster:
    """The cluster with two workers, and nobody else on it."""
    one_cluster.make_whole()
    return one_cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    running = item.config.stash.get(_BROKER, None)
    if report.failed and running is not None and "broker" in getattr(item, "fixturenames", ()):
        report.sections.append((f"the last {_LOG_LINES} lines of the broker's log", running.log_tail(_LOG_LINES)))
    nodes = item.config.stash.get(_KAFKA_CLUSTER, None)
    if report.failed and nodes is not None and "kafka_cluster" in getattr(item, "fixturenames", ()):
        report.sections.append((f"the last {_LOG_LINES} lines of each node's log", nodes.log_tail(_LOG_LINES)))
    registry = item.config.stash.get(_REGISTRY, None)
    if report.failed and registry is not None and "schema_registry" in getattr(item, "fixturenames", ()):
        report.sections.append((f"the last {_LOG_LINES} lines of the registry's log", registry.log_tail(_LOG_LINES)))
    cluster = item.config.stash.get(_SPARK_CLUSTER, None)
    if report.failed and cluster is not None and "cluster" in getattr(item, "fixturenames", ()):
        report.sections.append((f"the last {_LOG_LINES} lines of the cluster's logs", cluster.log_tail(_LOG_LINES)))
    connect = item.config.stash.get(_CONNECT, None)
    if report.failed and connect is not None and "connect_server" in getattr(item, "fixturenames", ()):
        report.sections.append((f"the last {_LOG_LINES} lines of the server's log", connect.log_tail(_LOG_LINES)))
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs the broker or Spark, so that nobody can forget to; leave out what is for the proof alone."""
    left_out = [item for item in items if not PROOF and item.get_closest_marker("proof") is not None]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        if {"broker", "cluster", "kafka_cluster"} & set(
            getattr(item, "fixturenames", ())
        ) or "broker" in item.path.parts:
            item.add_marker(pytest.mark.broker)
        if "spark" in item.path.parts:
            item.add_marker(pytest.mark.spark)
