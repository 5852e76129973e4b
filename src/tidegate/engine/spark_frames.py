"""The rows of a DataFrame round, in Spark's own words: read, decoded, marked as bad, written to the dead letters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from tidegate.engine.frame_tasks import COLUMNS, read_slice, write_letters
from tidegate.errors import SettingsError, Undecodable
from tidegate.formats.avro_columns import column_of
from tidegate.formats.json import JsonColumns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PLACE = ("topic", "partition", "offset")
SHOWN = ("key", "value", *PLACE, "timestamp", "headers")
_CORRUPT = "tidegate_corrupt"
_FLAG = "tidegate_bad"
REASON_CHARACTERS = 500


@dataclass(frozen=True)
class Read:
    """What was read for a round."""

    records: int
    size: int
    undecodable: tuple[tuple[str, int, int], str] | None
    """The place of the first record that cannot be decoded, and why."""


@dataclass
class BadRows:
    """What `tg.bad` has put aside in the round that the calling thread works on."""

    marked: list[DataFrame] = field(default_factory=list)
    """Frames that are persisted, to be let go of at the end."""
    rows: list[DataFrame] = field(default_factory=list)
    """Places and reasons."""
    places: Mapping[str, int] = field(default_factory=dict)
    """The numbers by which Spark knows the columns of the place, in the rows as read; empty: it cannot be told."""


_bad_rows: ContextVar[BadRows | None] = ContextVar("bad_rows", default=None)


def collect_bad_rows(books: BadRows | None) -> None:
    """Let `tg.bad` in this thread note its rows here."""
    _bad_rows.set(books)


def bad(df: DataFrame, condition: Column | str, reason: Column | str) -> DataFrame:
    """Send the rows for which the condition holds to the dead letters, and return the others.

    Inside `dataframe(fn)`, before anything is aggregated: `df` must still have the columns topic, partition and
    offset, by which the record is found again: its raw key, value and headers are what is written. The round is
    committed when the letters are acknowledged, too. `condition` is a Column or SQL text (null counts as good),
    `reason` is text or a Column. A record that became several rows is one letter. Outside of a run it only filters.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # Spark's own habit; slow to import

    missing = [name for name in PLACE if name not in df.columns]
    if missing:
        raise SettingsError(
            f"tg.bad: the rows have no column {', '.join(missing)}, by which their records are found again",
            "call it before you aggregate, and before you drop these columns",
        )
    books = _bad_rows.get()
    if books is not None and books.places and _is_aggregated(df, books.places):
        raise SettingsError(
            "tg.bad: the rows were aggregated before, so that each stands for several records, and only one of them "
            "would be a dead letter",
            "call it before you aggregate",
        )
    holds = F.expr(condition) if isinstance(condition, str) else condition
    why = F.lit(reason) if isinstance(reason, str) else reason.cast("string")
    if books is None:
        return df.where(~F.coalesce(holds, F.expr("false")))
    # Persisted: what is decided about a row must not be decided again, or a condition by chance would lose rows.
    marked = df.withColumn(_FLAG, F.coalesce(holds, F.expr("false"))).persist()
    books.marked.append(marked)
    told = F.substring(F.coalesce(why, F.lit("no reason given")), 1, REASON_CHARACTERS)
    books.rows.append(
        marked.where(_FLAG).select(*PLACE, told.alias("tidegate_reason"), F.lit("BadRow").alias("tidegate_type"))
    )
    return marked.where(~F.col(_FLAG)).drop(_FLAG)


def column_numbers(df: DataFrame) -> dict[str, int]:
    """Return the numbers by which Spark knows the columns of the place: they stay while rows are only chosen.

    Nothing, over Connect: plans are the server's there.
    """
    plan = getattr(df, "_jdf", None)
    if plan is None:
        return {}
    output = plan.queryExecution().analyzed().output()
    columns = [output.apply(at) for at in range(output.size())]
    return {one.name(): one.exprId().id() for one in columns if one.name() in PLACE}


def _is_aggregated(df: DataFrame, places: Mapping[str, int]) -> bool:
    """Whether the place of these rows is no longer that of one record, and they were aggregated on their way."""
    if column_numbers(df) == places:
        return False  # grouped by the place itself, or not at all
    waiting: list[Any] = [df._jdf.queryExecution().analyzed()]
    while waiting:
        node = waiting.pop()
        if node.nodeName() == "Aggregate":
            return True
        children = node.children()
        waiting += [children.apply(at) for at in range(children.size())]
    return False


