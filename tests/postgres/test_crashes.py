"""Whatever is killed, whenever: what is visible is exactly what lies below the marks."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import psycopg
import pytest

import tidegate as tg
from tests.postgres.processes import COPIED_EVERY, killed, read_sent, seal_for_ever, started
from tests.postgres.proxy import Proxy
from tests.postgres.support import P0, P1, Broker, Database, effect, effects, made, mark, store_of
from tests.postgres_server import Server
from tests.support import wait_until
from tidegate.records import Commit
from tidegate.sinks.postgres_link import Patience
from tidegate.store import Overtaken

KILLS = int(os.environ.get("PROOF_KILLS", "15"))


def seen(database: Database) -> tuple[list[int], dict[int, int], dict[int, int], list[int]]:
    """Rows, marks and copies, all at one moment."""
    with psycopg.connect(database.dsn) as connection:
        connection.execute("set transaction isolation level repeatable read")
        ids = [row[0] for row in connection.execute("select id from orders order by id")]
        marks: dict[int, int] = dict(connection.execute("select partition, mark from tidegate_offsets").fetchall())
        last: dict[int, int] = dict(connection.execute("select partition, seen from latest").fetchall())
        posted = [int(row[0]) for row in connection.execute("select convert_from(value, 'UTF8') from tidegate_outbox")]
    return ids, marks, last, posted


def check(database: Database, sent: Path) -> dict[int, int]:
    before = read_sent(sent)
    ids, marks, last, posted = seen(database)
    below = [one * 10**9 + number for one, end in sorted(marks.items()) for number in range(end)]
    assert ids == [id_ for id_ in below if id_ % 10**9 % COPIED_EVERY], "each once, none missing, none too many"
    assert last == {one: max(n for n in range(end) if n % COPIED_EVERY) for one, end in marks.items() if end > 1}
    copied = {id_ for id_ in below if not id_ % 10**9 % COPIED_EVERY}
    assert set(posted) <= copied
    assert copied <= {*posted, *before, *read_sent(sent)}, "a copy is in the outbox or was sent"
    return marks


def has_written_and_not_committed(database: Database, process: ForkServerProcess) -> bool:
    """Let it stand still where it is; return whether a transaction of its is open that has written something."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    others = "from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
    at_work = f"select 1 {others} and wait_event is distinct from 'ClientRead'"  # noqa: S608  # ours
    wait_until(lambda: database.ask(at_work) == [], within=20, what="the server has done all that it was asked")
    return bool(database.ask(f"select 1 {others} and backend_xid is not null"))


@pytest.mark.timeout(60 + 5 * KILLS)
def test_killed_at_any_moment_rows_copies_and_marks_agree(database: Database, tmp_path: Path) -> None:
    chance, sent = random.Random(11), tmp_path / "sent"
    database.do("create table latest (partition integer primary key, seen bigint)")
    store_of(database.orders()).begin([], b"")
    open_ones = kill = 0
    while kill < KILLS or not open_ones:  # without one in the middle of a transaction nothing is proved
        reached = sum(database.marks().values()) + chance.randint(1, 1500)
        process = started(seal_for_ever, database.dsn, kill, sent)
        wait_until(lambda least=reached: sum(database.marks().values()) >= least, within=30, what="it works")  # type: ignore[misc]
        try:
            open_ones += has_written_and_not_committed(database, process)
        finally:
            killed(process)
        check(database, sent)
        kill += 1

    # The server may be busy with the last one's transaction still: beginning waits for it.
    broker = Broker()
    store_of(database.orders(), broker=broker).begin([P0, P1], b"")
    with sent.open("ab") as file:
        file.write(b"".join((value or b"") + b"\n" for value in broker.values))
    assert database.ask("select count(*) from tidegate_outbox") == [(0,)]
    marks = check(database, sent)
    assert sum(marks.values()) >= KILLS
    assert set(read_sent(sent)) == {
        one * 10**9 + n for one, end in marks.items() for n in range(0, end, COPIED_EVERY)
    }, "every copy reaches Kafka; some may be there twice"


def test_the_server_dies_while_it_is_written_to(database: Database, postgres: Server) -> None:
    sink = database.orders()
    store = store_of(sink)
    faults: Counter[str] = Counter()
    going, goal = threading.Event(), threading.Event()

    def work() -> None:
        position = -1
        while not goal.is_set() or position < 0:
            try:
                if position < 0:
                    position = store.begin([P0], b"").get(P0, Commit(0, "")).mark
                store.seal(effects(sink, position, position + 20), mark(position + 20))
            except (tg.Unavailable, Overtaken) as error:
                faults[type(error).__name__] += 1
                store.discard()
                position = -1
            else:
                position += 20
                going.set()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for outage in range(3):
            going.clear()
            assert going.wait(60), "it goes on after an outage"
            postgres.stop("immediate" if outage < 2 else "fast")
            known = faults.total()
            wait_until(lambda known=known: faults.total() > known, within=30, what="it notices")  # type: ignore[misc]
            postgres.start()
        going.clear()
        assert going.wait(60)
    finally:
        goal.set()
        worker.join(60)

    assert faults.total() >= 3
    assert set(faults) <= {"Unavailable", "Overtaken"}
    assert database.ids() == list(range(database.marks()[P0]))


