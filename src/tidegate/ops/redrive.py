"""Sending dead letters back to their group, or elsewhere.

The redrive topic is its own memory: each copy in it names the dead letter it was made from. So a redrive that was
killed is run again, and goes on where it was. The history remembers the same for longer; it is never needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tidegate.durations import rate_per_second
from tidegate.errors import DeliveryFailed, SettingsError, TidegateError
from tidegate.names import is_own, redrive_topic
from tidegate.ops.cluster import chosen_cluster
from tidegate.ops.dead_letters import DeadTopic, Place, check_limit, make_filter
from tidegate.ops.redrive_writer import Pace, Sending, made_redrive_topic, writer_for
from tidegate.records import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from tidegate.kafka.connection import Kafka
    from tidegate.ops.cluster import Cluster
    from tidegate.ops.dead_letters import DeadLetter, Filter, FoundLetter
    from tidegate.records import Partition

MOST_REDRIVES = 3
_MOST_KINDS = 100
_MOST_NAMED = 10

Verdict = Literal["send", "already_redriven", "held_back", "foreign"]


@dataclass(frozen=True, slots=True)
class RedriveKind:
    """How many letters of one origin topic and one type of error are to be sent."""

    origin_topic: str
    error_type: str
    count: int


@dataclass(frozen=True, slots=True)
class RedriveReport:
    """What a redrive did, or as a dry run would do. `matched` is the sum of the four ways that a letter can go."""

    group: str
    to: str
    is_dry_run: bool
    matched: int
    to_send: int
    sent: int
    """Acknowledged by the broker: `to_send`, or 0 in a dry run."""
    already_redriven: int
    held_back: int
    """Redriven too often to be sent again: the loop guard."""
    foreign: int
    """Records that are no copies of ours: they stay where they are."""
    kinds: tuple[RedriveKind, ...]
    """`to_send` by origin and error, the most frequent first; at most 100 kinds, the rest as `...`."""
    held: tuple[Place, ...]
    """The first of those held back: partition and offset in the dead letters."""


def redrive(  # noqa: PLR0913  # which letters (six), where to and how (six): each is one word at the call
    group: str,
    *,
    origin: str | None = None,
    error: str | None = None,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
    key: str | bytes | None = None,
    limit: int | None = None,
    to: str | None = None,
    rate: str | float | None = None,
    dry_run: bool = False,
    again: bool = False,
    most_redrives: int = MOST_REDRIVES,
    on_progress: Callable[[int], None] | None = None,
    kafka: Kafka | None = None,
) -> RedriveReport:
    """Send dead letters to `GROUP.redrive`, where the group's pipeline reads them, and wait for every acknowledgement.

    The first five choose letters as in `dead_letters`; `limit` sends at most so many. Each letter is sent once:
    those redriven before are left out unless `again`. Those redriven `most_redrives` times already are held back.
    `rate`: `"100/s"`. `on_progress` hears how many are acknowledged. Killed at any moment, it is simply run again.

    `to`: another topic instead, the origin for example. Every group that reads it gets these records, as new ones;
    a kill may then repeat those whose acknowledgement was not noted yet.

    After the first record that the broker does not take, nothing more is sent: `DeliveryFailed` says how many were.
    Run one redrive of a group at a time: two would not see each other's letters.
    """
    chosen = make_filter(origin=origin, error=error, since=since, until=until, key=key)
    redriving = Redriving(
        chosen_cluster(kafka), group, chosen, to=to, again=again, most_redrives=most_redrives, limit=limit
    )
    return redriving.plan() if dry_run else redriving.send(rate=rate, on_progress=on_progress)


def verdict(letter: DeadLetter, *, again: bool, most_redrives: int) -> Verdict:
    """Pure: which way a letter goes."""
    if not letter.is_copy:
        return "foreign"
    if letter.was_redriven and not again:
        return "already_redriven"
    return "held_back" if letter.redrives >= most_redrives else "send"


class Redriving:
    """One redrive: what it would send, and the sending. Both look at the letters that were there when it was made."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        chosen: Filter,
        *,
        to: str | None = None,
        again: bool = False,
        most_redrives: int = MOST_REDRIVES,
        limit: int | None = None,
        until: Mapping[Partition, int] | None = None,
    ) -> None:
        check_limit(limit)
        if most_redrives < 1:
            raise SettingsError(f"most_redrives={most_redrives} holds everything back", "make it 1 or more")
        self.to = to or redrive_topic(group)
        self.is_elsewhere = self.to != redrive_topic(group)
        if self.is_elsewhere and is_own(self.to):
            raise SettingsError(
                f"{self.to} is a topic that Tidegate writes by itself",
                f"leave the target out to send to {redrive_topic(group)}, or name a topic of yours",
            )
        self._group = group
        self._chosen = chosen
        self._again = again
        self._most_redrives = most_redrives
        self._limit = limit
        self._admin = cluster.admin
        self._cluster = cluster
        if self.is_elsewhere:
            self._admin.describe([self.to])  # before anything is read: a wrong name costs no time
        self._dead = DeadTopic(cluster, group, until)

    @property
    def ends(self) -> Mapping[Partition, int]:
        """Where the dead letters ended when this was made: given as `until`, another redrive sees no more of them."""
        return self._dead.ends

    def plan(self) -> RedriveReport:
        """Count what would be sent. Nothing is changed."""
        tally = _Tally()
        for _ in self._to_send(tally):
            pass
        return self._report(tally, sent=None)

    def send(
        self, *, rate: str | float | None = None, on_progress: Callable[[int], None] | None = None
    ) -> RedriveReport:
        """Send, and return when all is acknowledged."""
        pace = Pace(None if rate is None else rate_per_second(rate))
        memory = made_redrive_topic(self._admin, self._group, self._dead.info)
        target = self._admin.describe([self.to])[self.to] if self.is_elsewhere else memory
        remember = self._dead.memory.keeper(self.to)
        sending = Sending(writer_for(self._cluster, target, memory), target, memory, pace, on_progress, remember)
        tally = _Tally()
        try:
            for found in self._to_send(tally):
                sending.send(found)
                if sending.failure is not None:
                    break
        finally:
            sending.finish()  # also on Ctrl-C: what is on its way shall be noted
            remember.finish()
        if sending.failure is not None:
            raise self._failed(sending.failure, sending.failed_place, sending.sent)
        return self._report(tally, sent=sending.sent)

    def _to_send(self, tally: _Tally) -> Iterator[FoundLetter]:
        for found in self._dead.read(self._chosen):
            way = verdict(found.letter, again=self._again, most_redrives=self._most_redrives)
            tally.take(found.letter, way)
            if way == "send":
                yield found
                if tally.ways["send"] == self._limit:
                    return

    def _report(self, tally: _Tally, *, sent: int | None) -> RedriveReport:
        return RedriveReport(
            group=self._group,
            to=self.to,
            is_dry_run=sent is None,
            matched=tally.ways.total(),
            to_send=tally.ways["send"],
            sent=sent or 0,
            already_redriven=tally.ways["already_redriven"],
            held_back=tally.ways["held_back"],
            foreign=tally.ways["foreign"],
            kinds=tuple(RedriveKind(*kind, count) for kind, count in tally.kinds.most_common()),
            held=tuple(tally.held),
        )

    def _failed(self, failure: TidegateError, place: Place | None, sent: int) -> DeliveryFailed:
        where = "" if place is None else f", at the dead letter {place[0]}:{place[1]} of {self._dead.info.name}"
        known = "noted as sent" if self.is_elsewhere else "sent"
        return DeliveryFailed(
            f"the redrive to {self.to} ended after {counted(sent, 'record')}{where}: {failure.happened}",
            f"{failure.cure}; then run it again: what was {known} is not sent twice",
        )


class _Tally:
    """How many letters went which way; what it holds does not grow with their number."""

    def __init__(self) -> None:
        self.ways: Counter[Verdict] = Counter()
        self.kinds: Counter[tuple[str, str]] = Counter()
        self.held: list[Place] = []

    def take(self, letter: DeadLetter, way: Verdict) -> None:
        self.ways[way] += 1
        if way == "send":
            kind = (letter.origin_topic or "", letter.error_type)
            known = kind in self.kinds or len(self.kinds) < _MOST_KINDS
            self.kinds[kind if known else ("...", "...")] += 1
        elif way == "held_back" and len(self.held) < _MOST_NAMED:
            self.held.append((letter.partition, letter.offset))
