"""Orders as DataFrames, some of them bad; what is written is noted with the id of its round."""

import json
import os
from pathlib import Path

import checks

import tidegate as tg

written = Path(os.environ["LOG"] + ".written")


def check(df):
    good = tg.bad(df, "value.amount < 0", "an amount below zero")
    return good.select("partition", "offset", "value.amount").mapInArrow(
        checks.pass_on, "partition int, offset bigint, amount double"
    )


def write(df, round):  # noqa: A002  # the documented name
    rows = [[row.partition, row.offset] for row in df.collect()]
    with written.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"round": round.id, "rows": rows}) + "\n")


sink = tg.parquet("/nowhere") if os.environ.get("TO_PARQUET") else tg.write(write)
pipeline = (
    tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"])
    .map(tg.json(schema="id long, amount double"))
    .dataframe(check, records=200)
    .sink(sink)
)
