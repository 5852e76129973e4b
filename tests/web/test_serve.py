"""The command `tidegate serve` as a process: it starts, answers, refuses what is not safe, and ends in good order."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.web.client import OPERATOR, READER, Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.web.conftest import Scene
    from tidegate.dev.broker import Broker

SERVE = [sys.executable, "-m", "tidegate.cli", "serve"]


class Serving:
    """The command, started; `address` when it has said where it is."""

    def __init__(self, broker: Broker, folder: Path, *words: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
        self.process = subprocess.Popen(
            [*SERVE, "--port", "0", "--history", str(folder / "history.db"), *words],
            cwd=folder,
            env={**kept, "TIDEGATE_BOOTSTRAP": broker.bootstrap, "SOME_TOKEN": OPERATOR},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        self.client = Client(self.said.split()[-1]) if self.said else None

    def end(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(how)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


@pytest.fixture
def started() -> Iterator[list[Serving]]:
    all_of_them: list[Serving] = []
    yield all_of_them
    for one in all_of_them:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate(timeout=30)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_end(
    broker: Broker, scene: Scene, tmp_path: Path, started: list[Serving], how: signal.Signals
) -> None:
    serving = Serving(broker, tmp_path)
    started.append(serving)

    assert serving.said == f"serving {broker.bootstrap} at {serving.client and serving.client.address}\n"
    assert serving.client is not None
    assert serving.client.get(f"/api/v1/groups/{scene.group}").json["lag"] == 6
    assert serving.client.get("/api/v1/runs").json == {"runs": []}
    assert serving.end(how) == (0, "")


def test_tokens_come_from_where_nobody_sees_them(broker: Broker, tmp_path: Path, started: list[Serving]) -> None:
    (tmp_path / "reader").write_text(f"{READER}\n", encoding="utf-8")
    words = ("--host", "0.0.0.0", "--token", "env:SOME_TOKEN", "--read-token", f"file:{tmp_path}/reader")  # noqa: S104  # with a token it may
    serving = Serving(broker, tmp_path, *words)
    started.append(serving)

    assert serving.client is not None
    client = Client(serving.client.address.replace("0.0.0.0", "127.0.0.1"))  # noqa: S104  # as above
    assert client.get("/api/v1/groups").status == 401
    assert client.as_(READER).get("/api/v1/groups").status == 200
    assert client.as_(OPERATOR).post("/api/v1/run/pause").status == 404
    code, errors = serving.end()
    assert (code, OPERATOR in errors) == (0, False)


REFUSED = [
    (("--host", "0.0.0.0"), "there is no token; set token (TIDEGATE_TOKEN)"),  # noqa: S104  # what is refused
    (("--token", OPERATOR), "--token is not the token itself; write --token env:NAME"),
    (("--token", "env:NOT_SET"), "the secret's variable NOT_SET is not set"),
    (("--host", "no.such.host.invalid"), "no.such.host.invalid:0 cannot be served"),
]


@pytest.mark.parametrize(("words", "sentence"), REFUSED)
def test_what_is_not_safe_or_cannot_be_is_refused(
    broker: Broker, tmp_path: Path, started: list[Serving], words: tuple[str, ...], sentence: str
) -> None:
    words = (*words, "--token", "env:SOME_TOKEN") if "no.such" in sentence else words
    serving = Serving(broker, tmp_path, *words)
    started.append(serving)
    _, errors = serving.process.communicate(timeout=60)

    assert (serving.said, serving.process.returncode) == ("", 1)
    assert sentence in errors
    assert OPERATOR not in errors
    assert errors.count("\n") == 1


def test_a_port_that_is_taken_is_named(broker: Broker, tmp_path: Path, started: list[Serving]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        serving = Serving(broker, tmp_path, "--port", str(port))
        started.append(serving)
        _, errors = serving.process.communicate(timeout=60)
    assert serving.process.returncode == 1
    assert f"port {port} of 127.0.0.1 is taken; choose another one" in errors


def test_without_the_extra_it_says_what_to_install(broker: Broker, tmp_path: Path) -> None:
    hide = "import sys; sys.modules['fastapi'] = None; from tidegate.cli import main; main()"
    environment = {**os.environ, "TIDEGATE_BOOTSTRAP": broker.bootstrap}
    done = subprocess.run(
        [sys.executable, "-c", hide, "serve", "--port", "0"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install 'tidegate[serve]'" in done.stderr
