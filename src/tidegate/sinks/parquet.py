"""Parquet files, each round whole and once: one folder per round, which appears by one rename.

PATH/tidegate_round=ID/part-*.parquet, which Spark and others read as one table with a column `tidegate_round`.
A round is written beside, in PATH/_tidegate, which readers do not look into, and renamed when it is complete.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.errors import SettingsError
from tidegate.frames import DataFrame, FrameRound, FrameWriter

logger = logging.getLogger("tidegate.frames")

COLUMN = "tidegate_round"
STAGING = "_tidegate"


def parquet(path: str, *, partition_by: Sequence[str] = (), options: Mapping[str, Any] | None = None) -> FrameWriter:
    """Write rounds as Parquet under a path: `sink(tg.parquet("/data/orders"))`. Every record is there once.

    Each round is a folder `tidegate_round=ID`; one that is there already is not written again. Readers never see
    half a round, where the file system renames a folder at once: local disks and HDFS do, object stores do not.
    `partition_by` and `options` go to Spark's writer.
    """
    if not path:
        raise SettingsError(f"parquet({path!r}) is no path", 'pass one: tg.parquet("/data/orders")')
    columns = list(partition_by)
    place = path.rstrip("/") or "/"

    def write_round(frame: DataFrame, round_: FrameRound) -> None:
        if COLUMN in frame.columns:
            raise SettingsError(f"the rows have a column {COLUMN}, as the folders have", "rename it in the function")
        files = _Files(frame.sparkSession, place)
        target = f"{place}/{COLUMN}={round_.id}"
        if files.exists(target):
            logger.info("round %s is written already", round_.id, extra={"action": "round_known"})
        else:
            # A name of its own for each attempt: tasks of one that died may still be writing.
            staged = f"{place}/{STAGING}/{round_.id}.{uuid.uuid4().hex[:8]}"
            frame.write.mode("overwrite").options(**(options or {})).partitionBy(*columns).parquet(staged)
            try:
                files.rename(staged, target)
            except Exception:
                if not files.exists(target):
                    raise
                logger.info("round %s was written by somebody else", round_.id, extra={"action": "round_known"})
                files.clear(f"{place}/{STAGING}", f"{round_.id}.")
        if round_.is_repeat:
            files.clear(f"{place}/{STAGING}", f"{round_.id}.")

    return FrameWriter(write_round, f"parquet({path})", "is in the files once", "cannot rename folders")


class _Files:
    """The file system of a path, by Hadoop's own client in the JVM."""

    def __init__(self, spark: Any, place: str) -> None:
        self._jvm = jvm = spark._jvm
        context = spark.sparkContext
        conf = context._jsc.hadoopConfiguration()
        root = jvm.org.apache.hadoop.fs.Path(place)
        uri = root.getFileSystem(conf).makeQualified(root).toUri()
        self._files = jvm.org.apache.hadoop.fs.FileContext.getFileContext(uri, conf)
        self._nothing = context._gateway.new_array(getattr(jvm.org.apache.hadoop.fs, "Options$Rename"), 0)

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder of this name."""
        return bool(self._files.util().exists(self._path(path)))

    def rename(self, source: str, target: str) -> None:
        """Rename a folder; it is an error if the other is there: somebody who repeats the same round was quicker."""
        self._files.rename(self._path(source), self._path(target), self._nothing)

    def clear(self, folder: str, prefix: str) -> None:
        """Delete what earlier attempts at a round have left in a folder."""
        if not self.exists(folder):
            return
        for one in self._files.util().listStatus(self._path(folder)):
            if one.getPath().getName().startswith(prefix):
                self._files.delete(one.getPath(), True)  # noqa: FBT003  # Hadoop's own call: and all that is in it

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)
