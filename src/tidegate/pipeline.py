"""What the user writes: an immutable description, checked as it is built, frozen into a plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from tidegate.durations import rate_per_second, seconds
from tidegate.errors import SettingsError
from tidegate.formats.json import JsonColumns
from tidegate.frames import DataFrame, FrameStep, FrameWriter, decoder_before, refuse_for_frames
from tidegate.kafka.connection import Kafka
from tidegate.places import At, FromTable
from tidegate.policy import Policy, Terminal, dead_letter, stop
from tidegate.records import Partition
from tidegate.refusals import refuse_generator, refuse_group, refuse_uncallable, topic_names
from tidegate.settings import CLIENT, Resolved, resolve
from tidegate.sinks.objects import SinkObject, as_sink
from tidegate.steps import Batch, Order, Plan, Sink, Step, Value, name_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession  # noqa: TID251  # a type only, never imported at run time

    from tidegate.engine.control import Control
    from tidegate.records import Report

Starting = Literal["earliest", "latest", "none"]
Lost = Literal["stop", "earliest", "latest"]
Until = Literal["stopped", "caught-up"]
Retries = Literal["wait", "leave"]

_STARTINGS = ("earliest", "latest", "none")
_LOSTS = ("stop", "earliest", "latest")
_ORDERS = ("partition", "key", "none")
MOST_PARALLEL = 10_000

is_loading: ContextVar[bool] = ContextVar("is_loading", default=False)
"""Whether a program is being loaded for its pipeline: one that calls `run()` then would run twice."""


@dataclass(frozen=True)
class Source:
    """Where records come from, and for which group."""

    topics: tuple[str, ...]
    """By name; empty where there is a pattern."""
    group: str
    kafka: Kafka | None
    starting: Starting | FromTable
    lost: Lost = "stop"
    pattern: re.Pattern[str] | None = None
    at: At | None = None

    def wants(self, partition: Partition) -> bool:
        """Whether this partition is to be read, if the group gives it to us."""
        return self.at is None or partition in self.at.places


@dataclass(frozen=True)
class Pipeline:
    """Records from Kafka, through functions, into sinks. Immutable: every method returns a new one."""

    source: Source
    steps: tuple[Step, ...] = ()
    sinks: tuple[Sink, ...] = ()
    policy: Policy = field(default_factory=Policy)
    order: Order | None = None
    """None: not chosen, which is "partition"."""
    width: int = 1
    lists: Batch | None = None
    frames: FrameStep | None = None
    """None: records go through functions one by one."""
    chosen: Mapping[str, object] = field(default_factory=dict)
    """Settings given by methods of the pipeline; they outrank the environment and the file."""

    def map(self, function: Callable[[Any], Any]) -> Pipeline:
        """Replace each value by the function's answer."""
        return self._with_step("map", function)

    def filter(self, function: Callable[[Any], Any]) -> Pipeline:
        """Keep values for which the function says yes; the others are settled without an effect."""
        return self._with_step("filter", function)

    def flat_map(self, function: Callable[[Any], Any]) -> Pipeline:
        """Replace each value by several; the record is settled when all of them are.

        The function must give the same children in the same order for the same value: a repeat
        skips the sinks of those children that already have them, by their number.
        """
        return self._with_step("flat_map", function)

    def dataframe(
        self,
        function: Callable[[DataFrame], DataFrame],
        *,
        every: str | float | None = None,
        records: int | None = None,
        undecodable: Terminal | None = None,
    ) -> Pipeline:
        """Work on rounds of records as Spark DataFrames: `fn(df)` may use all of Spark SQL.

        `df` has the columns key, value, topic, partition, offset, timestamp, headers; where a decoder with a schema
        stands before it (`map(tg.json(schema=...))`, `map(tg.avro(...))`), value is decoded. What it returns goes to
        `sink(tg.write(...))`, `tg.parquet`, `tg.jdbc` or `tg.delta`. `every`: how long records gather before a round,
        `records`: most of them. `undecodable`: what becomes of records that the decoder cannot read, `tg.stop()`
        (default) or `tg.dead_letter()`. A round fails and is repeated as a whole.
        """
        refuse_uncallable("dataframe", function)
        if self.frames is not None:
            raise SettingsError("dataframe is set twice in this pipeline", "make one function of the two")
        if self.sinks:
            raise SettingsError("dataframe stands after a sink", "put it before: .dataframe(fn).sink(tg.write(...))")
        step = FrameStep(function, decoder_before(self.steps), undecodable or stop())
        if step.undecodable not in (stop(), dead_letter()):
            raise SettingsError("dataframe(undecodable=...) is unknown", "choose tg.stop() or tg.dead_letter()")
        changed = replace(self, frames=step)
        changed = changed if every is None else changed._choose("frame_every", seconds(every))
        return changed if records is None else changed._choose("frame_records", records)

    def sink(
        self, write: Callable[[Any], object] | SinkObject | FrameWriter, *, when: Callable[[Any], object] | None = None
    ) -> Pipeline:
        """Hand each value to a callable, or to an object with `write(value)`. Returning settles, raising fails.

        An object may have `open()` and `close()`: each Python worker opens its own before the first value.

        Several sinks get the same value, in the order written; the record is settled when all
        have it, and a repeat calls only those that do not. `when` chooses the values for this sink.
        """
        if self.frames is not None or isinstance(write, FrameWriter):
            return self._with_writer(write, when)
        called = as_sink(write)
        refuse_generator("sink", write)
        if when is not None:
            refuse_uncallable("when", when)
            refuse_generator("when", when)
        return replace(self, sinks=(*self.sinks, Sink(called, when)))

    def batch(self, size: int, within: str | float = "1s", *, records: bool = False) -> Pipeline:
        """Hand values to the sinks as lists: when there are `size`, or the first has waited for `within`.

        Returning settles all of a list. A sink may answer per value with a list of the same length, in which an
        exception fails its record; or raise `tg.BatchFailed({place: error})`. Any other exception fails the list
        as a whole: it is halved until the culprit stands alone. With `records=True` the sink gets `tg.Record`s,
        whose `value` is what the steps made of it. `tg.current()` has no answer in such a sink.
        """
        if type(size) is not int or size < 1:
            raise SettingsError(f"batch({size!r})", "say how many values a list may have: 1 or more")
        if self.lists is not None:
            raise SettingsError("batch is set twice in this pipeline", "keep one of the two")
        return replace(self, lists=Batch(size, seconds(within), records))

    def commit_every(self, duration: str | float, *, records: int | None = None) -> Pipeline:
        """Leave nothing settled uncommitted for longer than this, or after this many records of a lane.

        Without the live channel a round reads for this long, finishes the record in hand, and commits.

        `records=1` commits after every single record: nothing settled ever runs again after a
        crash but the record in hand. It costs one Spark job per record.
        """
        chosen = self._choose("commit_every", seconds(duration))
        return chosen if records is None else chosen._choose("commit_records", records)

    def rate(self, rate: str | float) -> Pipeline:
        """Begin at most so many records in this process, all its lanes together: "100/s", "6000/m".

        Attempts that are made again count too. Several copies of the program each have this rate.
        """
        return self._choose("rate", rate_per_second(rate))

    def lanes(self, count: int) -> Pipeline:
        """Run at most this many rounds at a time (default: Spark's task slots)."""
        return self._choose("lanes", count)

    def parallel(self, records: int = 1, *, order: Order | None = None, timeout: str | float | None = None) -> Pipeline:
        """Work on several records of a lane at a time: `def` in threads, `async def` on an event loop.

        `order`: "partition" (default: records of a partition one after the other; one that waits holds all
        behind it), "key" (one that waits holds its key only; records without a key are free), "none".
        `timeout`: a record whose attempt takes longer has failed, and the worker that ran it is ended.
        """
        if type(records) is not int or not 1 <= records <= MOST_PARALLEL:
            raise SettingsError(f"parallel({records!r})", f"say how many records at a time: 1 to {MOST_PARALLEL}")
        if records > 1 and self.width > 1:
            raise SettingsError("parallel is set twice in this pipeline", "keep one of the two")
        changed = replace(self, width=max(self.width, records))
        if order is not None:
            if order not in _ORDERS:
                raise SettingsError(f"order={order!r} is unknown", f"choose one of {', '.join(_ORDERS)}")
            if self.order is not None:
                raise SettingsError("order is set twice in this pipeline", "keep one of the two")
            changed = replace(changed, order=order)
        return changed if timeout is None else changed._choose("timeout", seconds(timeout))

    def on_error(self, *row: object) -> Pipeline:
        """Say what happens to a record that fails: a row of steps, read from left to right.

        `on_error(tg.hold(), tg.retry(3), tg.retry_later("1m", "10m"), tg.dead_letter())`: each step at most once,
        in this order, the last one `tg.stop()` (default), `tg.dead_letter()` or `tg.skip()`. Error types before
        the steps make it a row for these alone: `on_error(TimeoutError, tg.retry(5), tg.stop())`; such rows stand
        before the general one. `tg.Reject` goes to the last step at once, `tg.Unavailable` is what `hold` waits for.
        """
        return replace(self, policy=self.policy.with_row(row))

    def run(
        self,
        *,
        until: Until = "stopped",
        retries: Retries = "wait",
        spark: SparkSession | None = None,
        settings: Mapping[str, object] | None = None,
        control: Control | None = None,
    ) -> Report:
        """Run until stopped by a signal or a failed record, or until caught up; return the report.

        `until="caught-up"` reads where the topics end once, at the start, and returns when the group has
        committed everything before, by this process or another, in the retry topics too; with `retries="leave"`
        it does not wait for those: a later run takes them up. `spark` runs on your session instead of an own one.
        `settings` outrank the environment and the file for this run. `control` is a `tg.Control()` of yours: through
        it another thread sees what the run does, and lets it rest, go on, rewind or end.
        """
        if is_loading.get():
            raise SettingsError(
                "run() is called while the program is loaded to find its pipeline",
                'remove the call, or put it below `if __name__ == "__main__":` and start the program with python',
            )
        from tidegate.engine.run import run_pipeline  # noqa: PLC0415  # building a pipeline must not load Spark

        return run_pipeline(self, until=until, retries=retries, session=spark, more=settings or {}, control=control)

    def plan(self) -> Plan:
        """Freeze the work for one record."""
        if not self.sinks:
            raise SettingsError("the pipeline has no sink", "end it with .sink(a_callable)")
        if self.frames is not None:
            refuse_for_frames(
                self.policy, self.lists, self.chosen, is_parallel=self.width > 1 or self.order is not None
            )
            return Plan((), self.sinks, self.policy, "none")
        if any(isinstance(step.function, JsonColumns) for step in self.steps):
            raise SettingsError(
                "tg.json(schema=...) is for .dataframe(...)", "decode single records with .map(tg.json)"
            )
        order = self.order or "partition"
        if order == "partition" and self.policy.delays:
            raise SettingsError(
                "retry_later lets others pass the failed record, and order is 'partition'",
                'give the order up with .parallel(order="key") or "none", or retry in place: tg.retry(3)',
            )
        if self.lists is not None and any(sink.when is not None for sink in self.sinks):
            raise SettingsError("a sink has a `when`, which chooses values, and gets lists", "filter before the batch")
        if self.lists is not None and any(sink.collects for sink in self.sinks):
            raise SettingsError(
                "a sink that writes in bulk by itself stands behind a batch", "leave batch() out: it gains nothing here"
            )
        kinds = {type(sink.write) for sink in self.sinks if sink.collects}
        if len(kinds) > 1:
            names = " and ".join(sorted(f"tg.{kind.__name__.removesuffix('Sink').lower()}" for kind in kinds))
            raise SettingsError(
                f"{names} cannot write in one transaction", "use two pipelines, each with a group of its own"
            )
        return Plan(self.steps, self.sinks, self.policy, order, self.width, self.lists)

    def resolved(self, more: Mapping[str, object] | None = None) -> Resolved:
        """Return every setting of this pipeline with its source."""
        if more is not None and not isinstance(more, Mapping):
            raise SettingsError(f"settings={more!r} is no mapping", 'write settings={"commit_every": "1s"}')
        bootstrap = self.source.kafka.bootstrap if self.source.kafka is not None else None
        if bootstrap is not None and "bootstrap" in (more or {}):
            raise SettingsError(
                f"the program's own kafka={bootstrap} and the setting bootstrap exclude each other",
                "remove one of the two",
            )
        given = dict(more or {})
        own = self.source.kafka.settings if self.source.kafka is not None else {}
        client = {**own, **given.pop(CLIENT, {})}  # type: ignore[dict-item]  # resolve() refuses what is no table
        return resolve({"bootstrap": bootstrap, **self.chosen, **given, CLIENT: client})

    def _with_writer(self, write: object, when: object) -> Pipeline:
        if self.frames is None:
            raise SettingsError(
                "tg.write gets DataFrames, and this pipeline makes none", "put .dataframe(fn) before it"
            )
        if not isinstance(write, FrameWriter):
            raise SettingsError(
                f"sink({write!r}) stands after dataframe", "wrap it: .sink(tg.write(lambda df, round: ...))"
            )
        if when is not None:
            raise SettingsError("a sink of DataFrames has no `when`", "filter in the function: df.where(...)")
        return replace(self, sinks=(*self.sinks, Sink(write)))

    def _with_step(self, kind: Literal["map", "filter", "flat_map"], function: Callable[[Value], Value]) -> Pipeline:
        refuse_uncallable(kind, function)
        if kind == "filter":
            refuse_generator(kind, function)
        if self.frames is not None:
            raise SettingsError(
                f"{kind}({name_of(function)}) stands after dataframe", "do it in that function, with Spark's own means"
            )
        if self.sinks:
            raise SettingsError(
                f"{kind}({name_of(function)}) stands after a sink", "put all steps before the first sink"
            )
        return replace(self, steps=(*self.steps, Step(kind, function)))

    def _choose(self, name: str, value: object) -> Pipeline:
        if name in self.chosen:
            raise SettingsError(f"{name} is set twice in this pipeline", "keep one of the two")
        chosen = {**self.chosen, name: value}
        resolve({name: value for name, value in chosen.items() if name not in ("commit_every", "timeout")})
        return replace(self, chosen=chosen)


