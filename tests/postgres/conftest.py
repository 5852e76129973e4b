"""A schema of its own for every test, in the one PostgreSQL of the run."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from tests.postgres.support import OPENED, Database
from tests.postgres_server import Server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def database(postgres: Server) -> Iterator[Database]:
    schema = f"test_{uuid.uuid4().hex[:12]}"
    made = Database(f"{postgres.uri}&options=-csearch_path%3D{schema}")
    made.do(f"create schema {schema}")
    yield made
    while OPENED:
        OPENED.pop().discard()
