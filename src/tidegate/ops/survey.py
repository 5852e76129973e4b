"""Looks at the groups of a cluster, again and again, and remembers what makes the next look cheap.

One look asks in bulk: the groups, their members, the topics, the logs' ends. Marks come from `ops/marks.py`,
the times of records from `ops/times.py`, the verdicts from `ops/verdicts.py`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tidegate.ledger import decode_any
from tidegate.ops.cluster import Cluster
from tidegate.ops.logs import Log, Logs
from tidegate.ops.marks import KnownMark, MarksReader
from tidegate.ops.model import GroupLag, PartitionLag
from tidegate.ops.times import RecordTimes, Span, SpanTimes
from tidegate.ops.verdicts import Limits, Standing, judge, judge_group, still_for, still_since, went_back_from
from tidegate.records import moment

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tidegate.kafka.groups import GroupInfo, GroupMember
    from tidegate.records import Partition

_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_MISSED_SECONDS, _MISSED_AFTER_OUTAGE_SECONDS = 2.0, 15.0
"""How long a group that was there is looked for before it counts as gone."""
_BETWEEN_LOOKS_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class _Place:
    """One partition of one group, before it is judged."""

    partition: Partition
    known: KnownMark | None
    log: Log | None
    owner: GroupMember | None
    before: PartitionLag | None
    topic_id: str | None
    """The topic that the commit was made for, where Tidegate made it."""
    is_made_anew: bool
    span: Span | None
    """What is not settled; None where that is nothing, or not known."""

    @property
    def mark(self) -> int | None:
        return None if self.known is None else self.known.mark


@dataclass(frozen=True, slots=True)
class _Group:
    """One group, before it is judged."""

    info: GroupInfo
    places: tuple[_Place, ...]
    before: GroupLag | None
    was_joined: bool
    """Whether it has no members now and is known to have had some."""


class Survey:
    """The groups of one cluster; with a group, that one alone. Not for several threads at a time."""

    def __init__(self, cluster: Cluster, limits: Limits | None = None, *, group: str | None = None) -> None:
        self._cluster = cluster
        self._limits = limits or Limits()
        self._group = group
        self._marks = MarksReader(cluster, group)
        self._times = RecordTimes(cluster.kafka)
        self._logs = Logs(cluster)
        self._was_away = False

    def look(
        self, before: Mapping[str, GroupLag], *, record_seconds: float, ahead: Collection[str] = ()
    ) -> tuple[GroupLag, ...]:
        """Return the groups by name.

        Records are read for their times for at most `record_seconds`, those of the groups in `ahead` first.
        """
        infos = self._infos(before)
        marks = self._marks.read(list(infos))
        if self._group is None:
            infos = {name: info for name, info in infos.items() if info.state != "dead" or marks[name]}
        at = datetime.now(UTC)
        groups = self._groups(infos, marks, before)
        order = sorted(groups, key=lambda one: one.info.group not in ahead)
        spans = dict.fromkeys(place.span for one in order for place in one.places if place.span is not None)
        times = self._times.read(spans, record_seconds)
        self._logs.read_retention({span.partition.topic for span in times})
        return tuple(self._group_lag(one, times, at) for one in groups)

    def reconnect(self) -> None:
        """Ask through a new admin connection from now on; what was learned stays.

        After a broker was away, the old one never again finds the coordinators of groups.
        """
        self._was_away = True
        self._cluster = Cluster(self._cluster.kafka, self._cluster.timeout_seconds)
        self._marks.reconnect(self._cluster)
        self._logs.reconnect(self._cluster)

    def close(self) -> None:
        """End all connections."""
        self._marks.close()
        self._times.close()

    def _infos(self, before: Iterable[str]) -> dict[str, GroupInfo]:
        admin = self._cluster.admin
        if self._group is not None:
            return {self._group: admin.group_members(self._group)}
        # After a restart, groups that their coordinator has not loaded yet are missing in the list, without an error.
        patience = _MISSED_AFTER_OUTAGE_SECONDS if self._was_away else _MISSED_SECONDS
        deadline = time.monotonic() + patience
        while not (found := admin.all_groups()).keys() >= set(before) and time.monotonic() < deadline:
            time.sleep(_BETWEEN_LOOKS_SECONDS)  # between two questions
        self._was_away = False
        return found

    def _groups(
        self,
        infos: Mapping[str, GroupInfo],
        marks: Mapping[str, Mapping[Partition, KnownMark]],
        before: Mapping[str, GroupLag],
    ) -> list[_Group]:
        owners = {
            name: {at: member for member in info.members for at in member.partitions} for name, info in infos.items()
        }
        highest: dict[Partition, int] = {at: 0 for owned in owners.values() for at in owned}
        for known in marks.values():
            for at, one in known.items():
                highest[at] = max(highest.get(at, 0), one.mark)
        logs = self._logs.read(highest)
        found = []
        for name in sorted(infos):
            earlier = {one.partition: one for one in before[name].partitions} if name in before else {}
            places = tuple(
                _place(name, at, marks[name].get(at), logs.get(at), owners[name].get(at), earlier.get(at))
                for at in sorted({*marks[name], *owners[name]})
            )
            was_joined = self._marks.empty_since_ms(name) is not None
            found.append(_Group(infos[name], places, before.get(name), was_joined))
        return found

    def _expiry_days(self, info: GroupInfo, known: Collection[KnownMark], at: datetime) -> float | None:
        """Return when a group without members begins to forget its offsets.

        Kafka counts from when the last member left; where nobody ever joined, from each commit.
        """
        committed = [one.committed_at_ms for one in known]
        if info.members or not committed:
            return None
        since = self._marks.empty_since_ms(info.group)
        if since is None:
            times = [one for one in committed if one is not None]
            since = min(times) if len(times) == len(committed) else None
        minutes = self._logs.offsets_retention_minutes()
        if since is None or minutes is None:
            return None
        return max(0.0, (since + minutes * 60_000 - at.timestamp() * 1000) / _DAY_MS)

    def _group_lag(self, group: _Group, times: Mapping[Span, SpanTimes], at: datetime) -> GroupLag:
        info = group.info
        partitions = tuple(self._partition_lag(group, place, times, at) for place in group.places)
        verdict, why = judge_group(partitions, has_members=bool(info.members))
        return GroupLag(
            group=info.group,
            at=at,
            state=info.state,
            is_tidegate=any(place.topic_id is not None for place in group.places),
            members=info.members,
            lag=sum(one.lag or 0 for one in partitions),
            lag_seconds=_largest([(one.lag, one.lag_seconds) for one in partitions]),
            waiting_seconds=_largest([(one.lag, one.waiting_seconds) for one in partitions]),
            expiry_days=self._expiry_days(info, [one.known for one in group.places if one.known is not None], at),
            verdict=verdict,
            why=why,
            partitions=partitions,
        )

    def _partition_lag(
        self, group: _Group, place: _Place, times: Mapping[Span, SpanTimes], at: datetime
    ) -> PartitionLag:
        moved_at = _moved_at(place, at)
        is_worked_on = self._is_worked_on(group, place, _between(moved_at, at))
        if (same := _idle_as_before(place, is_worked_on=is_worked_on)) is not None:
            return same
        log, mark = place.log, place.mark
        found = None if place.span is None else times.get(place.span)
        lag: int | None = None
        if log is not None and mark is not None and not place.is_made_anew:
            lag = 0 if place.span is None or (found is not None and found.is_empty) else log.end_offset - mark
        first = moment(None if found is None else found.first_ms)
        last = moment(None if found is None else found.last_ms)
        waiting = 0.0 if lag == 0 else _between(first, at)
        still = still_for(lag, waiting, _between(moved_at, at))
        if group.before is not None and place.before is not None:
            still = still_since(place.before, mark, lag, (at - group.before.at).total_seconds())
        earlier = None if place.before is None else place.before.lag
        now = Standing(
            mark=mark,
            beginning=None if log is None else log.beginning,
            end_offset=None if log is None else log.end_offset,
            lag=lag,
            lost=0 if log is None or mark is None or place.is_made_anew else max(0, log.beginning - mark),
            is_made_anew=place.is_made_anew,
            is_worked_on=is_worked_on,
            waiting_seconds=waiting,
            still_seconds=still,
            rewound_from=None if place.is_made_anew else went_back_from(place.before, mark),
            growth=None if lag is None or earlier is None else lag - earlier,
        )
        verdict, why = judge(now, self._limits)
        return PartitionLag(
            partition=place.partition,
            mark=mark,
            beginning=now.beginning,
            end_offset=now.end_offset,
            lag=lag,
            lag_seconds=0.0 if lag == 0 else _between(first, last),
            waiting_seconds=waiting,
            lost=now.lost,
            retention_hours=self._retention_hours(place.partition.topic, first, at),
            member=_named(place.owner),
            metadata="" if place.known is None else place.known.metadata,
            verdict=verdict,
            why=why,
            moved_at=moved_at,
            still_seconds=still,
            rewound_from=now.rewound_from,
        )

    def _is_worked_on(self, group: _Group, place: _Place, unmoved_seconds: float | None) -> bool:
        """Whether a member has it; or somebody commits without being one, as programs do that choose partitions."""
        if group.info.members:
            # While a group rebalances, members have no partitions for a moment.
            return place.owner is not None or group.info.state != "stable"
        if group.before is None or group.before.members or group.was_joined:
            return False
        if place.before is None or place.before.mark is None or place.mark is None:
            return False
        went_on = place.before.verdict not in ("stopped", "unknown")
        is_recent = unmoved_seconds is not None and unmoved_seconds < self._limits.stall_seconds
        return place.mark > place.before.mark or (went_on and is_recent)

    def _retention_hours(self, topic: str, first: datetime | None, at: datetime) -> float | None:
        kept = self._logs.kept_ms(topic)
        if kept is None or first is None:
            return None
        return max(0.0, (first - at) / timedelta(hours=1) + kept / _HOUR_MS)


def _place(
    group: str,
    at: Partition,
    known: KnownMark | None,
    log: Log | None,
    owner: GroupMember | None,
    before: PartitionLag | None,
) -> _Place:
    if known is None or log is None:
        return _Place(at, known, log, owner, before, None, is_made_anew=False, span=None)
    topic_id = decode_any(group, at, known.mark, known.metadata).topic_id if known.metadata else None
    is_made_anew = topic_id not in (None, log.topic_id) or known.mark > log.high
    start = max(known.mark, log.beginning)
    span = Span(at, start, log.end_offset) if start < log.end_offset and not is_made_anew else None
    return _Place(at, known, log, owner, before, topic_id, is_made_anew, span)


def _idle_as_before(place: _Place, *, is_worked_on: bool) -> PartitionLag | None:
    """Return the earlier look where nothing has changed and nothing waits: so it is in most partitions of a cluster."""
    before, log, known = place.before, place.log, place.known
    if before is None or log is None or known is None or place.span is not None or before.lag != 0:
        return None
    is_same = (before.mark, before.beginning, before.end_offset) == (known.mark, log.beginning, log.end_offset)
    if not is_same or before.metadata != known.metadata or before.member != _named(place.owner) or place.is_made_anew:
        return None
    return before if before.verdict == ("ok" if is_worked_on else "stopped") else None


def _named(owner: GroupMember | None) -> str | None:
    return None if owner is None else f"{owner.client_id}@{owner.host}"


def _moved_at(place: _Place, at: datetime) -> datetime | None:
    known = moment(None if place.known is None else place.known.moved_at_ms)
    if known is not None or place.before is None:
        return known
    return place.before.moved_at if place.before.mark == place.mark else at


def _between(first: datetime | None, last: datetime | None) -> float | None:
    return None if first is None or last is None else max(0.0, (last - first).total_seconds())


def _largest(figures: Collection[tuple[int | None, float | None]]) -> float | None:
    """Return the largest of what is known; None where something waits and its time is not known anywhere."""
    known = [seconds for lag, seconds in figures if lag and seconds is not None]
    return max(known) if known else (None if any(lag for lag, _ in figures) else 0.0)
