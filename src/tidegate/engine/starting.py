"""Where a group begins: chosen once, committed before the first record is read, never chosen again.

Step 0 of a run, in two places: before joining (the broker takes it only while the group has no
member, so only the first copy does it), and, where the group has members already, by the member
that owns the topic's first partition.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.errors import GroupHasMembers, NoStartingOffset, RecordsLost
from tidegate.kafka.admin import Admin, Committed, TopicInfo
from tidegate.ledger import Home, Stored, decode, encode
from tidegate.pipeline import Source
from tidegate.records import Partition, Position

logger = logging.getLogger("tidegate.start")


@dataclass(frozen=True)
class Found:
    """What was found for the partitions that are ours."""

    committed: Mapping[Partition, Position]
    fresh: Mapping[Partition, Position]
    """Partitions without a commit, of a topic that has some: they begin at their beginning."""
    chosen: Mapping[Partition, Position]
    """Positions chosen for a topic without any commit, to be committed by this member, for all its partitions."""
    waiting: tuple[Partition, ...]
    """Partitions whose start another member is choosing now: ask again."""


class Starting:
    """Finds and chooses positions. Blocks on the broker: never call it from a callback."""

    def __init__(self, admin: Admin, source: Source, topics: Mapping[str, TopicInfo], sinks: str) -> None:
        self._admin = admin
        self._source = source
        self._topics = topics
        self._sinks = sinks

    def home(self, partition: Partition) -> Home:
        """Return whose commit it is."""
        return Home(self._source.group, self._topics[partition.topic].topic_id, partition.number, self._sinks)

    def metadata(self, partition: Partition, position: Position) -> str:
        """Return the commit's metadata for a position."""
        return encode(position, self.home(partition))

    def before_joining(self) -> None:
        """Choose and commit positions for topics without any commit, if the group has no member."""
        committed = self._admin.committed(self._source.group, self._all_partitions())
        unknown = self._topics_without_commit(committed)
        if not unknown:
            return
        chosen = self._choose(unknown)
        try:
            self._admin.commit_for_empty_group(
                self._source.group,
                {tp: (position.mark, self.metadata(tp, position)) for tp, position in chosen.items()},
            )
        except GroupHasMembers:
            logger.info("the group has members: they choose where %s begin", unknown, extra={"action": "start_left"})

    def find(self, partitions: Iterable[Partition]) -> Found:
        """Read the marks of partitions that were just assigned."""
        wanted = list(partitions)
        # Partitions may have been added to a topic since the start: ask for what is wanted, too.
        asked = sorted({*self._all_partitions(), *wanted})
        committed = self._admin.committed(self._source.group, asked, require_stable=True)
        unknown = set(self._topics_without_commit(committed))
        known = {tp: self._decode(tp, committed[tp]) for tp in wanted if tp in committed}
        uncommitted = [tp for tp in wanted if tp not in committed]
        fresh = self._admin.beginnings([tp for tp in uncommitted if tp.topic not in unknown])
        mine = sorted({tp.topic for tp in uncommitted if tp.topic in unknown and tp.number == 0})
        waiting = tuple(tp for tp in uncommitted if tp.topic in unknown and tp.topic not in mine)
        chosen = self._choose(mine) if mine else {}
        return Found(known, {tp: Position(mark) for tp, mark in fresh.items()}, chosen, waiting)

    def _decode(self, partition: Partition, committed: Committed) -> Position:
        stored: Stored = decode(committed.mark, committed.metadata, self.home(partition))
        topic_id = self._topics[partition.topic].topic_id
        if stored.topic_id is not None and stored.topic_id != topic_id:
            raise RecordsLost(
                f"{partition} was deleted and made anew since group {self._source.group} committed "
                f"mark {committed.mark}: what lay beyond it is gone",
                "delete the group's offsets for this topic, or use another group, to begin with the new topic",
            )
        return stored.position

    def _topics_without_commit(self, committed: Mapping[Partition, Committed]) -> list[str]:
        known = {partition.topic for partition in committed}
        return [topic for topic in self._topics if topic not in known]

    def _choose(self, topics: Iterable[str]) -> dict[Partition, Position]:
        """Apply `starting` to every partition of these topics."""
        names = list(topics)
        if self._source.starting == "none":
            raise NoStartingOffset(
                f"group {self._source.group} has no commit for {', '.join(names)} and starting is 'none'",
                'choose starting="earliest" or "latest", or commit a position for the group first',
            )
        partitions = [tp for name in names for tp in _partitions_of(self._topics[name])]
        if self._source.starting == "earliest":
            marks = self._admin.beginnings(partitions)
        else:
            marks = self._admin.ends(partitions, committed_only=True)
        return {tp: Position(mark) for tp, mark in marks.items()}

    def _all_partitions(self) -> list[Partition]:
        return [tp for info in self._topics.values() for tp in _partitions_of(info)]


def _partitions_of(info: TopicInfo) -> list[Partition]:
    return [Partition(info.name, number) for number in range(info.partitions)]
