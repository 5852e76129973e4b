"""A real Apache Kafka in one JVM, for development and tests: a whole cluster, or one node of `cluster.py`."""

from __future__ import annotations

import base64
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tidegate.dev import guard
from tidegate.dev.jars import Progress, broker_classpath
from tidegate.dev.node_settings import HOST, LOGGING, NODES, PLAIN, Seat, settings_of
from tidegate.errors import BrokerUnreachable, SettingsError
from tidegate.java import find_java

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from types import TracebackType

STARTED = "Kafka Server started"
TAKEN = "Address already in use"
_TRIES = 5
_JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.awt.headless=true"]

# Below the range that outgoing connections take their ports from. Otherwise: the broker is stopped, a client that
# tries again is given the broker's own port as its local one, connects to itself, and the restart finds it taken.
_PORTS = range(20_000, 30_000)


class Broker:
    """Apache Kafka, from `start` to `stop`; it never outlives this process, kill -9 included.

    Without a folder it keeps nothing. With one, topics and offsets are there again at the next start.
    Without a port it takes a free one and keeps it over `restart`.
    `listeners` adds secured addresses beside the plain one, by name: `{"TLS": "SSL", "USERS": "SASL_PLAINTEXT"}`;
    their keys, mechanisms and rights are `settings` of Kafka's own (`listener.name.tls.ssl.keystore.location`).
    With a `seat` it is one node of a cluster, and comes up when most of its nodes do.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        start_seconds: float = 60.0,
        progress: Progress | None = None,
        seat: Seat | None = None,
    ) -> None:
        self._seat = seat
        self._kept_folder = folder
        self._folder: Path | None = None
        self._asked_port = port
        self._port: int | None = port
        self._settings = dict(settings or {})
        self._protocols = dict(listeners or {})
        self._ports: dict[str, int] = {}
        self._start_seconds = start_seconds
        self._progress = progress
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._log_from = 0

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        if self._port is None:
            raise BrokerUnreachable("the development broker was not started", "call start() first")
        return f"{HOST}:{self._port}"

    def address(self, listener: str) -> str:
        """Return the address of one of the `listeners`; their ports are kept over `restart`."""
        if listener not in self._ports:
            raise BrokerUnreachable(f"no listener {listener} was started", "name it in listeners= and call start()")
        return f"{HOST}:{self._ports[listener]}"

    @property
    def pid(self) -> int | None:
        """The process id of Kafka's Java, the last one where it does not run now."""
        return self._pid

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""
        return self._guard is not None and self._guard.poll() is None

    @property
    def folder(self) -> Path:
        """Where its data, settings and log lie."""
        if self._folder is None:
            raise BrokerUnreachable("the development broker was not started", "call start() first")
        return self._folder

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of its log; empty where there is none."""
        if self._folder is None or not self._log.exists():
            return ""
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def start(self) -> Self:
        """Start it and return when it answers; does nothing while it runs."""
        if self.is_running:
            return self
        self._end(signal.SIGKILL)  # what is left of one that died under us
        java = str(find_java())
        try:
            self._make_folder()
            classpath = broker_classpath(self._progress)
            for _ in range(_TRIES):
                self._write_settings()
                self._format(java, classpath)
                self._launch(java, classpath)
                if self._came_up():
                    # Clients know this port by now: later starts keep it.
                    self._asked_port = self._port
                    return self
                self._end(signal.SIGKILL)
            raise self._failed("found no free port")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End it; a folder that it was not given is removed."""
        # What is thrown away needs no orderly end, which takes Kafka a second or more.
        self._end(signal.SIGTERM if self._kept_folder is not None else signal.SIGKILL)
        if self._kept_folder is None and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def kill(self) -> None:
        """End it as a power cut would; `start` brings it back with its data."""
        self._end(signal.SIGKILL)

    def shut_down(self) -> None:
        """End it in order; `start` brings it back with the same port and data."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Stop it in order and start it again, with the same port and data."""
        self.shut_down()
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _log(self) -> Path:
        return self.folder / "broker.log"

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _make_folder(self) -> None:
        if self._kept_folder is not None:
            # Absolute: Kafka reads it from a settings file, not from where we stand.
            self._folder = self._kept_folder.absolute()
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise SettingsError(
                    f"{self._folder} cannot hold the broker's data: {error.strerror or error}",
                    "choose a folder that this user may write: --data FOLDER",
                ) from None
        elif self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="tidegate-broker-"))

    def _write_settings(self) -> None:
        """Choose the ports and write what Kafka starts from."""
        if self._asked_port is not None and not _is_free(self._asked_port):
            raise SettingsError(f"port {self._asked_port} is in use", "stop what uses it, or choose another: --port N")
        self._port = self._port or free_port()
        taken = {self._port}
        for name in self._protocols:
            taken.add(self._ports.setdefault(name, free_port(besides=taken)))
        seat = self._seat or Seat(1, {1: free_port(besides=taken)}, "")
        taken |= set(seat.controllers.values())
        # The others hear where this one is when it comes: its port among them is chosen anew each time.
        among_nodes = {} if seat.address is None else {NODES: free_port(besides=taken)}
        ports = {PLAIN: self._port, **self._ports, **among_nodes}
        text = settings_of(seat, ports, self._protocols, self.folder / "data", self._settings)
        self._properties.write_text(text, encoding="utf-8")
        (self.folder / "log4j2.properties").write_text(LOGGING, encoding="utf-8")

    def _format(self, java: str, classpath: str) -> None:
        """Prepare an empty data folder; leave one with data alone."""
        if (self.folder / "data" / "meta.properties").exists():
            return
        words = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t"]
        words.append(self._seat.cluster_id if self._seat is not None else new_cluster_id())
        command = [java, *_JVM, "-cp", classpath, *words, "-c", str(self._properties)]
        with self._log.open("ab") as log:
            code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False).returncode
        if code != 0:
            raise self._failed("could not format its folder")

    def _launch(self, java: str, classpath: str) -> None:
        scratch = self.folder / "tmp"
        # What a JVM unpacks there it removes only at an orderly end.
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        logging = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"
        kafka = [
            java,
            *_JVM,
            f"-Djava.io.tmpdir={scratch}",
            logging,
            "-cp",
            classpath,
            "kafka.Kafka",
            str(self._properties),
        ]
        orphan = ["--orphan-removes", str(self.folder)] if self._kept_folder is None else []
        self._pid = None
        with self._log.open("ab") as log:
            self._log_from = log.tell()
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, *orphan, *kafka],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C in a terminal reaches every process of the group: a pipeline that finishes its work on
                # Ctrl-C still needs the broker to commit to.
                start_new_session=True,
            )
        assert self._guard.stdout is not None  # noqa: S101  # asked for as a pipe
        first = self._guard.stdout.readline()
        if not first:
            raise self._failed("could not be started")
        self._pid = int(first)

    def _came_up(self) -> bool:
        """Wait until it answers; False where it ended because its port was taken and another may be tried."""
        deadline = time.monotonic() + self._start_seconds
        while time.monotonic() < deadline:
            log = self._log_since_launch()
            if STARTED in log and _answers(self._port):
                return True
            if not self.is_running:
                if TAKEN in log:
                    # The controller's port is chosen anew in any case.
                    self._port = self._asked_port
                    if self._asked_port is None:
                        self._ports = {}
                    return False
                raise self._failed("ended while it started")
            time.sleep(0.05)
        raise self._failed(f"did not answer within {self._start_seconds:g}s")

    def _log_since_launch(self) -> str:
        with self._log.open("rb") as log:
            log.seek(self._log_from)
            return log.read().decode("utf-8", errors="replace")

    def _failed(self, happened: str) -> BrokerUnreachable:
        return BrokerUnreachable(
            f"the development broker {happened}; the end of its log:\n{self.log_tail()}\n",
            "see its log above; a folder that is damaged or in use by another broker must be changed",
        )

    def _end(self, how: signal.Signals) -> None:
        """End Kafka and its guard, and return when both are gone."""
        running, self._guard = self._guard, None
        if running is None:
            return
        if running.poll() is None:
            if how is signal.SIGKILL and self._pid is not None:
                _kill(self._pid)
            else:
                running.terminate()
        running.wait()
        for pipe in (running.stdin, running.stdout):
            if pipe is not None:
                pipe.close()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Kafka itself binds: connections of an earlier broker that linger do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port(besides: Collection[int] = ()) -> int:
    """Return a port that nobody listens on, and none of these."""
    for port in random.sample(_PORTS, k=200):
        if port not in besides and _is_free(port):
            return port
    raise BrokerUnreachable("no free port was found for the development broker", "end some of what listens here")


def _answers(port: int | None) -> bool:
    try:
        with socket.create_connection((HOST, port or 0), timeout=1.0):
            return True
    except OSError:
        return False


def new_cluster_id() -> str:
    """Return an id as Kafka wants it."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # Kafka's tools would take a leading dash for an option.
    return "A" + text[1:]
