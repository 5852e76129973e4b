"""Pure: which records are gone that the group never settled, how many, and where `lost` goes on.

Records are lost when the mark is no longer in the log: retention took what lay there, the log was cut
off, or the topic was deleted and made anew. Only the topic's id tells the last one for certain: the
new log may be longer than the old one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from tidegate.errors import RecordsLost
from tidegate.records import Partition, Position, counted

Policy = Literal["stop", "earliest", "latest"]


@dataclass(frozen=True)
class Stood:
    """Where the group stood: the position, and the topic it was made for (None: nobody knows)."""

    position: Position
    topic_id: str | None
    last_end: int | None = None
    """Where that log ended when it was last looked at, if it ever was."""


@dataclass(frozen=True)
class Log:
    """One partition's log as it is now."""

    topic_id: str
    beginning: int
    end: int


@dataclass(frozen=True)
class Loss:
    """Records that the group has not settled and never will."""

    partition: Partition
    mark: int
    why: str
    count: int | None
    """How many; None if nobody knows."""
    log: Log | None
    """The log as it is now; None: there is none."""
    resume: Position | None
    """Where to go on; None: nowhere."""

    @property
    def sentence(self) -> str:
        """What happened, in words."""
        number = "an unknown number of records" if self.count is None else counted(self.count, "record")
        verb = "is" if self.count == 1 or self.count is None else "are"
        return f"{self.partition}: the group stands at {self.mark}, and {self.why}: {number} {verb} lost"


def records_lost(losses: Iterable[Loss]) -> RecordsLost:
    """What a run that is to stop raises."""
    return RecordsLost(
        "; ".join(loss.sentence for loss in losses),
        'the group was not moved; choose lost="earliest" or lost="latest" to go on with what is there',
    )


def find_loss(partition: Partition, stood: Stood, log: Log, policy: Policy) -> Loss | None:
    """Compare where the group stood with the log; None if every record from the mark on is still to be had."""
    position = stood.position
    mark = position.mark
    if stood.topic_id is not None and stood.topic_id != log.topic_id:
        gone = None if stood.last_end is None else _unsettled(position, stood.last_end)
        return _loss(partition, position, log, policy, "the topic was deleted and made anew", gone)
    if mark > log.end:
        gone = None if stood.last_end is None or stood.last_end < mark else _unsettled(position, stood.last_end)
        return _loss(partition, position, log, policy, f"the log ends at {log.end}: it was cut off", gone)
    if position.ahead and position.ahead[-1][1] > log.end:
        return _behind(partition, position, log, policy)
    if mark >= log.beginning:
        return None
    gone = _unsettled(position, log.beginning)
    why = f"the log begins at {log.beginning}"
    kept = _from(log.beginning, position)
    if policy == "latest" and gone:
        return Loss(partition, mark, why, _unsettled(position, log.end), log, _at(log.end, position))
    # Where *ahead* covers all that is gone, nothing was lost: the mark only has to step over it.
    resume = None if policy == "stop" and gone else kept
    return Loss(partition, mark, why, gone, log, resume)


def _behind(partition: Partition, position: Position, log: Log, policy: Policy) -> Loss:
    """What was settled ahead reaches beyond the log: it was cut off, and other records will lie in those places.

    Otherwise: they would count as settled, and nobody would run them.
    """
    gone = _unsettled(position, position.ahead[-1][1]) - _unsettled(position, log.end)
    lost_before = _unsettled(position, log.beginning)
    kept = _from(max(log.beginning, position.mark), position)
    ahead = tuple((first, min(last, log.end)) for first, last in kept.ahead if first < log.end)
    kept = replace(kept, ahead=ahead, done={at: done for at, done in kept.done.items() if at < log.end})
    if policy == "latest" and gone + lost_before:
        kept, gone = _at(log.end, position), gone + _unsettled(position, log.end)
    else:
        gone += lost_before
    why = f"the log ends at {log.end}: it was cut off behind what was settled ahead"
    return Loss(partition, position.mark, why, gone, log, None if policy == "stop" and gone else kept)


def deleted(partition: Partition, stood: Stood) -> Loss:
    """What went with a topic that was deleted and that nobody waits for."""
    gone = None if stood.last_end is None else _unsettled(stood.position, stood.last_end)
    return Loss(partition, stood.position.mark, "the topic was deleted", gone, None, None)


def _loss(partition: Partition, position: Position, log: Log, policy: Policy, why: str, gone: int | None) -> Loss:
    """Of a log that is another one now, nothing the group knows is true any more: not *ahead*, not *done*."""
    if policy == "latest" and gone is not None:
        gone += log.end - log.beginning
    resume = {"stop": None, "earliest": _at(log.beginning, position), "latest": _at(log.end, position)}[policy]
    return Loss(partition, position.mark, why, gone, log, resume)


def _at(mark: int, before: Position) -> Position:
    """Go on elsewhere. Which rewind was done last stays known, else it would be done again; so does the last round."""
    return Position(mark, replay=before.replay, finished=before.finished)


def _from(beginning: int, before: Position) -> Position:
    """Go on with what is left. Of a planned DataFrame round, too, and under its name: it may have been written."""
    planned = before.planned
    return Position(
        beginning,
        tuple((max(first, beginning), end) for first, end in before.ahead if end > beginning),
        {at: done for at, done in before.done.items() if at >= beginning},
        before.replay,
        planned if planned is not None and planned.end > beginning else None,
        before.finished,
    )


def _unsettled(position: Position, end: int) -> int:
    """How many offsets from the mark to `end` are not in *ahead*. Gaps in the log are counted: nobody can tell."""
    settled = sum(max(0, min(last, end) - first) for first, last in position.ahead)
    return max(0, end - position.mark - settled)
