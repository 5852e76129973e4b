"""The pipelines that chaos attacks, each with what its sink shows and how often a record may be seen there."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pyarrow.parquet as pq

from tests import postgres_driver
from tests.chaos.member import KEYS, Maker, Member, Verdict
from tests.http_server import Answer, Request, Server
from tests.postgres.proxy import Proxy
from tests.postgres.support import Database
from tests.postgres_server import Server as PostgresServer
from tests.support import read_uncommitted, visible
from tidegate.kafka.admin import Admin
from tidegate.records import Partition
from tidegate.testing import Event, FailSink, InOrder, RedriveDead, RewindGroup, SlowSink, Switch, Trial, by_part
from tidegate.testing.faults import PlannedFault
from tidegate.testing.laws import Order
from tidegate.testing.story import Place
from tidegate.testing.switches import FAIL, SLOW, SLOW_SECONDS

# --- sinks that note what they get


def _noted(order: Order, *spared: type[PlannedFault]) -> Callable[[Maker], Member]:
    def make(maker: Maker) -> Member:
        words = ("--set", "live=false") if maker.kind == "keys" else ()
        return Member(maker.kind, maker.trial(order, spared, words=words), "at least once", _by_the_log)

    return make


def _by_the_log(trial: Trial) -> Verdict:
    return _of_events(trial, trial.log.read().events)


def _of_events(trial: Trial, events: Iterable[Event]) -> Verdict:
    settled = [one for one in events if one.kind == "settled"]
    different = {one.stable_id for one in settled}
    return Verdict(trial.breaches(events=settled), len(settled), len(different), parts=(settled,))


PARTS = {"0/0", "0/1", "1/0", "1/1"}
"""Two children of each record, for two sinks."""


def _children(maker: Maker) -> Member:
    def judge(trial: Trial) -> Verdict:
        parts = by_part(trial.log.read().settled)
        assert set(parts) == PARTS, f"effects of other parts than {PARTS}: {set(parts)}"
        # Each part by itself: a mark passes a record when every part of it is settled, and each part has its order.
        verdicts = [_of_events(trial, events) for events in parts.values()]
        breaches = [breach for one in verdicts for breach in one.breaches]
        seen, different = sum(one.seen for one in verdicts), sum(one.different for one in verdicts)
        return Verdict(breaches, seen, different, parts=tuple(part for one in verdicts for part in one.parts))

    return Member(maker.kind, maker.trial("partition"), "at least once", judge)


# --- HTTP


def _http(maker: Maker) -> Member:
    server = Server()
    switch = Switch(str(maker.folder / "records"))

    def answer(_: Request) -> Answer:
        if switch.is_on(FAIL):
            return 503, {}, b""
        if switch.is_on(SLOW):
            time.sleep(SLOW_SECONDS)
        return 200, {}, b""

    server.answer = answer
    server.start()
    maker.stack.callback(server.stop)

    def judge(trial: Trial) -> Verdict:
        taken = [(int(one.ended * 1000), orjson.loads(one.body)) for one in server.taken]
        return _of_events(trial, [_event(at_ms, body) for at_ms, body in taken])

    return Member(maker.kind, maker.trial("key", URL=server.url), "at least once", judge)


def _event(at_ms: int, made: dict[str, Any]) -> Event:
    place = Partition(made["topic"], made["partition"])
    pid = made["pid"]
    key = str(made["id"] % KEYS).encode()
    return Event(
        "settled", place, made["offset"], made["stable_id"], key, made["attempt"], at_ms, pid, f"{made['run']}-{pid}",
        made["driver"], made["run"],
    )  # fmt: skip


# --- Kafka


def _kafka(maker: Maker) -> Member:
    out = f"chaos-{maker.kind}-out"
    # One partition: its offsets are the order in which the outputs came. The broker's clock: when they came.
    Admin(maker.stage.kafka).create_topic(out, 1, {"message.timestamp.type": "LogAppendTime"})

    def judge(trial: Trial) -> Verdict:
        found = visible(Admin(trial.stage.kafka), trial.stage.kafka, out)
        made = []
        for one in found:
            assert one.timestamp is not None
            made.append(_event(round(one.timestamp.timestamp() * 1000), orjson.loads(one.value or b"")))
        return _of_events(trial, made)

    spared = (FailSink, SlowSink)
    return Member(maker.kind, maker.trial("partition", spared, OUT=out), "at least once", judge)


def _kafka_once(order: Order) -> Callable[[Maker], Member]:
    def make(maker: Maker) -> Member:
        out = f"chaos-{maker.kind}-out"
        # Where the order is promised, one partition: its offsets are the order in which the outputs became visible.
        Admin(maker.stage.kafka).create_topic(out, 1 if order == "partition" else 2)

        def judge(trial: Trial) -> Verdict:
            kafka = trial.stage.kafka
            admin = Admin(kafka)
            found = [orjson.loads(one.value or b"") for one in visible(admin, kafka, out)]
            effects = [(one["topic"], one["partition"], one["offset"]) for one in found]
            written = sum(1 for _ in read_uncommitted(kafka, list(admin.describe([out])[out].each_partition())))
            return replace(_of_effects(trial, InOrder(effects)), aborted=written - len(found))

        return Member(maker.kind, maker.trial(order, (FailSink, SlowSink), OUT=out), "exactly once", judge)

    return make


def _of_effects(trial: Trial, effects: Sequence[Place]) -> Verdict:
    return Verdict(trial.breaches(effects=effects), len(effects), len(set(effects)))


# --- PostgreSQL

NUMBERS = 'create table numbers (id bigint not null, topic text, partition int, "offset" bigint, came bigint generated '
NUMBERS += "always as identity)"


def _database(maker: Maker) -> tuple[PostgresServer, str, Database]:
    """Start a server of its own, with a schema."""
    server = PostgresServer()
    maker.stack.callback(server.end)
    schema = f"chaos_{uuid.uuid4().hex[:8]}"
    database = Database(f"{server.uri}&options=-csearch_path%3D{schema}")
    database.do(f"create schema {schema}")
    return server, schema, database


def _switch_of(server: PostgresServer) -> Callable[[bool], None]:
    def away(is_away: bool) -> None:
        server.stop("immediate") if is_away else server.start()

    return away


def _postgres(maker: Maker) -> Member:
    server, _, database = _database(maker)
    database.do(NUMBERS)

    def judge(trial: Trial) -> Verdict:
        rows = database.ask('select topic, partition, "offset" from numbers order by came')
        return _of_effects(trial, InOrder((topic, number, at) for topic, number, at in rows))

    # The group follows the table, so that commits do not say how far the table was when it was rewound.
    trial = maker.trial("partition", (SlowSink, RewindGroup), _switch_of(server), DSN=database.dsn)
    return Member(maker.kind, trial, "exactly once", judge)


# --- DataFrames


def _frames(maker: Maker) -> Member:
    out = maker.folder / "out"

    def judge(trial: Trial) -> Verdict:
        effects: list[Place] = []
        for path in out.glob("tidegate_round=*/*.parquet"):
            rows = pq.ParquetFile(path).read().to_pylist()
            effects += [(row["topic"], row["partition"], row["offset"]) for row in rows]
        return _of_effects(trial, effects)

    return Member(maker.kind, _frames_trial(maker, FailSink, OUT=str(out)), "exactly once", judge)


def _jdbc(maker: Maker) -> Member:
    server, schema, database = _database(maker)
    port = Proxy(None, server.socket_folder)  # Java knows no other sockets
    maker.stack.callback(port.close)
    url = f"jdbc:postgresql://127.0.0.1:{port.port}/postgres?currentSchema={schema}"

    def judge(trial: Trial) -> Verdict:
        rows = database.ask('select topic, partition, "offset" from numbers')
        return _of_effects(trial, [(topic, number, at) for topic, number, at in rows])

    spark = f"--jars {postgres_driver.fetch()} pyspark-shell"
    trial = _frames_trial(maker, sink_away=_switch_of(server), URL=url, PYSPARK_SUBMIT_ARGS=spark)
    return Member(maker.kind, trial, "exactly once", judge)


def _frames_trial(
    maker: Maker, *spared: type[PlannedFault], sink_away: Callable[[bool], None] | None = None, **environment: str
) -> Trial:
    # Such pipelines run as one process: two would share the partitions, and neither would have all of them.
    return maker.trial("none", (*spared, SlowSink, RedriveDead), sink_away, (), 1, **environment)


MAKERS: dict[str, Callable[[Maker], Member]] = {
    "function": _noted("partition"),
    "keys": _noted("key"),
    "later": _noted("none"),
    "ragged": _noted("none", RedriveDead),
    "lists": _noted("key"),
    "children": _children,
    "http": _http,
    "kafka": _kafka,
    "kafka-once": _kafka_once("none"),
    "kafka-ordered": _kafka_once("partition"),
    "postgres": _postgres,
    "frames": _frames,
    "jdbc": _jdbc,
}
