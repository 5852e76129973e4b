"""Numbers into one kind of sink, KIND, a little slowly, so that a kill or a signal finds it at work."""

import os
import time
from pathlib import Path

import tidegate as tg

KIND = os.environ["KIND"]
SECONDS = float(os.environ.get("SECONDS_EACH", "0.002"))
OUT = os.environ["OUT"]


def note(words):
    """Append a line; one call of the system, so that no kill leaves half of it."""
    with Path(OUT).open("ab", buffering=0) as file:
        file.write(f"{words}\n".encode())


def slowly(value):
    time.sleep(SECONDS)
    return int(value)


class Object:
    """A sink with something to open and to close."""

    def open(self):
        if "REFUSES" in os.environ:
            raise OSError("it cannot be opened")
        note(f"opened {os.getpid()}")

    def write(self, value):
        note(value)

    def close(self):
        note(f"closed {os.getpid()}")


def slow_batches(batches):
    for batch in batches:
        time.sleep(SECONDS * batch.num_rows)
        yield batch


def numbers(df):
    found = df.selectExpr("cast(cast(value as string) as bigint) as id")
    return found.mapInArrow(slow_batches, found.schema)


source = tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"])
if KIND == "function":
    pipeline = source.map(slowly).sink(note)
elif KIND == "object":
    pipeline = source.map(slowly).sink(Object())
elif KIND == "http":
    pipeline = source.map(slowly).sink(tg.http(os.environ["URL"]))
elif KIND == "kafka":
    pipeline = source.map(slowly).map(lambda one: {"id": one}).sink(tg.kafka(OUT, exactly_once=True))
elif KIND == "postgres":
    table = tg.postgres(os.environ["DSN"], table="orders", columns={"id": "bigint not null"})
    pipeline = source.map(slowly).map(lambda one: {"id": one}).sink(table)
elif KIND == "parquet":
    pipeline = source.dataframe(numbers, records=400).sink(tg.parquet(OUT))
