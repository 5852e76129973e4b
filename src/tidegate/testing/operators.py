"""What somebody does to a group while its pipeline runs: one at a time each, in threads of their own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.errors import TidegateError
from tidegate.history.store import History
from tidegate.kafka.admin import Admin
from tidegate.kafka.cutting import delete_before
from tidegate.ledger import FULL_CHARACTERS
from tidegate.ops.reach import Reach
from tidegate.ops.redrive import redrive
from tidegate.ops.rewind import carry_out, plan_rewind

if TYPE_CHECKING:
    from tidegate.testing.evidence import Struck
    from tidegate.testing.trial import Trial

_JOIN_SECONDS = 100.0
_LOOK_SECONDS = 0.5
_AT_WORK = "an operator is at work"


class Operators:
    """Those of all groups of an attack."""

    def __init__(self) -> None:
        self._at_work: dict[str, threading.Thread] = {}
        self._fillers: list[threading.Thread] = []

    def delete_settled(self, struck: Struck, trial: Trial) -> None:
        """Cut the log off at the marks."""
        if self._is_at_work(trial):
            # A rewind that was asked for would find its place gone: that is data loss, and not tried here.
            struck.told = _AT_WORK
            return
        admin = Admin(trial.stage.kafka)
        marks = {place: mark for place, mark in trial.marks().items() if place.topic == trial.subject.topic}
        before = admin.beginnings(marks)
        if trial.subject.wanted is not None:
            trial.look_for_unwanted()
        delete_before(admin, marks)
        after = admin.beginnings(marks)
        moved = [
            f"{place} from {before[place]} to {after[place]}" for place in sorted(marks) if after[place] > before[place]
        ]
        struck.happened = bool(moved)
        struck.told = (
            f"the log begins later: {', '.join(moved)}" if moved else "nothing was settled since the last time"
        )

    def rewind(self, struck: Struck, trial: Trial, records: int) -> None:
        """Move the partition that has come furthest back by so many records."""
        self._begin(struck, trial, lambda: _rewind(struck, trial, records))

    def redrive(self, struck: Struck, trial: Trial) -> None:
        """Send the dead letters back."""
        self._begin(struck, trial, lambda: _redrive(struck, trial))

    def fill(self, struck: Struck, trial: Trial, records: int, seconds: float) -> None:
        """Give the pipeline a backlog of one partition, and look how full its commits become."""
        filler = threading.Thread(
            target=_fill, args=(struck, trial, records, seconds), name=f"filler {trial.subject.group}", daemon=True
        )
        self._fillers.append(filler)
        filler.start()

    def wait(self) -> None:
        """Wait until all have ended."""
        for thread in [*self._at_work.values(), *self._fillers]:
            thread.join(_JOIN_SECONDS)

    def _begin(self, struck: Struck, trial: Trial, work: Callable[[], None]) -> None:
        if self._is_at_work(trial):
            struck.told = _AT_WORK
            return

        def operate() -> None:
            try:
                work()
            except TidegateError as error:
                struck.told = f"not possible just then: {error}"
            struck.ended_ms = int(time.time() * 1000)

        operator = threading.Thread(target=operate, name=f"operator {trial.subject.group}", daemon=True)
        self._at_work[trial.subject.group] = operator
        operator.start()

    def _is_at_work(self, trial: Trial) -> bool:
        operator = self._at_work.get(trial.subject.group)
        return operator is not None and operator.is_alive()


def _rewind(struck: Struck, trial: Trial, records: int) -> None:
    subject = trial.subject
    admin, reach = Admin(trial.stage.kafka), Reach(history=History(str(trial.history)))
    marks = {place: mark for place, mark in trial.marks().items() if place.topic == subject.topic}
    if not marks:
        struck.told = "it has no mark yet"
        return
    place = max(marks, key=lambda one: marks[one])
    to = str(max(0, marks[place] - records))
    plan = plan_rewind(admin, subject.group, to, place.topic, place.number, reach)
    for move in plan.moves:
        trial.log.rewind(move.partition, move.to)
    carry_out(admin, plan, reach)
    struck.happened, struck.told = True, f"{place} from {marks[place]} to {plan.moves[0].to}"


def _redrive(struck: Struck, trial: Trial) -> None:
    report = redrive(trial.subject.group, kafka=trial.stage.kafka)
    struck.happened, struck.told = report.sent > 0, f"{report.sent} dead letters"


def _fill(struck: Struck, trial: Trial, records: int, seconds: float) -> None:
    until = time.monotonic() + seconds
    admin, fullest = Admin(trial.stage.kafka), 0
    with contextlib.suppress(TidegateError):
        trial.produce(() if trial.subject.backlog is None else trial.subject.backlog(records))
    while time.monotonic() < until and fullest <= FULL_CHARACTERS:
        with contextlib.suppress(TidegateError):  # the broker is away, or has just come back
            fullest = max(fullest, _fullest(admin, trial))
        time.sleep(_LOOK_SECONDS)
    struck.happened = fullest > FULL_CHARACTERS
    struck.told = f"the fullest commit had {fullest} characters of metadata"


def _fullest(admin: Admin, trial: Trial) -> int:
    """Return how many characters of metadata the fullest commit has that counts now."""
    places = admin.describe([trial.subject.topic])[trial.subject.topic].each_partition()
    return max((len(one.metadata or "") for one in admin.committed(trial.subject.group, places).values()), default=0)
