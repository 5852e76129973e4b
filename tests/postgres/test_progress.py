"""The driver's side, tables made by many at once, and errors that say what helps and hide what must be hidden."""

from __future__ import annotations

import pytest

import tidegate as tg
from tests.postgres.processes import make_tables, queue_and_barrier, started
from tests.postgres.support import GROUP, P0, P1, Database, effects, mark, store_of
from tests.postgres_server import LOCKED_USER, PASSWORD, Server
from tidegate.engine.truth import Truth
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.records import Commit, Partition
from tidegate.sinks.postgres_progress import PostgresProgress
from tidegate.store import Overtaken


def test_marks_are_read_and_moved(database: Database) -> None:
    sink = database.orders()
    store = store_of(sink)
    store.begin([P0], b"")
    store.seal(effects(sink, 0, 5), mark(5, metadata="m"))
    progress = PostgresProgress(database.dsn, GROUP)
    version = database.versions()[P0]

    assert progress.read([P0, P1]) == {P0: Commit(5, "m")}
    assert database.versions() == {P0: version}, "reading shuts nobody out"
    assert progress.move(mark(2, metadata="rewound") | mark(9, at=P1))

    assert progress.read([P1, P0, Partition("other", 0)]) == {P0: Commit(2, "rewound"), P1: Commit(9, "")}
    assert database.versions() == {P0: version + 1, P1: 1}
    progress.close()
    assert progress.read([]) == {}, "it connects again when asked again"
    progress.close()


def test_a_move_is_all_or_nothing(database: Database) -> None:
    progress = PostgresProgress(database.dsn, GROUP)
    assert progress.move(mark(1))
    progress.read([P0])
    with pytest.raises(tg.DatabaseRefused):
        progress.move(mark(2) | mark(2**70, at=P1))

    assert progress.read([P0, P1]) == {P0: Commit(1, "")}
    progress.close()


def test_marks_are_moved_only_where_nobody_has_moved_them_since(database: Database) -> None:
    sink = database.orders()
    store, progress = store_of(sink), PostgresProgress(database.dsn, GROUP)
    store.begin([P0], b"")
    store.seal(effects(sink, 0, 5), mark(5))

    assert progress.read([P0, P1]) == {P0: Commit(5, "")}
    store.seal(effects(sink, 5, 7), mark(7))
    assert not progress.move(mark(2) | mark(9, at=P1))
    assert database.marks() == {P0: 7}, "all of them, or none"

    progress.read([P0, P1])
    assert progress.move(mark(2) | mark(9, at=P1))
    assert database.marks() == {P0: 2, P1: 9}
    with pytest.raises(Overtaken):
        store.seal(effects(sink, 7, 8), mark(8))
    assert not progress.move(mark(3) | mark(9, at=P1)), "what it wrote itself it has not read"
    progress.close()


def test_a_rewind_that_fails_lets_no_older_decision_pass_that_others_have_overtaken(database: Database) -> None:
    """Otherwise: rows that another process wrote meanwhile are written again, from where we had decided to go on."""
    sink = database.orders()
    store, progress = store_of(sink), PostgresProgress(database.dsn, GROUP)
    truth = Truth(Admin(Kafka("127.0.0.1:1")), GROUP, progress, None)
    store.begin([P0], b"")
    store.seal(effects(sink, 0, 5), mark(5))
    progress.read([P0])  # and somebody decides that it goes on at 0
    store.seal(effects(sink, 5, 7), mark(7))

    with pytest.raises(tg.DatabaseRefused):
        truth.rewind(mark(2**70))
    assert not truth.move(mark(0))
    assert database.marks() == {P0: 7}

    truth.rewind(mark(2))
    assert not truth.move(mark(0))
    assert database.marks() == {P0: 2}
    truth.close()


def test_eight_processes_make_the_tables_at_once(database: Database) -> None:
    answers, ready = queue_and_barrier(8)
    processes = [started(make_tables, database.dsn, ready, answers) for _ in range(8)]

    assert [answers.get(timeout=60) for _ in processes] == ["made"] * 8
    for process in processes:
        process.join(30)
        process.close()
    assert database.marks() == {}
    assert database.ids() == []


def test_who_may_not_make_tables_uses_those_that_are_there(database: Database) -> None:
    schema = database.dsn.rpartition("%3D")[2]
    locked = Database(database.dsn.replace("postgres:@", f"{LOCKED_USER}:{PASSWORD}@"))
    store = store_of(locked.orders())
    database.do(f"grant usage on schema {schema} to {LOCKED_USER}")
    with pytest.raises(tg.DatabaseRefused, match="grant the user") as refused:
        store.begin([P0], b"")
    assert PASSWORD not in str(refused.value)

    store_of(database.orders()).begin([], b"")
    database.do(f"grant select, insert, update, delete on all tables in schema {schema} to {LOCKED_USER}")
    try:
        assert store.begin([P0], b"") == {}
        assert store.seal(effects(locked.orders(), 0, 2), mark(2)) == {}
        assert database.ids() == [0, 1]
    finally:
        database.do(f"drop schema {schema} cascade")


DOORS = [
    # what to change in the dsn, error of the driver, error of a round, words
    (("postgres:@", f"{LOCKED_USER}:wrong-{PASSWORD}@"), tg.DatabaseRefused, tg.DatabaseRefused, "password"),
    (("postgres:@", f"nobody:{PASSWORD}@"), tg.DatabaseRefused, tg.DatabaseRefused, 'role "nobody" does not exist'),
    (("/postgres?", "/nodb?"), tg.DatabaseRefused, tg.DatabaseRefused, 'database "nodb" does not exist'),
    (("host=", f"password={PASSWORD}&host=/nowhere"), tg.DatabaseUnreachable, tg.Unavailable, "cannot be reached"),
]


@pytest.mark.parametrize(("change", "for_driver", "for_round", "words"), DOORS)
@pytest.mark.parametrize("is_secret", [False, True])
def test_a_closed_door_says_why_and_shows_no_password(
    database: Database,
    change: tuple[str, str],
    for_driver: type[Exception],
    for_round: type[Exception],
    words: str,
    is_secret: bool,
) -> None:
    text = database.dsn.replace(*change)
    dsn = tg.secret(lambda: text) if is_secret else text
    with pytest.raises(for_driver) as driver:
        PostgresProgress(dsn, GROUP).read([P0])
    with pytest.raises(for_round) as in_round:
        store_of(tg.postgres(dsn, table="orders")).begin([P0], b"")

    for found in (driver.value, in_round.value):
        assert words in str(found)
        assert PASSWORD not in _whole_text(found)


def _whole_text(error: BaseException | None) -> str:
    """The error's text and that of all its causes: logs show them too."""
    return "" if error is None else f"{error!r} {error} {_whole_text(error.__cause__)} {_whole_text(error.__context__)}"


def test_a_secret_that_is_no_dsn_is_not_shown() -> None:
    dsn = tg.secret(lambda: f"postgres//clerk:{PASSWORD}@db")
    with pytest.raises(tg.SettingsError) as refused:
        PostgresProgress(dsn, GROUP).read([P0])
    assert PASSWORD not in str(refused.value)
    assert refused.value.__suppress_context__


def test_a_stopped_server_is_a_matter_of_waiting(database: Database, postgres: Server) -> None:
    progress = PostgresProgress(database.dsn, GROUP)
    progress.enter(mark(3))
    postgres.stop()
    try:
        with pytest.raises(tg.DatabaseUnreachable):
            progress.read([P0])
    finally:
        postgres.start()
    assert progress.read([P0]) == {P0: Commit(3, "")}
    progress.close()