def from_kafka(
    topics: str | Iterable[str] | re.Pattern[str] | At,
    *,
    group: str,
    kafka: Kafka | str | None = None,
    starting: Starting | FromTable = "earliest",
    lost: Lost = "stop",
) -> Pipeline:
    """Begin a pipeline: read one or several topics as a consumer group.

    `topics` is a name, several names, a compiled pattern (`re.compile(r"orders-.*")`: every topic
    whose whole name matches, those that come later too, from their beginning; never Tidegate's own
    retry, redrive and dead topics), or `tg.at(...)` for chosen partitions at chosen offsets.

    `starting` is used only for a topic for which the group has no commit at all, and the positions
    it chooses are committed before the first record is read: `earliest` (all that is retained),
    `latest` (only what comes from now on), `none` (that is an error), `tg.from_table(...)` (where an
    offset table says). `kafka` is an address or a `tg.Kafka(address, client_settings)`; default: the
    setting `bootstrap`.

    `lost` says what happens when the group's mark is no longer in the log: retention took the
    records, or the topic was deleted and made anew. `stop` (the run ends and the group is not moved),
    `earliest` (go on with the first record that is there), `latest` (go on with what comes from now
    on). How many records were lost is always told.
    """
    refuse_group(group)
    if kafka is not None and not isinstance(kafka, str | Kafka):
        raise SettingsError(f"kafka={kafka!r} is no address", 'write kafka="localhost:9092", or pass a tg.Kafka(...)')
    if not isinstance(starting, FromTable) and starting not in _STARTINGS:
        raise SettingsError(
            f"starting={starting!r} is unknown", f"choose one of {', '.join(_STARTINGS)}, or tg.from_table()"
        )
    if isinstance(starting, FromTable) and isinstance(topics, At):
        raise SettingsError("tg.at and tg.from_table both say where partitions start", "keep one of the two")
    if lost not in _LOSTS:
        raise SettingsError(f"lost={lost!r} is unknown", f"choose one of {', '.join(_LOSTS)}")
    return Pipeline(
        Source(
            topic_names(topics),
            group,
            Kafka(kafka) if isinstance(kafka, str) else kafka,
            starting,
            lost,
            topics if isinstance(topics, re.Pattern) else None,
            topics if isinstance(topics, At) else None,
        )
    )
