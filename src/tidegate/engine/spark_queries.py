"""The streaming queries of a Spark session, followed: Spark's own events, and a look where they come too late."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from tidegate.errors import SettingsError

OnProgress = Callable[[str], None]
"""Called with the progress of a finished batch, as JSON, by a thread of Spark's."""


class Queries:
    """One query, or all queries of a session. Works on classic Spark and over Spark Connect."""

    def __init__(self, query_or_spark: Any, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._query = query_or_spark if hasattr(query_or_spark, "lastProgress") else None
        self._session = _session_of(query_or_spark)
        self._listener = _listener(self._on_event)
        self._session.streams.addListener(self._listener)
        self.look()

    def look(self) -> None:
        """Report the last finished batch of each query now: events come late, and not at all once Spark stops."""
        with contextlib.suppress(Exception):  # Spark may be gone by now
            for query in self._session.streams.active if self._query is None else [self._query]:
                if query.lastProgress is not None:
                    self._on_progress(query.lastProgress.json)

    def close(self) -> None:
        """Follow no longer."""
        with contextlib.suppress(Exception):
            self._session.streams.removeListener(self._listener)

    def _on_event(self, progress: Any) -> None:
        if self._query is None or str(progress.id) == str(self._query.id):
            self._on_progress(progress.json)


def _session_of(query_or_spark: Any) -> Any:
    if hasattr(query_or_spark, "streams"):
        return query_or_spark
    if not hasattr(query_or_spark, "lastProgress"):
        raise SettingsError(
            f"track follows a streaming query or a Spark session, not {type(query_or_spark).__name__}",
            "give it what start() returned, or the session",
        )
    from pyspark.sql import SparkSession  # noqa: PLC0415  # slow to import

    return getattr(query_or_spark, "_session", None) or SparkSession.builder.getOrCreate()


def _listener(on_event: Callable[[Any], None]) -> Any:
    from pyspark.sql.streaming import StreamingQueryListener  # noqa: PLC0415  # slow to import

    class Listener(StreamingQueryListener):  # type: ignore[misc]  # PySpark has no types for mypy here
        def onQueryStarted(self, event: Any) -> None:
            """Nothing is finished yet."""

        def onQueryProgress(self, event: Any) -> None:
            on_event(event.progress)

        def onQueryIdle(self, event: Any) -> None:
            """Nothing new is finished."""

        def onQueryTerminated(self, event: Any) -> None:
            """What it has finished was reported before."""

    return Listener()
