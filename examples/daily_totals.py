"""Totals per day, with Spark SQL and a writer of one's own: a repeated round replaces what it wrote before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tidegate as tg

TOTALS = """
    select date(timestamp) as day, count(*) as placed, sum(value.amount) as amount
    from {orders} group by 1 order by 1
"""


def per_day(df: Any) -> Any:
    return df.sparkSession.sql(TOTALS, orders=df)


def replace(df: Any, round: tg.FrameRound) -> None:  # noqa: A002  # what it is
    rows = [[str(row["day"]), row["placed"], row["amount"]] for row in df.collect()]
    folder = Path("totals")
    folder.mkdir(exist_ok=True)
    (folder / f"{round.id}.json").write_text(json.dumps(rows), encoding="utf-8")


totals = (
    tg.from_kafka("orders", group="totals")
    .map(tg.json(schema="id long, amount double"))
    .dataframe(per_day, every="1s")
    .sink(tg.write(replace))
)

if __name__ == "__main__":
    totals.run()
