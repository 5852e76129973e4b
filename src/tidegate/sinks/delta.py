"""Delta tables, each round once: Delta remembers the number of the last round that was written for a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.errors import SettingsError
from tidegate.frames import DataFrame, FrameRound, FrameWriter


def delta(
    path: str | None = None,
    *,
    table: str | None = None,
    partition_by: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> FrameWriter:
    """Append rounds to a Delta table, by path or by name: `sink(tg.delta("/data/orders"))`. Every record is there once.

    The session needs Delta's package for its Spark version (see docs/how-to/use-dataframes.md). Delta itself drops a
    round that it has already: `txnAppId` is the group, `txnVersion` the round's number, which grows, by a rewind too.
    """
    if (path is None) == (table is None):
        raise SettingsError("delta(...) needs a path or a table, and not both", 'tg.delta("/data/orders")')
    columns = list(partition_by)

    def write_round(frame: DataFrame, round_: FrameRound) -> None:
        once = {"txnAppId": f"tidegate:{round_.group}", "txnVersion": str(round_.number)}
        writer = frame.write.format("delta").mode("append").options(**{**(options or {}), **once})
        writer = writer.partitionBy(*columns) if columns else writer
        try:
            writer.save(path) if table is None else writer.saveAsTable(table)
        except Exception as error:
            if "DATA_SOURCE_NOT_FOUND" in str(error) or "NoSuchMethodError" in str(error):
                raise SettingsError(
                    f"this Spark ({frame.sparkSession.version}) has no Delta package that fits it",
                    "start the session with io.delta:delta-spark_SPARK_2.13 of its own Spark version",
                ) from error
            raise

    return FrameWriter(write_round, f"delta({path or table})", "is in the table once")
