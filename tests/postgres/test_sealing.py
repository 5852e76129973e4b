"""Rows and marks are written together, or not at all, and only by whoever has the say."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import tidegate as tg
from tests.postgres.support import P0, P1, Database, bulk, effect, effects, made, mark, store_of
from tests.postgres_server import Server
from tests.support import wait_until
from tidegate.records import Commit
from tidegate.sinks.postgres_link import Patience
from tidegate.sinks.postgres_progress import PostgresProgress
from tidegate.store import Overtaken, Poisoned

FIRST, SECOND = "orders:0:7:1", "orders:0:8:1"
_WAITING = "select 1 from pg_stat_activity where application_name = 'tidegate' and wait_event_type = 'Lock'"


def test_rows_and_marks_are_written_and_read_again(database: Database) -> None:
    sink = database.orders()
    store = store_of(sink)

    assert store.begin([P0, P1], b"") == {}
    assert store.seal(effects(sink, 0, 3) + effects(sink, 7, 9, at=P1), mark(3, metadata="m") | mark(9, at=P1)) == {}
    store.end()

    assert database.ids() == [0, 1, 2, 7, 8]
    assert store_of(sink).begin([P0, P1], b"") == {P0: Commit(3, "m"), P1: Commit(9, "")}


def test_marks_move_without_rows_and_rows_without_marks(database: Database) -> None:
    sink = database.orders()
    store = store_of(sink)
    store.begin([P0], b"")

    assert store.seal([effect(0)], mark(1)) == {}  # a filter dropped it
    assert store.seal([], mark(5)) == {}  # a gap in the log
    assert store.seal(effects(sink, 5, 6), {}) == {}

    assert (database.ids(), database.marks()) == ([5], {P0: 5})


def test_another_groups_marks_are_not_seen(database: Database) -> None:
    sink = database.orders()
    store = store_of(sink)
    store.begin([P0], b"")
    store.seal(effects(sink, 0, 1), mark(1))

    other = PostgresProgress(database.dsn, "another")
    assert other.read([P0]) == {}
    other.enter(mark(77))
    other.close()

    assert database.marks() == {P0: 1}
    assert store.seal(effects(sink, 1, 2), mark(2)) == {}, "what another group does shuts nobody out"


def test_who_began_first_is_shut_out_by_who_began_later(database: Database) -> None:
    sink = database.orders()
    zombie, owner = store_of(sink), store_of(sink)
    zombie.begin([P0], b"")
    zombie.seal(effects(sink, 0, 2), mark(2))

    assert owner.begin([P0], b"") == {P0: Commit(2, "")}
    with pytest.raises(Overtaken):
        zombie.seal(effects(sink, 2, 4), mark(4))
    assert owner.seal(effects(sink, 2, 3), mark(3)) == {}
    with pytest.raises(Overtaken):
        zombie.seal(effects(sink, 2, 4), mark(4))

    assert (database.ids(), database.marks()) == ([0, 1, 2], {P0: 3})


def test_of_two_that_find_no_row_one_is_shut_out(database: Database) -> None:
    sink = database.orders()
    zombie, owner = store_of(sink), store_of(sink)
    zombie.begin([P0], b"")
    owner.begin([P0], b"")

    assert owner.seal(effects(sink, 0, 2), mark(2)) == {}
    with pytest.raises(Overtaken):
        zombie.seal(effects(sink, 0, 2), mark(2))

    assert (database.ids(), database.marks()) == ([0, 1], {P0: 2})
    assert zombie.begin([P0], b"") == {P0: Commit(2, "")}, "it reads again, and goes on from there"
    assert zombie.seal(effects(sink, 2, 3), mark(3)) == {}
    assert database.ids() == [0, 1, 2]


def test_one_lost_partition_keeps_the_whole_transaction_back(database: Database) -> None:
    sink = database.orders()
    both, one = store_of(sink), store_of(sink)
    both.begin([P0, P1], b"")
    both.seal(effects(sink, 0, 1) + effects(sink, 10, 11, at=P1), mark(1) | mark(11, at=P1))
    one.begin([P1], b"")

    with pytest.raises(Overtaken):
        both.seal(effects(sink, 1, 2) + effects(sink, 11, 12, at=P1), mark(2) | mark(12, at=P1))

    assert (database.ids(), database.marks()) == ([0, 10], {P0: 1, P1: 11})


def test_the_version_is_compared_and_not_the_mark(database: Database) -> None:
    sink = database.orders()
    store = store_of(sink)
    store.begin([P0], b"")
    store.seal(effects(sink, 0, 5), mark(5))

    # Somebody rewinds to where it stands already: the mark is the same, the version is not.
    progress = PostgresProgress(database.dsn, "billing")
    progress.read([P0])
    assert progress.move(mark(5))
    progress.close()

    with pytest.raises(Overtaken):
        store.seal(effects(sink, 5, 6), mark(6))
    assert (database.ids(), database.marks()) == ([0, 1, 2, 3, 4], {P0: 5})


def test_a_row_of_marks_that_was_deleted_shuts_out(database: Database) -> None:
    sink = database.orders()
    store = store_of(sink)
    store.begin([P0], b"")
    store.seal(effects(sink, 0, 1), mark(1))
    database.do("delete from tidegate_offsets")

    with pytest.raises(Overtaken):
        store.seal(effects(sink, 1, 2), mark(2))
    assert database.ids() == [0]


def test_a_row_that_fails_poisons_the_bulk_and_alone_it_is_named(database: Database) -> None:
    database.do("create table orders (id bigint primary key, note text)")
    sink = tg.postgres(database.dsn, table="orders")
    store = store_of(sink)
    store.begin([P0], b"")
    store.seal(effects(sink, 0, 2), mark(2))

    taken = [effect(2, made(sink, {"id": 2})), effect(3, made(sink, {"id": 1})), effect(4, made(sink, {"id": 4}))]
    with pytest.raises(Poisoned) as poisoned:
        store.seal(taken, mark(5))
    assert isinstance(poisoned.value.__cause__, psycopg.errors.UniqueViolation)
    assert (database.ids(), database.marks()) == ([0, 1], {P0: 2})

    assert store.seal(taken[:1], mark(3)) == {}
    answer = store.seal(taken[1:2], mark(4))
    assert {at: type(error) for at, error in answer.items()} == {0: psycopg.errors.UniqueViolation}
    assert (database.ids(), database.marks()) == ([0, 1, 2], {P0: 3})
    assert store.seal([effect(3), *taken[2:]], mark(5)) == {}, "the same store goes on"
    assert database.ids() == [0, 1, 2, 4]


def test_a_constraint_that_is_checked_at_the_end_fails_its_record(database: Database) -> None:
    database.do("create table shops (id bigint primary key)")
    database.do("create table orders (id bigint, shop bigint references shops deferrable initially deferred)")
    sink = tg.postgres(database.dsn, table="orders")
    store = store_of(sink)
    store.begin([P0], b"")

    with pytest.raises(Poisoned):
        store.seal(bulk(sink, {"id": 1, "shop": None}, {"id": 2, "shop": 9}), mark(2))
    answer = store.seal(bulk(sink, {"id": 2, "shop": 9}), mark(1))

    assert isinstance(answer[0], psycopg.errors.ForeignKeyViolation)
    assert (database.ids(), database.marks()) == ([], {})


def test_sinks_of_one_database_share_the_transaction_in_their_order(database: Database) -> None:
    database.do("create table shops (id bigint primary key)")
    database.do("create table orders (id bigint, shop bigint references shops)")
    shops, orders = tg.postgres(database.dsn, table="shops", key="id"), tg.postgres(database.dsn, table="orders")
    store = store_of(shops, orders)
    store.begin([P0], b"")

    # The row that refers comes first in the bulk: the order of the sinks counts, not that of the records.
    taken = [
        effect(0, made(orders, {"id": 1, "shop": 9})),
        effect(1, made(shops, {"id": 9}), made(orders, {"id": 2, "shop": 9})),
    ]
    assert store.seal(taken, mark(2)) == {}
    assert (database.ids("shops"), database.ids("orders")) == ([9], [1, 2])

    with pytest.raises(Poisoned):
        store.seal(
            [effect(2, made(shops, {"id": 10})), effect(3, made(orders, {"id": 3, "shop": 11}))],
            mark(4),
        )
    assert (database.ids("shops"), database.ids("orders"), database.marks()) == ([9], [1, 2], {P0: 2})


def test_sinks_of_two_databases_are_refused(database: Database) -> None:
    with pytest.raises(tg.SettingsError, match="same dsn"):
        store_of(database.orders(), tg.postgres("postgresql://elsewhere/x", table="orders"))


def test_a_pass_has_its_effect_once(database: Database) -> None:
    sink = database.orders()
    store = store_of(sink)
    store.begin([P0], b"")

    first = [effect(0, made(sink, {"id": 1}), pass_id=FIRST), effect(1, made(sink, {"id": 1}), pass_id=FIRST)]
    assert store.seal(first, mark(2)) == {}, "twice in one bulk"
    later = store_of(sink)
    later.begin([P0], b"")
    again = [effect(2, made(sink, {"id": 1}), pass_id=FIRST), effect(3, made(sink, {"id": 2}), pass_id=SECOND)]
    assert later.seal([*again, effect(4, made(sink, {"id": 3}))], mark(5)) == {}

    assert (database.ids(), database.marks()) == ([1, 2, 3], {P0: 5})


def test_a_pass_that_was_rolled_back_is_not_known(database: Database) -> None:
    database.do("create table orders (id bigint primary key)")
    sink = tg.postgres(database.dsn, table="orders")
    store = store_of(sink)
    store.begin([P0], b"")

    with pytest.raises(Poisoned):
        store.seal(
            [effect(0, made(sink, {"id": 1}), pass_id=FIRST), effect(1, made(sink, {"id": 1}), pass_id=SECOND)],
            mark(2),
        )
    assert store.seal([effect(0, made(sink, {"id": 1}), pass_id=FIRST)], mark(1)) == {}
    assert database.ids() == [1]


def test_old_passes_are_forgotten_and_young_ones_are_not(database: Database) -> None:
    sink = database.orders()
    store = store_of(sink)
    store.begin([P0], b"")
    store.seal([effect(n, pass_id=f"pass {n}") for n in range(4)], mark(4))
    database.do("update tidegate_passes set seen_at = now() - interval '31 days' where pass_id < 'pass 2'")

    store_of(sink).begin([P0], b"")

    assert database.ask("select pass_id from tidegate_passes order by 1") == [("pass 2",), ("pass 3",)]


def test_transactions_in_each_others_way_are_repeated(database: Database, postgres: Server) -> None:
    database.do("create table orders (id bigint primary key, note text)")
    database.do("insert into orders values (1), (2)")
    sink = tg.postgres(database.dsn, sql="update orders set note = %(note)s where id = %(id)s")
    store = store_of(sink)
    store.begin([P0], b"")
    taken = bulk(sink, {"id": 1, "note": "ours"}, {"id": 2, "note": "ours"})
    with psycopg.connect(database.dsn) as other, ThreadPoolExecutor(1) as beside:
        other.execute("set deadlock_timeout = '10min'")  # so that ours is the one that is broken off
        other.execute("update orders set note = 'theirs' where id = 2")
        answer = beside.submit(store.seal, taken, mark(2))
        wait_until(lambda: bool(database.ask(_WAITING)), within=10, what="ours waits for the second row")
        other.execute("update orders set note = 'theirs' where id = 1")
        assert "deadlock detected" in postgres.log_tail(20)
        other.commit()
        assert answer.result(20) == {}

    assert database.ask("select id, note from orders order by id") == [(1, "ours"), (2, "ours")]
    assert database.marks() == {P0: 2}


def test_a_lock_that_somebody_keeps_is_nobodys_fault(database: Database) -> None:
    sink = database.orders()
    store = store_of(sink, patience=Patience(lock=0.2))
    store.begin([P0], b"")
    with psycopg.connect(database.dsn) as other:
        other.execute("lock table orders")
        with pytest.raises(tg.Unavailable, match="lock timeout"):
            store.seal(effects(sink, 0, 2), mark(2))

    assert store.seal(effects(sink, 0, 2), mark(2)) == {}
    assert (database.ids(), database.marks()) == ([0, 1], {P0: 2})


def test_what_takes_too_long_is_tried_in_smaller_parts(database: Database) -> None:
    sink = tg.postgres(database.dsn, sql="select pg_sleep(%(id)s)")
    store = store_of(sink, patience=Patience(statement=0.2))
    store.begin([P0], b"")

    with pytest.raises(Poisoned, match="statement timeout"):
        store.seal(bulk(sink, {"id": 0}, {"id": 60}), mark(2))
    with pytest.raises(tg.Unavailable, match="statement timeout"):
        store.seal(bulk(sink, {"id": 60}), mark(1))
    assert store.seal(bulk(sink, {"id": 0}), mark(1)) == {}
