"""A real schema registry for the tests: Apicurio Registry in one JVM, fetched once by artifact name.

It speaks Confluent's REST API (`/apis/ccompat/v7`) and keeps everything in memory. Like the broker, it never
outlives the test run, kill -9 included.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from tidegate.dev import guard
from tidegate.dev.jars import spark_jar
from tidegate.java import find_java
from tidegate.machine import cache_folder

NAME = "apicurio-registry-app"
VERSION = "3.0.9"
API = "/apis/ccompat/v7"
_START_SECONDS = 90.0
_JVM = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.awt.headless=true"]
# Below the range that outgoing connections take their ports from, and beside the broker's.
_PORTS = range(30_000, 32_000)

_IVY = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tidegate" module="tests"/>
  <dependencies>
    <dependency org="io.apicurio" name="{NAME}" rev="{VERSION}" transitive="false">
      <artifact name="{NAME}" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""
# By name alone: the description of this artifact names a parent that was never published.
_IVY_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="maven"/>
  <resolvers><ibiblio name="maven" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


def fetch() -> Path:
    """Return the folder that holds the registry, fetching it (109 MB) where it is not cached: whole or not at all."""
    cache = cache_folder()
    place = cache / f"{NAME}-{VERSION}"
    if not place.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "fetch.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not place.is_dir():
                _fetch_into_place(place)
    return place


def _fetch_into_place(place: Path) -> None:
    for stale in place.parent.glob(f".{place.name}-*"):
        shutil.rmtree(stale, ignore_errors=True)  # we hold the lock, so whoever made it was killed
    fresh = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        (fresh / "ivy.xml").write_text(_IVY, encoding="utf-8")
        (fresh / "settings.xml").write_text(_IVY_SETTINGS, encoding="utf-8")
        command = [str(find_java()), f"-Divy.default.ivy.user.dir={fresh / 'ivy'}", "-jar", str(spark_jar("ivy-*.jar"))]
        command += [
            "-settings",
            str(fresh / "settings.xml"),
            "-ivy",
            str(fresh / "ivy.xml"),
            "-cache",
            str(fresh / "cache"),
        ]
        command += ["-retrieve", f"{fresh}/[artifact].[ext]"]
        with (fresh / "log").open("w+b") as log:
            ivy = _guarded(command, log)
            code = ivy.wait()
            _close(ivy)
            log.seek(0)
            assert code == 0, f"Apicurio Registry {VERSION} could not be downloaded:\n{log.read().decode()[-2000:]}"
        with tarfile.open(fresh / f"{NAME}.tar.gz") as archive:
            archive.extractall(fresh / "whole", filter="data")
        assert _jar(fresh / "whole").is_file()
        (fresh / "whole").rename(place)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


class RegistryServer:
    """Apicurio Registry, from `start` to `stop`; `stop` and `start` again forget everything but the port."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tidegate-registry-"))
        self._port = _free_port()
        self._guard: subprocess.Popen[bytes] | None = None
        self.pid: int | None = None

    @property
    def url(self) -> str:
        """Where its Confluent-compatible API is."""
        return f"http://127.0.0.1:{self._port}{API}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        settings = [
            f"-Dquarkus.http.port={self._port}",
            "-Dquarkus.http.host=127.0.0.1",
            # One file of its own per start: several runs on a machine must not meet.
            f"-Dapicurio.datasource.url=jdbc:h2:mem:{self._folder.name}",
            f"-Djava.io.tmpdir={self._folder}",
        ]
        command = [str(find_java()), *_JVM, *settings, "-jar", str(_jar(fetch()))]
        with (self._folder / "log").open("wb") as log:
            self._guard = _guarded(["--orphan-removes", str(self._folder), *command], log)
        assert self._guard.stdout is not None
        self.pid = int(self._guard.stdout.readline())
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            assert self._guard.poll() is None, f"the registry ended while it started:\n{self.log_tail()}"
            assert time.monotonic() < deadline, f"the registry did not start:\n{self.log_tail()}"
            time.sleep(0.1)

    def stop(self) -> None:
        running, self._guard = self._guard, None
        if running is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid or 0, signal.SIGKILL)  # it keeps nothing, so it needs no orderly end
            running.wait()
            _close(running)

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join((self._folder / "log").read_text("utf-8", errors="replace").splitlines()[-lines:])

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:  # noqa: S310  # our own server
                return int(answer.status) == 200
        except (urllib.error.URLError, OSError):
            return False


def _guarded(command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,
    )


def _close(ended: subprocess.Popen[bytes]) -> None:
    for pipe in (ended.stdin, ended.stdout):
        if pipe is not None:
            pipe.close()


def _jar(folder: Path) -> Path:
    return folder / f"{NAME}-{VERSION}-runner.jar"


def _free_port() -> int:
    for port in random.sample(_PORTS, k=200):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port was found for the schema registry")


if __name__ == "__main__":
    fetch()
