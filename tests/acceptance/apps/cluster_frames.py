"""Numbers into Parquet; the first task that writes says who it is, and waits until a file lets it go on."""

import os
import time
from pathlib import Path

import tidegate as tg

out, hold = os.environ["OUT"], Path(os.environ["HOLD"])


def wait_a_while(batches):
    Path(f"{hold}.{os.getpid()}").touch()
    while not hold.exists():
        time.sleep(0.05)
    yield from batches


def write(df, round):  # noqa: A002  # the documented name
    tg.parquet(out)(df.mapInArrow(wait_a_while, df.schema), round)


pipeline = (
    tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"])
    .dataframe(lambda df: df.select("partition", "offset"), records=600)
    .sink(tg.write(write))
)
