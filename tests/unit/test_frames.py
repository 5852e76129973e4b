"""DataFrame pipelines as they are written: what fits together, what is refused, and records as Arrow."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import tidegate as tg
from tidegate.copies import Copy, Origin, clock_note, write_headers
from tidegate.engine.frame_tasks import COLUMNS, RowMessage, Rows
from tidegate.engine.frames import frames_sentence
from tidegate.formats.avro_columns import column_of

SOURCE = tg.from_kafka("orders", group="g")


def keep(df: Any) -> Any:
    return df


def nothing(_df: Any, _round: tg.FrameRound) -> None:
    pass


FRAMES = SOURCE.dataframe(keep)
DONE = FRAMES.sink(tg.write(nothing))

REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: SOURCE.dataframe("no function"), "is not callable"),  # type: ignore[arg-type]  # the mistake
    (lambda: FRAMES.dataframe(keep), "set twice"),
    (lambda: SOURCE.sink(print).dataframe(keep), "stands after a sink"),
    (lambda: SOURCE.map(tg.json).dataframe(keep), "only a decoder with a schema"),
    (lambda: SOURCE.filter(bool).dataframe(keep), "only a decoder with a schema"),
    (lambda: SOURCE.map(tg.json(schema="a int")).map(tg.json(schema="a int")).dataframe(keep), "two decoders"),
    (lambda: SOURCE.dataframe(keep, undecodable=tg.skip()), "choose tg.stop() or tg.dead_letter()"),
    (lambda: SOURCE.dataframe(keep, records=0), "frame_records"),
    (lambda: FRAMES.map(len), "stands after dataframe"),
    (lambda: FRAMES.sink(print), "wrap it"),
    (lambda: FRAMES.sink(tg.write(nothing), when=bool), "has no `when`"),
    (lambda: SOURCE.sink(tg.write(nothing)), "put .dataframe(fn) before it"),
    (FRAMES.plan, "has no sink"),
    (lambda: DONE.parallel(4).plan(), "parallel is for single records"),
    (lambda: DONE.parallel(timeout="5s").plan(), "parallel is for single records"),
    (lambda: DONE.batch(5).plan(), "batch is for single records"),
    (lambda: DONE.rate("5/s").plan(), "rate is for single records"),
    (lambda: DONE.lanes(2).plan(), "lanes is for single records"),
    (lambda: DONE.commit_every("1s", records=1).plan(), "commit_every is for single records"),
    (lambda: DONE.on_error(tg.dead_letter()).plan(), "tg.bad"),
    (lambda: DONE.on_error(tg.skip()).plan(), "tg.bad"),
    (lambda: DONE.on_error(tg.retry_later("1m")).plan(), "tg.bad"),
    (lambda: DONE.on_error(ValueError, tg.dead_letter()).plan(), "tg.bad"),
    (lambda: SOURCE.map(tg.json(schema="a int")).sink(print).plan(), "is for .dataframe(...)"),
    (lambda: tg.json(schema=""), "no schema of Spark's"),
    (lambda: tg.json(schema=5), "no schema of Spark's"),
    (lambda: tg.write(5), "is no function"),  # type: ignore[arg-type]  # the mistake
    (lambda: tg.parquet(""), "is no path"),
    (lambda: tg.jdbc("postgresql://host/db", "t"), "begins with jdbc:"),
    (tg.delta, "a path or a table"),
    (lambda: tg.delta("p", table="t"), "a path or a table"),
]


@pytest.mark.parametrize(("make", "words"), REFUSED)
def test_what_does_not_fit_together_is_refused_in_a_sentence(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(tg.SettingsError) as refused:
        make()
    assert words in str(refused.value)


def test_what_fits_is_taken() -> None:
    decoded = SOURCE.map(tg.json(schema="a int")).dataframe(keep, every="30s", records=5, undecodable=tg.dead_letter())
    whole = decoded.sink(tg.parquet("/p")).sink(tg.delta("/d")).on_error(tg.hold(), tg.retry(3), tg.stop())
    plan = whole.plan()
    assert (len(plan.sinks), plan.order) == (2, "none")
    values = whole.resolved().values
    assert (values.frame_every, values.frame_records) == (30.0, 5)
    said = frames_sentence(plan, "orders (1 partition)", "g")
    assert "is in the files once and is in the table once" in said
    assert "a round that fails waits while a sink is away, then is tried again in place 3 times, then ends" in said


def test_json_still_decodes_single_records() -> None:
    assert tg.json(b'{"a": 1}') == {"a": 1}
    assert tg.json(None) is None
    with pytest.raises(tg.Undecodable):
        tg.json(b"no json")
    with pytest.raises(tg.SettingsError):
        tg.json(schema="a int")(b"{}")


def test_a_round_knows_its_newest_rewind() -> None:
    ranges = (tg.RoundRange("t", 0, 0, 5, replay=3), tg.RoundRange("t", 1, 0, 5))
    assert tg.FrameRound("1-a", 1, "g", ranges, 10, is_repeat=False).replay == 3


# --- Avro as columns

RECORD = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "again", "type": "shop.Kind"},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": "string"}}},
    ],
}
VALUE = {
    "id": 1,
    "note": None,
    "amount": decimal.Decimal("12.50"),
    "at": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    "day": datetime.date(2026, 1, 2),
    "ref": uuid.UUID(int=7),
    "kind": "A",
    "again": "B",
    "tags": {"x": 1},
    "lines": [{"a": "b"}],
}


def test_an_avro_schema_is_a_column_and_its_values_fit() -> None:
    import pyarrow as pa  # noqa: PLC0415  # slow to import

    decoder: Any = tg.avro(RECORD)
    column = column_of(decoder.frame_schema)
    assert column.ddl == (
        "struct<`id`: bigint, `note`: string, `amount`: decimal(9, 2), `at`: timestamp, `day`: date, `ref`: string, "
        "`kind`: string, `again`: string, `tags`: map<string, int>, `lines`: array<map<string, string>>>"
    )
    decoded = decoder(tg.to_avro(RECORD)(VALUE))
    assert column.made is not None
    [back] = pa.array([column.made(decoded)], column.arrow()).to_pylist()
    expected = {**VALUE, "ref": str(VALUE["ref"]), "tags": [("x", 1)], "lines": [[("a", "b")]]}
    assert back == expected
    assert column.made(None) is None


UNREADABLE = [
    ({"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}, "within itself"),
    ({"type": "record", "name": "R", "fields": [{"name": "r", "type": ["int", "string"]}]}, "a union"),
    ({"type": "int", "logicalType": "time-millis"}, "time-millis"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 50}, "50 digits"),
]


@pytest.mark.parametrize(("schema", "words"), UNREADABLE)
def test_a_schema_that_is_no_column_is_refused(schema: dict[str, Any], words: str) -> None:
    decoder: Any = tg.avro(schema)
    with pytest.raises(tg.SettingsError, match=words):
        column_of(decoder.frame_schema)


# --- records as Arrow


class Seen:
    """A record as the client gives it."""

    def __init__(self, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None = None) -> None:
        self._value, self._headers = value, headers

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 9

    def key(self) -> bytes | None:
        return b"k"

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Sequence[tuple[str, bytes | None]] | None:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return (1, 1_700_000_000_123)


def test_records_become_rows_and_rows_records_again() -> None:
    rows = Rows(are_copies=False, decoder=None)
    own = [("a", b"1"), ("a", None)]
    rows.add(Seen(b"v", own))
    rows.add(Seen(None))
    assert (rows.count, rows.size) == (2, 1 + 1 + 3 + 1)
    batch = rows.take()
    assert batch.schema.names == [one.split()[0] for one in COLUMNS.split(", ") if "value: binary" not in one]
    first, second = batch.to_pylist()
    message = RowMessage(first)
    assert (message.topic(), message.partition(), message.offset()) == ("t", 3, 9)
    assert (message.key(), message.value(), message.headers()) == (b"k", b"v", own)
    assert message.timestamp() == (1, 1_700_000_000_123)
    assert (second["value"], second["headers"]) == (None, None)
    assert rows.count == 0


def test_a_redriven_copy_is_shown_as_the_record_that_it_was_and_notes_are_none() -> None:
    rows = Rows(are_copies=True, decoder=None)
    headers = write_headers(Copy(Origin("orders", 7, 42, 1_600_000_000_000), "g:orders:7:42"), [("a", b"1")])
    rows.add(Seen(b"v", headers))
    rows.add(Seen(None, clock_note()))
    [row] = rows.take().to_pylist()
    assert (row["topic"], row["partition"], row["offset"]) == ("orders", 7, 42)
    assert row["headers"] == [{"key": "a", "value": b"1"}]
    assert RowMessage(row).headers() == headers, "what a dead letter of it is made from"
    assert row["timestamp"].timestamp() == 1_600_000_000


@pytest.mark.parametrize(
    ("milliseconds", "seconds"),
    [(0, 0), (-5, -0.005), (None, None), (-1, None), (2**63 - 1, None), (-(2**63), None), (253_402_300_799_999, None)],
)
def test_a_time_that_is_absent_or_that_no_calendar_has_is_null(milliseconds: int | None, seconds: float | None) -> None:
    rows = Rows(are_copies=True, decoder=None)
    rows.add(Seen(b"v", write_headers(Copy(Origin("orders", 7, 42, milliseconds), "g:orders:7:42"), [])))
    [row] = rows.take().to_pylist()
    assert (None if row["timestamp"] is None else row["timestamp"].timestamp()) == seconds


def test_what_avro_cannot_read_is_a_row_with_its_reason() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    rows = Rows(are_copies=False, decoder=tg.avro(schema))
    rows.add(Seen(tg.to_avro(schema)({"id": 5})))
    rows.add(Seen(b"\xff\xff"))
    rows.add(Seen(None))
    good, bad, empty = rows.take().to_pylist()
    assert (good["tidegate_decoded"], good["tidegate_undecodable"]) == ({"id": 5}, None)
    assert bad["tidegate_decoded"] is None
    assert "do not fit the schema" in bad["tidegate_undecodable"]
    assert (empty["tidegate_decoded"], empty["tidegate_undecodable"]) == (None, None)


# --- Delta, as far as it can be seen without its package


class Noted:
    """Spark's DataFrame as far as a writer uses it: notes what it is told."""

    def __init__(self, error: Exception | None = None) -> None:
        self.told: dict[str, Any] = {}
        self.error = error
        self.version = "4.3.0"

    @property
    def write(self) -> Noted:
        return self

    @property
    def sparkSession(self) -> Noted:  # noqa: N802  # Spark's own name
        return self

    def format(self, name: str) -> Noted:
        self.told["format"] = name
        return self

    def mode(self, name: str) -> Noted:
        self.told["mode"] = name
        return self

    def options(self, **given: str) -> Noted:
        self.told |= given
        return self

    def save(self, path: str) -> None:
        if self.error is not None:
            raise self.error
        self.told["path"] = path


def test_delta_is_told_which_round_it_is_so_that_it_drops_a_repeat() -> None:
    frame = Noted()
    tg.delta("/d", options={"mergeSchema": "true"})(frame, tg.FrameRound("17-a", 17, "g", (), 5, is_repeat=True))
    assert frame.told == {
        "format": "delta",
        "mode": "append",
        "mergeSchema": "true",
        "txnAppId": "tidegate:g",
        "txnVersion": "17",
        "path": "/d",
    }


@pytest.mark.parametrize("words", ["[DATA_SOURCE_NOT_FOUND] delta", "java.lang.NoSuchMethodError: 'void ...'"])
def test_a_spark_without_a_delta_that_fits_says_so(words: str) -> None:
    with pytest.raises(tg.SettingsError, match=r"this Spark \(4\.3\.0\) has no Delta package that fits it"):
        tg.delta("/d")(Noted(RuntimeError(words)), tg.FrameRound("17-a", 17, "g", (), 5, is_repeat=False))
    with pytest.raises(RuntimeError, match="the disk is full"):
        tg.delta("/d")(Noted(RuntimeError("the disk is full")), tg.FrameRound("1-a", 1, "g", (), 5, is_repeat=False))
