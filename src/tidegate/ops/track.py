"""Existing Structured Streaming queries, seen by Kafka's tools: each finished batch becomes a commit of a group.

The query itself is never touched: it goes on from its checkpoint, whatever becomes of the commits. They are sent
by a thread of their own, the newest only, again and again until the broker has them.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tidegate.engine.query_progress import BatchEnd, read_progress
from tidegate.engine.spark_queries import Queries
from tidegate.errors import GroupHasMembers, SettingsError, TidegateError
from tidegate.ops.cluster import chosen_cluster

if TYPE_CHECKING:
    from tidegate.kafka.admin import Admin
    from tidegate.kafka.connection import Kafka
    from tidegate.records import Partition

logger = logging.getLogger("tidegate.track")

AGAIN_SECONDS = 2.0
"""After a commit that the broker did not take."""
FRESH_SECONDS = 3600.0
"""A group without members forgets a partition a week after its last commit, whatever runs: so they are repeated."""
CLOSE_SECONDS = 10.0


@dataclass(frozen=True)
class Tracked:
    """Where a query is done in one partition, by the last batch that read it."""

    end: int
    batch: BatchEnd


def track(query_or_spark: Any, *, group: str, kafka: Kafka | None = None) -> Tracker:
    """Commit the end offsets of each finished batch of a streaming query to a group, so that lag tools see them.

    Give a query, or a session for all queries of it that read from Kafka. `kafka` is the cluster that they read;
    without it the settings say which. The group must have no members: it is there to be looked at.

        query = orders.writeStream.foreachBatch(write).start()
        with tg.track(query, group="billing"):
            query.awaitTermination()
    """
    if not group:
        raise SettingsError("track needs the name of a group", 'say which: tg.track(query, group="billing")')
    return Tracker(query_or_spark, group, chosen_cluster(kafka).admin)


class Tracker:
    """Follows queries until it is closed, or the program ends."""

    def __init__(self, query_or_spark: Any, group: str, admin: Admin) -> None:
        self._group = group
        self._admin = admin
        self._changed = threading.Condition()
        self._known: dict[Partition, Tracked] = {}
        self._waiting: set[Partition] = set()
        self._refused: set[tuple[str, str]] = set()
        self._is_closing = False
        self._sent_all = time.monotonic()
        admin.group_members(group)  # a cluster that cannot be reached is better known at once
        self._queries = Queries(query_or_spark, self._on_progress)
        self._thread = threading.Thread(target=self._send, name="tidegate-track", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def marks(self) -> dict[Partition, int]:
        """Where the queries are done, by their last finished batches."""
        with self._changed:
            return {partition: one.end for partition, one in self._known.items()}

    def flush(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Wait until the group has the ends of all batches that are finished now; False if it took too long."""
        self._queries.look()
        deadline = time.monotonic() + seconds
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Commit what is finished, and follow no longer. The queries go on."""
        if self._is_closing:
            return
        atexit.unregister(self.close)
        is_done = self.flush()
        self._queries.close()
        with self._changed:
            self._is_closing = True
            left = sorted(map(str, self._waiting))
            self._changed.notify_all()
        self._thread.join(CLOSE_SECONDS)
        if not is_done:
            logger.warning(
                "group %s does not have the ends of the last batches of %s: the next batch commits them",
                self._group,
                ", ".join(left),
            )

    def __enter__(self) -> Self:
        """Follow until the end of the block."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close."""
        self.close()

    # --- called by Spark's thread: it must not wait

    def _on_progress(self, text: str) -> None:
        """Take a finished batch in. Never raises: the query has nothing to do with our troubles."""
        try:
            batch = read_progress(text)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("the progress of a query cannot be read: %r", error)
            return
        if batch is None:
            return
        with self._changed:
            for partition, end in batch.ends.items():
                self._note(partition, end, batch)
            self._changed.notify_all()

    def _note(self, partition: Partition, end: int, batch: BatchEnd) -> None:
        known = self._known.get(partition)
        if known is not None and known.batch.query != batch.query:
            self._refuse(partition, known.batch.query, batch.query)
            return
        # Events may come after a look that has seen a later batch.
        if known is None or (batch.batch, end) > (known.batch.batch, known.end):
            self._known[partition] = Tracked(end, batch)
            if known is None or known.end != end:
                self._waiting.add(partition)

    def _refuse(self, partition: Partition, first: str, second: str) -> None:
        """One group cannot say where two queries are."""
        if (partition.topic, second) not in self._refused:
            self._refused.add((partition.topic, second))
            logger.error(
                "two queries read %s: group %s follows query %s, and not %s; track each of them in a group of its own",
                partition.topic,
                self._group,
                first,
                second,
            )

    # --- the thread that commits

    def _send(self) -> None:
        said = ""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closing, FRESH_SECONDS)
                if self._is_closing:
                    return
                if time.monotonic() - self._sent_all >= FRESH_SECONDS:
                    self._waiting |= set(self._known)
                    self._sent_all = time.monotonic()
                batch = {partition: self._known[partition] for partition in self._waiting}
            why = self._commit(batch)
            if why and why != said:
                logger.warning("group %s: %s; tried again until it works", self._group, why)
            said = why
            if why:
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closing, AGAIN_SECONDS)

    def _commit(self, batch: dict[Partition, Tracked]) -> str:
        """Send a commit; return why the broker did not take it."""
        positions = {partition: (one.end, one.batch.metadata) for partition, one in batch.items()}
        try:
            self._admin.commit_for_empty_group(self._group, positions)
        except GroupHasMembers:
            return "it has members, and the broker takes commits from them alone; track in a group of its own"
        except TidegateError as error:
            return error.happened
        with self._changed:
            self._waiting -= {partition for partition, one in batch.items() if self._known[partition] == one}
            self._changed.notify_all()
        return ""
