"""A bulk that the server works on, but not within our time, goes in smaller parts."""

from __future__ import annotations

import pytest

import tidegate as tg
from tests.postgres.support import P0, Database, effects, mark, store_of
from tidegate.sinks.postgres_link import Patience
from tidegate.store import Poisoned


def test_a_bulk_of_many_statements_that_takes_too_long_goes_in_smaller_parts(database: Database) -> None:
    """Each statement is quick enough for the server's own limit; all together are not for ours."""
    database.do("create table slow (id bigint)")
    sink = tg.postgres(database.dsn, sql="insert into slow select %(id)s from pg_sleep(0.5)")
    store = store_of(sink, patience=Patience(answer=3.0))
    store.begin([P0], b"")

    with pytest.raises(Poisoned):
        store.seal(effects(sink, 0, 10), mark(10))

    assert store.seal(effects(sink, 0, 2), mark(2)) == {}
    assert database.ids("slow") == [0, 1]