class FrameRows:
    """The rows of one round: read once, kept until the round is over."""

    def __init__(self, spark: SparkSession, job: bytes, slices: int, decoder: Any | None) -> None:
        """`job`: what the reading tasks need, one task per slice."""
        self._decoder = decoder
        schema = COLUMNS
        if decoder is not None and not isinstance(decoder, JsonColumns):
            schema += f", tidegate_decoded {column_of(decoder.frame_schema).ddl}"
        read = spark.range(0, slices, 1, slices).mapInArrow(partial(_read, read_slice, job), schema)
        self._raw = _decoded(read, decoder).persist()

    def read(self) -> Read:
        """Read everything, and say what it was."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  # as above

        worst = F.min(
            F.when(F.col("tidegate_undecodable").isNotNull(), F.struct(*PLACE, F.col("tidegate_undecodable")))
        )
        found = self._raw.agg(F.count("*"), F.sum("tidegate_size"), worst).collect()[0]
        first = None if found[2] is None else ((found[2][0], found[2][1], found[2][2]), str(found[2][3]))
        return Read(int(found[0]), int(found[1] or 0), first)

    @property
    def shown(self) -> DataFrame:
        """The DataFrame that users get: without what cannot be decoded."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  # as above

        if self._decoder is None:
            return self._raw.select(*SHOWN)
        value = F.col("tidegate_decoded").alias("value")
        columns = [value if name == "value" else F.col(name) for name in SHOWN]
        return self._raw.where("tidegate_undecodable is null").select(*columns)

    def undecodable(self) -> DataFrame:
        """Places of the records that cannot be decoded, and why."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  # as above

        told = F.substring("tidegate_undecodable", 1, REASON_CHARACTERS).alias("tidegate_reason")
        kind = F.lit(Undecodable.__name__).alias("tidegate_type")
        return self._raw.where("tidegate_undecodable is not null").select(*PLACE, told, kind)

    def letters(self, places: Iterable[DataFrame]) -> DataFrame | None:
        """The records of these rows, raw; None if there are none. One with several rows comes as often, in a row."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  # as above

        found = list(places)
        rows = reduce(lambda one, other: one.unionByName(other), found) if found else None
        if rows is None or rows.isEmpty():
            return None
        # Sent to the tasks that hold the records: a shuffle would cost two hundred tasks, as Spark is usually set.
        return self._raw.join(F.broadcast(rows), list(PLACE))

    def let_go(self) -> None:
        """The round is over."""
        self._raw.unpersist()


def write_dead(letters: DataFrame, job: bytes) -> int:
    """Write these dead letters; return how many, when all are acknowledged."""
    answers = letters.mapInArrow(partial(_write, write_letters, job), "written bigint").collect()
    return sum(int(one["written"]) for one in answers)


def check_schema(decoder: Any | None) -> None:
    """Refuse a schema that Spark does not understand, before anything begins."""
    if isinstance(decoder, JsonColumns):
        _json_type(decoder)
    elif decoder is not None:
        column_of(decoder.frame_schema)


def _decoded(read: DataFrame, decoder: Any | None) -> DataFrame:
    if not isinstance(decoder, JsonColumns):
        return read
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # as above
    from pyspark.sql.types import StringType, StructType  # noqa: PLC0415  # as above

    kind = _json_type(decoder)
    text = F.col("value").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    if isinstance(kind, StructType):
        kind = StructType([*kind.fields]).add(_CORRUPT, StringType())
        parsed = read.withColumn("tidegate_parsed", F.from_json(text, kind, options))
        broken = F.col("tidegate_parsed").isNull() | F.col(f"tidegate_parsed.{_CORRUPT}").isNotNull()
        value = F.col("tidegate_parsed").dropFields(_CORRUPT)
    else:
        parsed = read.withColumn("tidegate_parsed", F.from_json(text, kind, options))
        broken, value = F.col("tidegate_parsed").isNull(), F.col("tidegate_parsed")
    why = F.lit(f"no JSON of the schema {kind_name(decoder)}")
    bad_one = F.col("value").isNotNull() & broken
    return (
        parsed.withColumn("tidegate_undecodable", F.when(bad_one, why))
        .withColumn("tidegate_decoded", F.when(F.col("value").isNotNull() & ~broken, value))
        .drop("tidegate_parsed")
    )


def kind_name(decoder: JsonColumns) -> str:
    """Return a schema as people read it."""
    schema = decoder.frame_schema
    return schema if isinstance(schema, str) else str(getattr(schema, "simpleString", lambda: schema)())


def _json_type(decoder: JsonColumns) -> Any:
    schema = decoder.frame_schema
    if not isinstance(schema, str):
        return schema
    from pyspark.sql.types import DataType  # noqa: PLC0415  # as above

    try:
        return DataType.fromDDL(schema)
    except Exception as error:
        raise SettingsError(
            f"json(schema={schema!r}) is no schema of Spark's", 'write DDL: schema="id long, amount double"'
        ) from error


# --- inside the workers ---------------------------------------------------------------------------


def _read(read: Callable[[bytes, int], Iterator[Any]], job: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Read the slices whose numbers come. The input is drained: else Spark would end this worker."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from read(job, int(number))


def _write(
    write: Callable[[bytes, Iterable[Mapping[str, Any]]], int], job: bytes, batches: Iterator[Any]
) -> Iterator[Any]:
    """Write the letters that come."""
    import pyarrow as pa  # noqa: PLC0415  # slow to import: no command should wait for it

    count = write(job, (row for batch in batches for row in batch.to_pylist()))
    yield pa.record_batch([pa.array([count], pa.int64())], names=["written"])
