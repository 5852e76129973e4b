"""The history of a run, written beside it (step 7), and the requests that others have left there for it.

The history is never the truth: whatever happens to it, the run goes on, and what was asked for is done once, since
the number of the last rewind lies in the group's own commits.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import replace

from tidegate.engine.control import RunStatus
from tidegate.engine.rewinder import RewindAsked
from tidegate.engine.tally import SeenMishap
from tidegate.errors import TidegateError
from tidegate.history.chosen import chosen_history
from tidegate.history.rows import FailureRow, MarkRow, RunRow
from tidegate.history.store import History
from tidegate.history.writer import HistoryWriter
from tidegate.kafka.admin import Admin
from tidegate.records import Partition
from tidegate.settings import Settings

logger = logging.getLogger("tidegate.history")

LOOK_SECONDS = 1.0
ENDS = {"ended": "done", "failed": "failed"}


class Chronicle:
    """Writes what a run publishes, and brings it what was asked for. `take` belongs to the driver's thread."""

    def __init__(
        self,
        history: History,
        writer: HistoryWriter,
        cluster: str,
        topic_id: Callable[[Partition], str],
        post: Callable[[RewindAsked], None],
    ) -> None:
        self._history = history
        self._writer = writer
        self._cluster = cluster
        self._topic_id = topic_id
        self._post = post
        self._noted: dict[Partition, tuple[int, int]] = {}
        self._mishaps_noted = 0
        self._status: RunStatus | None = None
        self._asked: dict[int, RewindAsked] = {}
        self._known_replays: dict[Partition, int] = {}
        """Rewinds that were applied, as the history knows."""
        self._ending = threading.Event()
        self._looker = threading.Thread(target=self._look_out, name="requests", daemon=True)

    def take(self, status: RunStatus) -> None:
        """Note what is new; the writer writes it when it is time to."""
        if self._status is None:
            self._looker.start()
        self._status = status
        marks = {}
        for one in status.partitions:
            if one.committed is not None and self._noted.get(one.partition) != (one.committed, one.replay):
                self._noted[one.partition] = (one.committed, one.replay)
                marks[one.partition] = MarkRow(one.committed, status.at, self._topic_id(one.partition), one.replay)
        if marks:
            self._writer.note_marks(marks)
        self._writer.note_counts(status.counts)
        self._writer.note_member(status.member)
        if status.state not in ENDS:
            self._writer.note_state(status.state)
        for mishap in status.mishaps:
            if mishap.number > self._mishaps_noted:
                self._mishaps_noted = mishap.number
                self._writer.note_failure(_row(mishap))

    def close(self) -> None:
        """Write how it ended, within a few seconds, or not at all."""
        self._ending.set()
        status = self._status
        if status is None:  # it ended before it had joined the group
            self._writer.close("failed")
            return
        self._looker.join(LOOK_SECONDS * 2)
        self._writer.close(ENDS.get(status.state, "failed"), status.error or "")

    # --- requests: in a thread of their own

    def _look_out(self) -> None:
        while not self._ending.wait(LOOK_SECONDS):
            try:
                self._look()
            except TidegateError as error:
                logger.debug("no requests can be read: %s", error, extra={"action": "requests_unread"})
            except Exception:
                logger.exception("requests cannot be read", extra={"action": "requests_unread"})

    def _look(self) -> None:
        status = self._status
        if status is None or not status.partitions:
            return
        self._answer(status.group)
        replays = {one.partition: one.replay for one in status.partitions if one.mark is not None}
        found = self._history.requests(self._cluster, status.group, replays)
        wanted: dict[int, dict[Partition, int]] = defaultdict(dict)
        for partition, request in found.items():
            if request.replay > replays[partition]:
                wanted[request.replay][partition] = request.mark
        self._note_done(status)
        self._take_back({request.replay for request in found.values()})
        for replay, moves in sorted(wanted.items()):
            if replay not in self._asked:
                self._asked[replay] = RewindAsked(replay, moves)
                self._post(self._asked[replay])

    def _answer(self, group: str) -> None:
        """Say what was done; what was refused (a partition has left us meanwhile) is looked at again."""
        for replay, asked in list(self._asked.items()):
            if asked.answer.done():
                del self._asked[replay]
                error = asked.answer.exception()
                if error is None:
                    self._history.applied(self._cluster, group, replay, asked.answer.result())
                else:
                    logger.warning("%s", error, extra={"action": "rewind_refused"})

    def _take_back(self, waiting: Collection[int]) -> None:
        """What is asked for no longer is not begun: whoever asked was told that it was taken back.

        What is begun already cannot be cancelled: it is done, and the history is told so.
        """
        for replay in [number for number in self._asked if number not in waiting]:
            if self._asked[replay].answer.cancel():
                del self._asked[replay]

    def _note_done(self, status: RunStatus) -> None:
        """A request whose number the commit has was applied, whatever the history says of it.

        Others of it may wait to be moved; who moved it could not say so any more; or it was taken back while its
        answer was on the way.
        """
        moved: dict[int, dict[Partition, int]] = defaultdict(dict)
        for one in status.partitions:
            if one.mark is not None and one.replay and self._known_replays.get(one.partition) != one.replay:
                moved[one.replay][one.partition] = one.mark
        for replay, marks in moved.items():
            self._history.applied(self._cluster, status.group, replay, marks)
            self._known_replays |= dict.fromkeys(marks, replay)


def open_chronicle(
    run: RunRow,
    settings: Settings,
    admin: Admin,
    topic_id: Callable[[Partition], str],
    post: Callable[[RewindAsked], None],
) -> Chronicle | None:
    """Begin to write the history that the settings name; None where it is off."""
    history = chosen_history(settings.history)
    if history is None:
        return None
    writer = HistoryWriter(history, settings.history_every, keep_seconds=settings.history_keep)
    cluster = admin.cluster_id()
    writer.begin(replace(run, cluster=cluster))
    return Chronicle(history, writer, cluster, topic_id, post)


def _row(mishap: SeenMishap) -> FailureRow:
    failure = mishap.failure
    return FailureRow(
        failure.partition,
        failure.record_offset,
        failure.error_type,
        failure.message,
        mishap.at,
        failure.attempts,
        fate=mishap.fate,
    )
