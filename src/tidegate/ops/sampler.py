"""A background look at all groups of a cluster, so that pages and metrics answer from memory."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Self

from tidegate.errors import TidegateError
from tidegate.ops.model import GroupLag, LagPoint, View
from tidegate.ops.survey import Survey

if TYPE_CHECKING:
    from types import TracebackType

    from tidegate.ops.cluster import Cluster
    from tidegate.ops.verdicts import Limits

logger = logging.getLogger("tidegate.ops")

_RECORD_SECONDS = 1.0
"""How long one look may read records for their times. What is left over comes with the next looks."""
_ASKED_SECONDS = 60.0
"""For so long a group that somebody asked for is looked at before the others."""


class Sampler:
    """Looks at all groups every `every` seconds, from `start` to `close`. Safe for any thread.

    While the broker is away the last known groups stay, with the reason; it goes on by itself when the broker is back.
    It keeps one connection for marks and one for records, whatever the number of groups.
    """

    def __init__(
        self, cluster: Cluster, *, every: float = 5.0, points: int = 720, limits: Limits | None = None
    ) -> None:
        self._cluster = cluster
        self._every = every
        self._points = points
        self._limits = limits
        self._lock = threading.Lock()
        self._looked = threading.Condition(self._lock)
        self._wake = threading.Event()
        self._is_closed = False
        self._groups: dict[str, GroupLag] = {}
        self._trails: dict[str, deque[LagPoint]] = {}
        self._asked: dict[str, float] = {}
        self._at: datetime | None = None
        self._seen: float | None = None
        self._problem: str | None = None
        self._looks = 0
        self._is_looking = False
        self._thread = threading.Thread(target=self._run, name="tidegate-sampler", daemon=True)

    def start(self) -> Self:
        """Begin to look."""
        self._thread.start()
        return self

    def close(self) -> None:
        """End, and close the connections."""
        self._is_closed = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(self._cluster.timeout_seconds + _RECORD_SECONDS)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def view(self) -> View:
        """Return what was seen last, how old it is, and why there is nothing newer where the last look failed."""
        with self._lock:
            groups = tuple(self._groups[name] for name in sorted(self._groups))
            age = None if self._seen is None else time.monotonic() - self._seen
            return View(self._at, age, groups, self._problem)

    def group(self, name: str) -> GroupLag | None:
        """Return one group as it was seen last; its records' times are read before those of others from now on."""
        with self._lock:
            self._asked[name] = time.monotonic()
            return self._groups.get(name)

    def lag_over_time(self, group: str) -> tuple[LagPoint, ...]:
        """Return the lag of a group at the looks so far, the oldest first; the last `points` of them."""
        with self._lock:
            return tuple(self._trails.get(group, ()))

    def refresh(self, within: float = 0.0) -> None:
        """Look again at once; wait at most so long for a look that began after this call."""
        with self._lock:
            wanted = self._looks + (2 if self._is_looking else 1)
            self._wake.set()
            self._looked.wait_for(lambda: self._looks >= wanted or self._is_closed, within)

    def _run(self) -> None:
        survey = Survey(self._cluster, self._limits)
        while not self._is_closed:
            self._wake.clear()
            began = time.monotonic()
            with self._lock:
                self._is_looking = True
            try:
                self._take(survey.look(self._before(), record_seconds=_RECORD_SECONDS, ahead=self._wanted()))
            except TidegateError as problem:
                self._fail(str(problem))
                survey.reconnect()
            except Exception as bug:  # whatever happens, pages must say so and the next look must come
                logger.exception("look_failed")
                self._fail(f"{type(bug).__name__}: {bug}")
                survey.close()
                survey = Survey(self._cluster, self._limits)
            with self._lock:
                self._is_looking = False
                self._looks += 1
                self._looked.notify_all()
            self._wake.wait(max(0.0, self._every - (time.monotonic() - began)))
        survey.close()

    def _before(self) -> dict[str, GroupLag]:
        """Return the earlier look. The time of an outage does not count: a group could not move then."""
        with self._lock:
            if self._problem is None or self._seen is None:
                return dict(self._groups)
            outage = timedelta(seconds=max(0.0, time.monotonic() - self._seen - self._every))
            return {name: replace(one, at=one.at + outage) for name, one in self._groups.items()}

    def _wanted(self) -> set[str]:
        oldest = time.monotonic() - _ASKED_SECONDS
        with self._lock:
            self._asked = {name: asked for name, asked in self._asked.items() if asked >= oldest}
            return set(self._asked)

    def _take(self, groups: tuple[GroupLag, ...]) -> None:
        with self._lock:
            if self._problem is not None:
                logger.info("broker_is_back")
            self._at, self._seen, self._problem = datetime.now(UTC), time.monotonic(), None
            self._groups = {one.group: one for one in groups}
            self._trails = {one.group: self._trails.get(one.group) or deque(maxlen=self._points) for one in groups}
            for one in groups:
                self._trails[one.group].append(LagPoint(one.at, one.lag, one.lag_seconds))

    def _fail(self, problem: str) -> None:
        with self._lock:
            if self._problem is None:
                logger.warning("look_failed %s", problem)
            self._problem = problem
