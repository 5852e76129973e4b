"""A handle to one run in this process: what it does now, and what may be asked of it. Safe from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tidegate.engine.rewinder import RewindAsked
from tidegate.engine.tally import SeenMishap
from tidegate.errors import RewindRefused, SettingsError
from tidegate.records import Counts, Failure, Partition

State = Literal["waiting", "starting", "running", "paused", "stopping", "ended", "failed"]


@dataclass(frozen=True, slots=True)
class PauseAsked:
    """Somebody wants the run to rest, or to go on."""

    is_paused: bool


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Somebody wants the run to end in good order."""


Asked = RewindAsked | PauseAsked | StopAsked


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition of this process."""

    partition: Partition
    mark: int | None
    """None until it was read."""
    committed: int | None
    """The mark that the broker has."""
    replay: int
    """The number of the rewind that moved it last; 0: none did."""
    end_offset: int | None
    """Where its log ended when it was looked at last."""
    is_leased: bool
    """Whether a round works on it now."""
    parked_seconds: float | None
    """How long nothing is to be done for it; None: it is not parked."""
    open_failures: int
    """Records that failed and will be tried again."""
    stalled_seconds: float
    """For how long records have waited while the mark stood still."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """What a run does now."""

    run: str
    """Its id, made anew at every start."""
    group: str
    member: str
    """Its id in the group; empty before it has joined."""
    state: State
    at: datetime
    began_at: datetime
    counts: Counts
    rounds: int
    """Rounds that came back."""
    round_seconds: float
    """Time inside rounds, all lanes together."""
    commits: int
    commit_seconds: float
    """From the sending of commits to their answers, all together."""
    lost: int
    partitions: tuple[PartitionStatus, ...]
    failures: tuple[Failure, ...]
    """Those that end the run."""
    mishaps: tuple[SeenMishap, ...]
    """The last attempts that failed, whatever followed; bounded."""
    error: str | None
    """Why it failed, where it did."""


class Control:
    """Made by you, given to `run(control=...)`: lets the run rest, rewind or end, and shows what it does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._post: Callable[[Asked], None] | None = None
        self._status: RunStatus | None = None

    @property
    def status(self) -> RunStatus | None:
        """What the run does, as of a moment ago; None before it began."""
        return self._status

    def pause(self) -> None:
        """Begin no more records; those in flight are finished and committed. The membership is kept."""
        self._ask(PauseAsked(is_paused=True))

    def resume(self) -> None:
        """Go on after a pause."""
        self._ask(PauseAsked(is_paused=False))

    def stop(self) -> None:
        """End in good order, as on SIGTERM."""
        self._ask(StopAsked())

    def rewind(self, moves: Mapping[Partition, int], replay: int) -> Future[Mapping[Partition, int]]:
        """Let partitions of this process go on elsewhere; the future says where they stand then.

        `replay` numbers the rewind: it must be larger than that of every earlier one, and is never done twice.
        """
        asked = RewindAsked(replay, dict(moves))
        self._ask(asked)
        return asked.answer

    def _ask(self, asked: Asked) -> None:
        with self._lock:
            if self._post is None:
                happened = "the run has not begun, or has ended"
                if isinstance(asked, RewindAsked):
                    raise RewindRefused(happened, "rewind a stopped group with tidegate rewind")
                raise SettingsError(happened, "ask while it runs")
            self._post(asked)

    # --- the run's side

    def attach(self, post: Callable[[Asked], None]) -> None:
        """The run listens from now on."""
        with self._lock:
            if self._post is not None:
                raise SettingsError("this Control steers a run already", "make one for each run")
            self._post = post

    def publish(self, status: RunStatus) -> None:
        """Show what the run does."""
        self._status = status

    def detach(self) -> None:
        """The run listens no more; the last status stays."""
        with self._lock:
            self._post = None