@pytest.fixture
def proxy(postgres: Server, tmp_path: Path) -> Iterator[Proxy]:
    made = Proxy(tmp_path, postgres.socket_folder)
    yield made
    made.close()


def through(proxy: Proxy, database: Database) -> Database:
    return Database(f"{database.dsn}&host={proxy.folder}")


def test_a_commit_whose_answer_is_lost_is_looked_up(database: Database, proxy: Proxy) -> None:
    sink = through(proxy, database).orders()
    store = store_of(sink)
    store.begin([P0], b"")
    store.seal(effects(sink, 0, 3), mark(3))
    proxy.at_commit = "lose the answer"

    with pytest.raises(Overtaken, match="while the transaction was being committed"):
        store.seal(effects(sink, 3, 5), mark(5))
    proxy.at_commit = "pass"

    assert proxy.hits == 1
    wait_until(lambda: database.marks() == {P0: 5}, within=10, what="the server has committed it all the same")
    assert store.begin([P0], b"") == {P0: Commit(5, "")}
    assert store.seal(effects(sink, 5, 6), mark(6)) == {}
    assert database.ids() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("fault", ["hang up", "fall silent"])
def test_a_commit_that_never_arrived_is_looked_up_too(database: Database, proxy: Proxy, fault: Any) -> None:
    sink = through(proxy, database).orders()
    store = store_of(sink, patience=Patience(answer=1.0))
    store.begin([P0], b"")
    store.seal(effects(sink, 0, 3), mark(3))
    proxy.at_commit = fault

    with pytest.raises(Overtaken):
        store.seal(effects(sink, 3, 5), mark(5))
    proxy.at_commit = "pass"

    assert proxy.hits == 1
    assert store.begin([P0], b"") == {P0: Commit(3, "")}
    assert store.seal(effects(sink, 3, 5), mark(5)) == {}
    assert database.ids() == [0, 1, 2, 3, 4]


def test_a_server_that_falls_silent_is_given_up(database: Database, proxy: Proxy) -> None:
    sink = through(proxy, database).orders()
    store = store_of(sink, patience=Patience(connect=2.0, answer=0.5))
    store.begin([P0], b"")
    proxy.silent.set()

    with pytest.raises(tg.Unavailable):
        store.seal(effects(sink, 0, 2), mark(2))
    proxy.silent.clear()

    assert proxy.hits >= 1
    assert store.seal(effects(sink, 0, 2), mark(2)) == {}, "the next call makes a connection of its own"
    assert (database.ids(), database.marks()) == ([0, 1], {P0: 2})


def test_a_connection_that_was_ended_between_two_calls_is_made_anew(database: Database) -> None:
    sink = database.orders()
    store = store_of(sink)
    store.begin([P0], b"")
    store.seal(effects(sink, 0, 1), mark(1))
    ended = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'tidegate'"
    assert database.ask(ended) == [(True,)]

    assert store.seal(effects(sink, 1, 2), mark(2)) == {}, "nothing was under way: nobody need hear of it"
    assert database.ids() == [0, 1]


def test_a_connection_that_is_lost_half_way_leaves_nothing(database: Database) -> None:
    ends_itself = tg.postgres(database.dsn, sql="select pg_terminate_backend(pg_backend_pid()), %(id)s::int")
    sink = database.orders()
    store = store_of(sink, ends_itself)
    store.begin([P0], b"")

    with pytest.raises(tg.Unavailable):
        store.seal([effect(0, made(sink, {"id": 0}), made(ends_itself, {"id": 0}))], mark(1))
    assert (database.ids(), database.marks()) == ([], {})
    assert store.seal(effects(sink, 0, 2), mark(2)) == {}
    assert database.ids() == [0, 1]


def test_where_all_connections_are_taken_it_is_a_matter_of_waiting(database: Database) -> None:
    schema = database.dsn.rpartition("%3D")[2]
    role = f"role_{schema}"
    database.do(f"create role {role} login connection limit 0")
    try:
        store = store_of(Database(database.dsn.replace("postgres:@", f"{role}:@")).orders())
        with pytest.raises(tg.Unavailable, match="too many connections"):
            store.begin([P0], b"")
    finally:
        database.do(f"drop role {role}")
