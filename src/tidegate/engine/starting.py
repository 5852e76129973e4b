"""Where a group begins, and whether it still can: chosen once, committed before the first record is read.

Step 0 of a run, in two places: before joining (the broker takes it only while the group has no
member, so only the first copy does it), and, where the group has members already, by the member
that owns the topic's first partition. Every mark that is read is compared with its log: what it
stood for may be gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tidegate.engine.from_table import positions_by_table
from tidegate.engine.lost import Log, Loss, Stood, deleted, find_loss
from tidegate.engine.topics import Topics
from tidegate.engine.truth import Truth
from tidegate.errors import GroupHasMembers, NoStartingOffset, SettingsError, TopicMissing
from tidegate.kafka.admin import Admin, TopicInfo
from tidegate.ledger import Home, decode, decode_any, encode
from tidegate.names import belongs_to
from tidegate.pipeline import Source
from tidegate.places import FromTable
from tidegate.records import Commit, Partition, Position
from tidegate.secrets import Secret

logger = logging.getLogger("tidegate.start")

Infos = Mapping[str, TopicInfo]


@dataclass(frozen=True)
class Found:
    """What was found for the partitions that are ours."""

    committed: Mapping[Partition, Position]
    fresh: Mapping[Partition, Position]
    """Partitions without a commit, of a topic that has some: they begin at their beginning."""
    chosen: Mapping[Partition, Position]
    """Positions chosen for a topic without any commit, to be committed by this member, for all its partitions."""
    waiting: tuple[Partition, ...]
    """Partitions whose start another member is choosing now, or whose topic is not there: ask again."""
    losses: tuple[Loss, ...]
    """Partitions whose mark is no longer in the log."""
    vanished: tuple[Loss, ...]
    """Partitions that a topic made anew does not have, where `lost` does not stop for them."""
    trusted: tuple[Partition, ...]
    """Partitions that were doubted, and stand where they should."""
    topic_ids: Mapping[str, str]
    """The topics for which all this is true."""
    behind: frozenset[Partition] = frozenset()
    """Partitions whose commit is to follow what is stored elsewhere."""


@dataclass(frozen=True)
class Moved:
    """Where a partition goes on after a rewind."""

    position: Position
    commit: Commit
    topic_id: str
    end: int


class Starting:
    """Finds and chooses positions. Blocks on the broker: never call it from a callback."""

    def __init__(
        self,
        admin: Admin,
        truth: Truth,
        source: Source,
        topics: Topics,
        sinks: str,
        history: str | Secret | None = None,
    ) -> None:
        self._admin = admin
        self._truth = truth
        self._source = source
        self._topics = topics
        self._sinks = sinks
        self._history = history
        self._first_ids = {name: info.topic_id for name, info in topics.infos.items()}
        self._stood: dict[Partition, Stood] = {}
        """Where partitions of ours stood last, and in which topic: commits go with a topic that is deleted."""
        self._ends: dict[tuple[Partition, str], int] = {}

    @property
    def has_table(self) -> bool:
        """Whether marks are stored beside rows, too."""
        return self._truth.has_table

    # --- what a position belongs to

    def metadata(self, partition: Partition, position: Position) -> str:
        """Return the commit's metadata for a position of a partition that stands somewhere."""
        return self.metadata_for(partition, position, self.topic_id(partition))

    def topic_id(self, partition: Partition) -> str:
        """Return the id of the topic in which a partition stands."""
        stood = self._stood.get(partition)
        topic_id = stood.topic_id if stood is not None else None
        return topic_id or self._first_ids[partition.topic]

    def metadata_for(
        self,
        partition: Partition,
        position: Position,
        topic_id: str,
        *,
        is_move: bool = False,
        left: int | None = None,
    ) -> str:
        """Return the commit's metadata for a position in the topic with this id."""
        home = Home(self._source.group, topic_id, partition.number, self._sinks)
        return encode(position, home, is_move=is_move, left=left)

    def remember(self, partition: Partition, position: Position, topic_id: str | None = None) -> None:
        """Note where a partition stands; with a topic id: that this is the topic its marks are of from now on."""
        stood = self._stood.get(partition)
        known = topic_id or (stood.topic_id if stood is not None else None)
        self._stood[partition] = Stood(position, known)

    def note_ends(self, ends: Mapping[Partition, int], topic_ids: Mapping[str, str]) -> None:
        """Note where logs ended while these were the topics' ids, so that a loss can be counted."""
        for partition, end in ends.items():
            if partition.topic in topic_ids:
                self._ends[partition, topic_ids[partition.topic]] = end

    def leave(self, topics: Iterable[str]) -> list[Loss]:
        """Forget topics that were deleted: should one return, it is a new one. Return what went with them."""
        names = set(topics)
        for name in names:
            self._first_ids.pop(name, None)
        gone = [tp for tp in self._stood if tp.topic in names]
        return [deleted(tp, self._with_end(tp, self._stood.pop(tp))) for tp in gone]

    def forget(self, partition: Partition) -> None:
        """Where this one stood is of no use to anybody."""
        self._stood.pop(partition, None)

    # --- before joining

    def before_joining(self) -> None:
        """Choose and commit positions for topics without any commit, if the group has no member."""
        infos = self._topics.infos
        if self._source.at is not None and self._source.at.always:
            self._place_again(self._source.at.places, infos)
            return
        committed = self._truth.read(_partitions(infos)).commits
        unknown = _without_commit(infos, committed)
        if len(unknown) == len(infos):
            self._say_what_else_it_reads(infos)
        chosen = self._choose([name for name in unknown if self._is_chosen_as_a_whole(name)], infos)
        if self._source.at is not None:
            chosen |= self._places([tp for tp in self._source.at.places if tp not in committed])
        chosen = self._still_to_choose(chosen)
        try:
            self._check_is_empty(chosen)
            self._commit_from_outside(self._truth.enter(self._coded(chosen, infos)))
        except GroupHasMembers:
            logger.info("the group has members: they choose where %s begin", unknown, extra={"action": "start_left"})
            if self._source.pattern is not None:
                self._topics.came_later(unknown)

    def _place_again(self, places: Iterable[Partition], infos: Infos) -> None:
        """Rewind to the places of `tg.at`, as somebody would whose group stands still: a table follows the group.

        By comparing, not by overwriting. Otherwise: we commit and are held up; a copy does the same, joins and writes
        rows; we set its table back, and they are written again.
        """
        stored = [
            (tp, decode_any(self._source.group, tp, one.mark, one.metadata).position)
            for commits in self._truth.everything(places)
            for tp, one in commits.items()
        ]
        # Larger than any before, whatever the clocks say: by that the table knows that it is to follow, and what fails
        # now is not taken for what failed before.
        number = max([int(time.time() * 1000), *(position.replay + 1 for _, position in stored)])
        finished = {tp: position.finished for tp, position in stored}
        moved = {
            tp: replace(one, replay=number, finished=finished.get(tp, "")) for tp, one in self._places(places).items()
        }
        self._commit_from_outside(self._coded(moved, infos, is_move=True))
        self._truth.read(moved)

    def _still_to_choose(self, chosen: Mapping[Partition, Position]) -> dict[Partition, Position]:
        """Look again: a copy may have chosen, worked and left while we asked where the logs begin.

        Otherwise: we find nothing and are held up; the copy settles everything and stops; we set the group back. Kafka
        compares nothing when it stores: between this look and the commit there is nothing but the commit itself.
        """
        there = self._truth.read(chosen).commits if chosen else {}
        begun = {tp.topic for tp in there if self._is_chosen_as_a_whole(tp.topic)}
        return {tp: one for tp, one in chosen.items() if tp not in there and tp.topic not in begun}

    def _say_what_else_it_reads(self, infos: Infos) -> None:
        """A group that has read other topics and none of these may be another program's."""
        group = self._source.group
        others = {tp.topic for tp in self._admin.committed(group) if not belongs_to(tp.topic, group)} - set(infos)
        if others:
            logger.warning(
                "group %s has never read %s, but %s: if it is another program's, choose a group of your own",
                group,
                ", ".join(sorted(infos)),
                ", ".join(sorted(others)),
                extra={"action": "other_topics"},
            )

    def _check_is_empty(self, chosen: Mapping[Partition, Position]) -> None:
        """Members choose for themselves: a table must not hear of our choice before the group has been asked."""
        if chosen and self._truth.has_table and self._admin.group_members(self._source.group).members:
            raise GroupHasMembers(f"group {self._source.group} has members", "let them choose where it begins")

    def _commit_from_outside(self, commits: Mapping[Partition, Commit]) -> None:
        """Commit positions for a group without members; raises `GroupHasMembers` if it has some."""
        self._admin.commit_for_empty_group(
            self._source.group, {tp: (one.mark, one.metadata) for tp, one in commits.items()}
        )

    def _coded(
        self, positions: Mapping[Partition, Position], infos: Infos, *, is_move: bool = False
    ) -> dict[Partition, Commit]:
        return {
            tp: Commit(one.mark, self.metadata_for(tp, one, infos[tp.topic].topic_id, is_move=is_move))
            for tp, one in positions.items()
        }

    # --- while running

    def find(self, partitions: Iterable[Partition], standing: Mapping[Partition, Position]) -> Found:
        """Read the marks of partitions that were just assigned, and look at those that stand but are doubted."""
        wanted = list(partitions)
        infos, logs = self._look_at([*wanted, *standing])
        # Partitions may have been added to a topic since the start: ask for what is wanted, too.
        asked = sorted({*_partitions(infos), *(tp for tp in wanted if tp in logs)})
        standing_now = self._truth.read(asked, require_stable=True)
        committed = standing_now.commits
        stood = {tp: self._standing(tp, position) for tp, position in standing.items() if tp in logs}
        for tp in wanted:
            if tp in logs and (known := self._known(tp, committed.get(tp), logs[tp])) is not None:
                stood[tp] = known
        losses = {tp: loss for tp, one in stood.items() if (loss := self._loss(tp, one, logs[tp])) is not None}
        self._ends |= {(tp, log.topic_id): log.end for tp, log in logs.items()}
        homeless = [tp for tp in wanted if tp in logs and tp not in stood]
        # Places of `tg.at` are chosen by each member for its own: they are no moment that all must share.
        placed = self._places([tp for tp in homeless if not self._is_chosen_as_a_whole(tp.topic)])
        unknown = {name for name in self._unknown(infos, committed) if self._is_chosen_as_a_whole(name)}
        mine = sorted({tp.topic for tp in homeless if tp.topic in unknown and tp.number == 0})
        shrunk = [tp for tp in standing if tp.topic in infos and tp.number >= infos[tp.topic].partitions]
        vanished = tuple(deleted(tp, self._with_end(tp, self._standing(tp, standing[tp]))) for tp in shrunk)
        stops = self._source.lost == "stop"
        return Found(
            committed={tp: stood[tp].position for tp in wanted if tp in stood and tp not in losses},
            fresh={tp: Position(logs[tp].beginning) for tp in homeless if tp.topic not in unknown and tp not in placed},
            chosen={**placed, **self._choose(mine, infos)},
            waiting=(
                *(tp for tp in homeless if tp.topic in unknown and tp.topic not in mine),
                *(tp for tp in (*wanted, *standing) if tp not in logs),
            ),
            losses=(*losses.values(), *(vanished if stops else ())),
            vanished=() if stops else vanished,
            trusted=tuple(tp for tp in standing if tp in logs and tp not in losses),
            topic_ids={name: info.topic_id for name, info in infos.items()},
            behind=standing_now.behind,
        )

    def enter(self, commits: Mapping[Partition, Commit]) -> Mapping[Partition, Commit]:
        """Let partitions begin there, unless somebody was quicker; return where they do begin."""
        return self._truth.enter(commits)

    def move(self, commits: Mapping[Partition, Commit]) -> bool:
        """Let partitions that were found go on elsewhere; False if somebody has moved them since."""
        return self._truth.move(commits)

    def rewind(
        self, marks: Mapping[Partition, int], replay: int, finished: Mapping[Partition, str]
    ) -> dict[Partition, Moved]:
        """Let partitions on which nobody works go on elsewhere; the group's commit is left to the member.

        Which DataFrame round each has finished stays known: others that were in it may not be committed yet.
        Where marks are stored beside rows, they are moved first: should the process die in between, the group follows.
        """
        _, logs = self._look_at(list(marks))
        moved = {}
        for tp, mark in marks.items():
            if tp not in logs or logs[tp].topic_id != self.topic_id(tp):
                raise TopicMissing(f"{tp} is gone, or was made anew", "look at the topic first")
            # What is no longer retained cannot be had: it begins where the log does.
            to = min(max(mark, logs[tp].beginning), logs[tp].end)
            position = Position(to, replay=replay, finished=finished.get(tp, ""))
            commit = Commit(position.mark, self.metadata_for(tp, position, logs[tp].topic_id))
            moved[tp] = Moved(position, commit, logs[tp].topic_id, logs[tp].end)
        self._truth.rewind({tp: one.commit for tp, one in moved.items()})
        return moved

    def _look_at(self, partitions: list[Partition]) -> tuple[Infos, dict[Partition, Log]]:
        """Return the topics and the logs of those partitions that exist, all of one moment."""
        names = {*self._topics.names, *(tp.topic for tp in partitions)}
        infos = self._admin.existing(names)
        while True:
            there = [tp for tp in partitions if tp.topic in infos and tp.number < infos[tp.topic].partitions]
            beginnings = self._admin.beginnings(there)
            ends = self._admin.ends(there, committed_only=False)
            after = self._admin.existing(names)
            if _ids(after) == _ids(infos):
                return infos, {tp: Log(infos[tp.topic].topic_id, beginnings[tp], ends[tp]) for tp in there}
            infos = after  # a topic was made anew in between: whose beginnings these are, nobody can say

    def _standing(self, partition: Partition, position: Position) -> Stood:
        stood = self._stood.get(partition)
        return Stood(position, None if stood is None else stood.topic_id)

    def _known(self, partition: Partition, committed: Commit | None, log: Log) -> Stood | None:
        """Where the group stands by its commit; by memory, where the commit went with a deleted topic."""
        if committed is not None:
            home = Home(self._source.group, log.topic_id, partition.number, self._sinks)
            stored = decode(committed.mark, committed.metadata, home)
            return Stood(stored.position, stored.topic_id)
        stood = self._stood.get(partition)
        is_other = stood is not None and stood.topic_id is not None and stood.topic_id != log.topic_id
        return stood if is_other else None

    def _loss(self, partition: Partition, stood: Stood, log: Log) -> Loss | None:
        return find_loss(partition, self._with_end(partition, stood, log.topic_id), log, self._source.lost)

    def _with_end(self, partition: Partition, stood: Stood, topic_id: str = "") -> Stood:
        return replace(stood, last_end=self._ends.get((partition, stood.topic_id or topic_id)))

    def _unknown(self, infos: Infos, committed: Mapping[Partition, Commit]) -> set[str]:
        """Topics for which a start is to be chosen: those without a commit, unless one was deleted under this run."""
        return {
            name
            for name in _without_commit(infos, committed)
            if self._first_ids.get(name, infos[name].topic_id) == infos[name].topic_id
        }

    def _is_chosen_as_a_whole(self, topic: str) -> bool:
        """Whether one moment is chosen for all partitions of a topic: not where `tg.at` names each place."""
        return self._source.at is None or self._topics.is_own(topic)

    def _choose(self, topics: Iterable[str], infos: Infos) -> dict[Partition, Position]:
        """Apply `starting` to every partition of these topics."""
        names = list(topics)
        if not names:
            return {}
        later = [name for name in names if self._topics.begins_at_its_beginning(name)]
        at_start = [name for name in names if name not in later]
        if self._source.starting == "none" and at_start:
            raise NoStartingOffset(
                f"group {self._source.group} has no commit for {', '.join(at_start)} and starting is 'none'",
                'choose starting="earliest" or "latest", or commit a position for the group first',
            )
        if self._source.starting == "earliest":
            later, at_start = names, []
        by_table: dict[Partition, Position] = {}
        if isinstance(self._source.starting, FromTable) and at_start:
            named = {name: infos[name] for name in at_start}
            by_table = positions_by_table(self._admin, self._source.starting, self._source.group, named, self._history)
            at_start = []
        marks = self._admin.beginnings(_partitions({name: infos[name] for name in later}))
        marks |= self._admin.ends(_partitions({name: infos[name] for name in at_start}), committed_only=True)
        return by_table | {tp: Position(mark) for tp, mark in marks.items()}

    def _places(self, partitions: Iterable[Partition]) -> dict[Partition, Position]:
        """Return where `tg.at` lets these partitions start; an offset that is not in the log is an error."""
        wanted = list(partitions)
        beginnings, ends = self._admin.beginnings(wanted), self._admin.ends(wanted)
        found = {}
        for tp in wanted:
            place = self._source.at.places[tp] if self._source.at is not None else "beginning"
            mark = {"beginning": beginnings[tp], "end": ends[tp]}[place] if isinstance(place, str) else place
            if not beginnings[tp] <= mark <= ends[tp]:
                raise SettingsError(
                    f"at: {tp} cannot start at {mark}: its log goes from {beginnings[tp]} to {ends[tp]}",
                    'choose an offset in between, "beginning" or "end"',
                )
            found[tp] = Position(mark)
        return found


def _without_commit(infos: Infos, committed: Mapping[Partition, Commit]) -> list[str]:
    known = {partition.topic for partition in committed}
    return [topic for topic in infos if topic not in known]


def _partitions(infos: Infos) -> list[Partition]:
    return [tp for info in infos.values() for tp in info.each_partition()]


def _ids(infos: Infos) -> dict[str, str]:
    return {name: info.topic_id for name, info in infos.items()}
