"""The one PostgreSQL of a run, and a schema of its own for every test."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from tests.postgres.server import Server
from tests.postgres.support import OPENED, Database
from tests.support import is_alive

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    running = Server()
    yield running
    pid = running.pid
    running.end()
    assert not is_alive(pid), f"PostgreSQL outlived its test run as process {pid}"


@pytest.fixture
def database(server: Server) -> Iterator[Database]:
    schema = f"test_{uuid.uuid4().hex[:12]}"
    made = Database(f"{server.uri}&options=-csearch_path%3D{schema}")
    made.do(f"create schema {schema}")
    yield made
    while OPENED:
        OPENED.pop().discard()
