"""Copies lie in the outbox with their marks, and reach Kafka afterwards: they may repeat, they are never lost."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import tidegate as tg
from tests.postgres.processes import die_between_send_and_delete, read_sent, started
from tests.postgres.support import GROUP, P0, Broker, Database, effect, effects, made, mark, store_of
from tidegate.sinks.postgres_progress import PostgresProgress
from tidegate.sinks.postgres_store import PostgresStore
from tidegate.store import Outgoing, Poisoned

AWAY = tg.BrokerUnreachable("no answer", "wait")
TOO_LARGE = tg.BrokerRefused("too large", "less")


def copy_of(value: bytes) -> Outgoing:
    return Outgoing("billing.dead", value)


def unsent(database: Database) -> list[bytes]:
    return [row[0] for row in database.ask("select value from tidegate_outbox order by id")]


WHOLE = [
    Outgoing("billing.dead", b"\x00\xff", b"key", (("a", b"\x00"), ("a", None), ("n\x00ame", b"")), 3),
    Outgoing("billing.retry.1m", None, None, (), None),
    Outgoing("billing.dead", b"", b"", (("é", "ü".encode()),), 0),
]


def test_copies_arrive_as_they_were_in_their_order(database: Database) -> None:
    sink, broker = database.orders(), Broker()
    store = store_of(sink, broker=broker)
    store.begin([P0], b"")

    assert store.seal([effect(n, copy=copy) for n, copy in enumerate(WHOLE)], mark(3)) == {}

    assert broker.sent == WHOLE
    assert unsent(database) == []
    assert store.refused is None


def test_many_copies_go_in_parts(database: Database) -> None:
    broker = Broker()
    store = store_of(database.orders(), broker=broker)
    store.begin([P0], b"")

    store.seal([effect(n, copy=copy_of(b"%d" % n)) for n in range(250)], mark(250))

    assert broker.values == [b"%d" % n for n in range(250)]
    assert unsent(database) == []


def test_a_bulk_that_is_refused_sends_no_copy(database: Database) -> None:
    database.do("create table orders (id bigint primary key)")
    sink, broker = tg.postgres(database.dsn, table="orders"), Broker()
    store = store_of(sink, broker=broker)
    store.begin([P0], b"")

    with pytest.raises(Poisoned):
        store.seal([effect(0, copy=copy_of(b"x")), *effects(sink, 1, 2), *effects(sink, 1, 2)], mark(2))

    assert (broker.sent, unsent(database)) == ([], [])


def test_a_known_pass_sends_no_copy_again(database: Database) -> None:
    broker = Broker()
    store = store_of(database.orders(), broker=broker)
    store.begin([P0], b"")
    for record_offset in range(2):
        store.seal([effect(record_offset, copy=copy_of(b"x"), pass_id="once")], mark(record_offset + 1))  # noqa: S106  # no password

    assert broker.values == [b"x"]
    assert database.marks() == {P0: 2}


def test_copies_wait_for_a_broker_that_is_away(database: Database) -> None:
    sink, broker = database.orders(), Broker(failures={b"1": AWAY, b"2": AWAY})
    store = store_of(sink, broker=broker)
    store.begin([P0], b"")

    taken = [effect(0, copy=copy_of(b"1")), effect(1, copy=copy_of(b"2")), effect(2, made(sink, {"id": 2}))]
    assert store.seal(taken, mark(3)) == {}, "they are safe: the record is settled"
    assert (unsent(database), database.ids(), database.marks()) == ([b"1", b"2"], [2], {P0: 3})
    assert store.refused is None
    progress = PostgresProgress(database.dsn, GROUP)
    assert progress.unsent() == 2

    del broker.failures[b"1"]
    store.end()
    assert (broker.values, unsent(database)) == ([b"1"], [b"2"])
    broker.failures.clear()
    store_of(sink, broker=broker).begin([P0], b"")
    assert (broker.values, unsent(database)) == ([b"1", b"2"], [])
    assert progress.unsent() == 0
    progress.close()


def test_a_long_rest_of_copies_does_not_hold_up_the_round(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    store = store_of(database.orders(), broker=broker)
    store.begin([P0], b"")
    with monkeypatch.context() as patch:
        patch.setattr("tidegate.sinks.postgres_outbox._SEND_SECONDS", 0.0)
        assert store.seal([effect(0, copy=copy_of(b"x"))], mark(1)) == {}
        assert (broker.values, unsent(database)) == ([], [b"x"])
    store.end()

    assert (broker.values, unsent(database)) == ([b"x"], [])


def test_a_copy_that_is_refused_for_good_surfaces_and_holds_nobody_up(database: Database) -> None:
    broker = Broker(failures={b"0": TOO_LARGE})
    store = store_of(database.orders(), broker=broker)
    store.begin([P0], b"")

    assert store.seal([effect(n, copy=copy_of(b"%d" % n)) for n in range(150)], mark(150)) == {}
    assert store.refused is TOO_LARGE
    assert broker.values == [b"%d" % n for n in range(1, 150)]
    assert unsent(database) == [b"0"]

    broker.failures.clear()  # somebody raised the topic's limit
    store.end()
    assert store.refused is None
    assert unsent(database) == []


def test_a_relay_that_breaks_loses_nothing(database: Database) -> None:
    def relay(copies: Sequence[Outgoing]) -> Mapping[int, BaseException]:
        raise ZeroDivisionError(len(copies))

    store = PostgresStore([database.orders()], GROUP, relay)
    store.begin([P0], b"")
    assert store.seal([effect(0, copy=copy_of(b"x"))], mark(1)) == {}
    store.end()
    store.discard()

    assert isinstance(store.refused, ZeroDivisionError)
    assert (unsent(database), database.marks()) == ([b"x"], {P0: 1})


def test_killed_between_send_and_delete_it_is_sent_again(database: Database, tmp_path: Path) -> None:
    away, sent = Broker(failures={b"7": AWAY}), tmp_path / "sent"
    store = store_of(database.orders(), broker=away)
    store.begin([P0], b"")
    store.seal([effect(0, copy=copy_of(b"7"))], mark(1))

    process = started(die_between_send_and_delete, database.dsn, sent)
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    process.close()

    assert read_sent(sent) == [7]
    assert unsent(database) == [b"7"]
    broker = Broker()
    store_of(database.orders(), broker=broker).begin([P0], b"")
    assert (broker.values, unsent(database)) == ([b"7"], [])


def test_copies_that_another_process_is_sending_are_left_to_it(database: Database) -> None:
    inner = Broker()
    second = store_of(database.orders(), broker=inner)

    def relay(copies: Sequence[Outgoing]) -> Mapping[int, BaseException]:
        assert [copy.value for copy in copies] == [b"x"]
        second.begin([P0], b"")  # meanwhile another round begins
        return {}

    store = PostgresStore([database.orders()], GROUP, relay)
    store.begin([], b"")
    store.seal([effect(0, copy=copy_of(b"x"))], {})
    store.discard()

    assert (inner.sent, unsent(database)) == ([], [])


def test_another_groups_copies_are_not_sent(database: Database) -> None:
    away = Broker(failures={b"x": AWAY})
    store = store_of(database.orders(), broker=away)
    store.begin([P0], b"")
    store.seal([effect(0, copy=copy_of(b"x"))], mark(1))

    broker = Broker()
    other = PostgresStore([database.orders()], "another", broker.relay)
    other.begin([P0], b"")
    other.discard()

    assert (broker.sent, unsent(database)) == ([], [b"x"])


def test_the_driver_sends_what_no_round_has_sent_and_tells_what_is_left(database: Database) -> None:
    broker = Broker(failures={b"0": AWAY, b"1": AWAY})
    store = store_of(database.orders(), broker=broker)
    store.begin([P0], b"")
    store.seal([effect(n, copy=copy_of(b"%d" % n)) for n in range(2)], mark(2))
    store.end()

    progress = PostgresProgress(database.dsn, GROUP)
    assert progress.deliver(broker.relay) == 2
    del broker.failures[b"0"]
    assert progress.deliver(broker.relay) == 1
    broker.failures[b"1"] = TOO_LARGE
    with pytest.raises(tg.BrokerRefused, match="outbox cannot be written: too large"):
        progress.deliver(broker.relay)
    broker.failures.clear()
    assert progress.deliver(broker.relay) == 0
    progress.close()
    assert (broker.values, unsent(database)) == ([b"0", b"1"], [])
