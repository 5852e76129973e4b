"""Orders into Parquet, in rounds: each record is in the files once, whatever is killed when.

Read the folder "bills" as one table. Orders without an amount go to the dead letters of the group.
"""

from __future__ import annotations

from typing import Any

import tidegate as tg


def to_bills(df: Any) -> Any:
    df = tg.bad(df, "value.amount is null", "an order without an amount")
    return df.selectExpr("value.id", "value.amount * 1.2 as total", "partition", "offset")


bills = (
    tg.from_kafka("orders", group="bills")
    .map(tg.json(schema="id long, amount double"))
    .dataframe(to_bills)
    .sink(tg.parquet("bills"))
    .on_error(tg.hold(), tg.retry(3))
)

if __name__ == "__main__":
    bills.run()
