"""The pipelines that chaos attacks: what each is, what its sink shows, and how often a record may be seen there."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson
import pyarrow.parquet as pq

from tests.http_server import Answer, Request, Server
from tests.postgres.support import Database
from tests.postgres_server import Server as PostgresServer
from tests.support import visible
from tidegate.kafka.admin import Admin
from tidegate.ops.produce import Message
from tidegate.records import Partition
from tidegate.testing import (
    Breach,
    Event,
    FailSink,
    FillMetadata,
    RedriveDead,
    RewindGroup,
    SlowSink,
    Stage,
    Subject,
    Switch,
    Trial,
)
from tidegate.testing.faults import PlannedFault
from tidegate.testing.laws import Order
from tidegate.testing.story import Place
from tidegate.testing.switches import FAIL, SLOW, SLOW_SECONDS

APP = Path(__file__).parent / "apps" / "pipelines.py"
PARTITIONS = 4
FIRST_OF_BACKLOG = 10_000_000
"""Numbers that the feed does not reach."""
KINDS = ("function", "keys", "later", "ragged", "http", "kafka", "kafka-once", "postgres", "frames")
Guarantee = Literal["at least once", "exactly once"]


@dataclass(frozen=True)
class Verdict:
    """What the checker and the sink say of one pipeline."""

    breaches: list[Breach]
    seen: int
    """Effects, repeats included."""
    different: int
    """Records that have one at least."""


@dataclass(frozen=True)
class Member:
    """One pipeline of the fleet."""

    kind: str
    trial: Trial
    guarantee: Guarantee
    judge: Callable[[Trial], Verdict]


@contextlib.contextmanager
def assembled(stage: Stage, folder: Path, kinds: Iterable[str], copies: int = 2) -> Iterator[list[Member]]:
    """Make the pipelines of these kinds, not yet started; whatever runs at the end is killed."""
    with contextlib.ExitStack() as stack:
        made = []
        for kind in kinds:
            own = folder / kind
            own.mkdir(parents=True)
            member = _MAKERS[kind](_Maker(kind, stage, own, copies, stack))
            stack.callback(member.trial.close)
            made.append(member)
        yield made


class _Backlog:
    """Many records of one partition at once, of each in turn."""

    def __init__(self) -> None:
        self._given = 0

    def __call__(self, count: int) -> list[Message]:
        first = FIRST_OF_BACKLOG + self._given
        partition = self._given // count % PARTITIONS
        self._given += count
        return [Message(str(number), key=str(number), partition=partition) for number in range(first, first + count)]


@dataclass(frozen=True)
class _Maker:
    """What every pipeline is made from."""

    kind: str
    stage: Stage
    folder: Path
    copies: int
    stack: contextlib.ExitStack

    def trial(
        self,
        order: Order = "partition",
        spared: tuple[type[PlannedFault], ...] = (),
        sink_away: Callable[[bool], None] | None = None,
        words: tuple[str, ...] = (),
        copies: int | None = None,
        **environment: str,
    ) -> Trial:
        subject = Subject(
            app=APP,
            topic=f"chaos-{self.kind}",
            group=f"chaos-{self.kind}-group",
            copies=self.copies if copies is None else copies,
            order=order,
            words=words,
            spared=(*spared, *(() if self.kind == "ragged" else (FillMetadata,))),
            sink_away=sink_away,
            backlog=_Backlog() if self.kind == "ragged" else None,
            environment={"KIND": self.kind, **environment},
        )
        trial = Trial(self.stage, subject, self.folder)
        trial.create_topic(PARTITIONS)
        return trial


# --- sinks that note what they get


def _noted(order: Order, *spared: type[PlannedFault]) -> Callable[[_Maker], Member]:
    def make(maker: _Maker) -> Member:
        words = ("--set", "live=false") if maker.kind == "keys" else ()
        return Member(maker.kind, maker.trial(order, spared, words=words), "at least once", _by_the_log)

    return make


def _by_the_log(trial: Trial) -> Verdict:
    return _of_events(trial, trial.log.read().events)


def _of_events(trial: Trial, events: Iterable[Event]) -> Verdict:
    settled = [one for one in events if one.kind == "settled"]
    different = {one.stable_id for one in settled}
    return Verdict(trial.breaches(events=settled), len(settled), len(different))


# --- HTTP


def _http(maker: _Maker) -> Member:
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


KEYS = 20


# --- Kafka


def _kafka(maker: _Maker) -> Member:
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


def _kafka_once(maker: _Maker) -> Member:
    out = f"chaos-{maker.kind}-out"
    Admin(maker.stage.kafka).create_topic(out, 2)

    def judge(trial: Trial) -> Verdict:
        found = [orjson.loads(one.value or b"") for one in visible(Admin(trial.stage.kafka), trial.stage.kafka, out)]
        return _of_effects(trial, [(one["topic"], one["partition"], one["offset"]) for one in found])

    spared = (FailSink, SlowSink)
    return Member(maker.kind, maker.trial("none", spared, OUT=out), "exactly once", judge)


def _of_effects(trial: Trial, effects: list[Place]) -> Verdict:
    return Verdict(trial.breaches(effects=effects), len(effects), len(set(effects)))


# --- PostgreSQL


def _postgres(maker: _Maker) -> Member:
    server = PostgresServer()
    maker.stack.callback(server.end)
    schema = f"chaos_{uuid.uuid4().hex[:8]}"
    database = Database(f"{server.uri}&options=-csearch_path%3D{schema}")
    database.do(f"create schema {schema}")

    def away(is_away: bool) -> None:
        server.stop("immediate") if is_away else server.start()

    def judge(trial: Trial) -> Verdict:
        return _of_effects(trial, list(database.ask('select topic, partition, "offset" from numbers')))

    # The group follows the table, so that commits do not say how far the table was when it was rewound.
    trial = maker.trial("partition", (SlowSink, RewindGroup), away, DSN=database.dsn)
    return Member(maker.kind, trial, "exactly once", judge)


# --- DataFrames


def _frames(maker: _Maker) -> Member:
    out = maker.folder / "out"

    def judge(trial: Trial) -> Verdict:
        effects: list[Place] = []
        for path in out.glob("tidegate_round=*/*.parquet"):
            rows = pq.ParquetFile(path).read().to_pylist()
            effects += [(row["topic"], row["partition"], row["offset"]) for row in rows]
        return _of_effects(trial, effects)

    spared = (FailSink, SlowSink, RedriveDead, RewindGroup)
    # Such pipelines run as one process: two would share the partitions, and neither would have all of them.
    return Member(maker.kind, maker.trial("none", spared, copies=1, OUT=str(out)), "exactly once", judge)


_MAKERS: dict[str, Callable[[_Maker], Member]] = {
    "function": _noted("partition"),
    "keys": _noted("key"),
    "later": _noted("none"),
    "ragged": _noted("none", RedriveDead),
    "http": _http,
    "kafka": _kafka,
    "kafka-once": _kafka_once,
    "postgres": _postgres,
    "frames": _frames,
}
assert set(_MAKERS) == set(KINDS)
