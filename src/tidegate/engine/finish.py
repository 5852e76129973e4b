"""When a run that is to end when caught up has caught up: retry topics included.

The ends of the sources are read once, at the start. When all of ours are reached, the ends of the retry and
redrive topics are read, and again, until a pass finds them reached: what a pass wrote there, the next one waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from tidegate.beside import THIS_MACHINE, Beside
from tidegate.engine.board import Board
from tidegate.errors import TidegateError
from tidegate.kafka.admin import Admin
from tidegate.records import Partition

AGAIN_SECONDS = 1.0


@dataclass(frozen=True)
class EndsFound:
    """Where the retry topics end."""

    found: Future[dict[Partition, int]]


class Finish:
    """Says when it is over."""

    def __init__(
        self,
        admin: Admin,
        retry_topics: Callable[[], list[str]],
        post: Callable[[EndsFound], None],
        beside: Beside = THIS_MACHINE,
    ) -> None:
        self._now = beside.now
        self._admin = admin
        self._retry_topics = retry_topics
        self._post = post
        self._asker = beside.open_asker("finish")
        self._is_asking = False
        self._is_over = False
        self._not_before = 0.0

    def is_over(self, board: Board) -> bool:
        """Whether everything is settled, what came into the retry topics meanwhile too."""
        if not board.has_caught_up:
            return False
        names = set(self._retry_topics())
        owned = [partition for partition in board.owned if partition.topic in names]
        if not owned or self._is_over:
            return True
        if not self._is_asking and self._now() >= self._not_before:
            self._is_asking = True
            future = self._asker.submit(self._admin.ends, owned)
            future.add_done_callback(lambda found: self._post(EndsFound(found)))
        return False

    def take(self, ends: EndsFound, board: Board) -> None:
        """Go on up to these ends; it is over if they are reached."""
        self._is_asking = False
        self._not_before = self._now() + AGAIN_SECONDS
        try:
            found: Mapping[Partition, int] = ends.found.result()
        except TidegateError:
            return
        board.go_on_until(found)
        self._is_over = board.has_caught_up

    def close(self) -> None:
        """Ask no more."""
        self._asker.shutdown(wait=False)
