"""The parts of a run that are its own where the pipeline makes DataFrames."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidegate.engine.board import Board
from tidegate.engine.events import Events
from tidegate.engine.frame_board import FrameBoard
from tidegate.engine.frame_lanes import FrameLanes
from tidegate.engine.frame_round import DeadLetters, FrameTools
from tidegate.engine.lanes import Lanes
from tidegate.engine.own_topics import OwnTopics, prepare
from tidegate.engine.parts import limits_of, worker_log
from tidegate.engine.planner import Planner
from tidegate.engine.planning import RoundLimits
from tidegate.engine.room import wait_for_slots
from tidegate.engine.spark import Spark
from tidegate.engine.spark_frames import check_schema
from tidegate.engine.topics import Topics
from tidegate.errors import SettingsError
from tidegate.frames import FrameStep, FrameWriter
from tidegate.history.rows import RunRow
from tidegate.kafka.admin import Admin, TopicInfo
from tidegate.ledger import decode_any
from tidegate.names import dead_topic, delay_of, redrive_topic
from tidegate.policy import Policy, Row, dead_letter
from tidegate.records import Partition, Position
from tidegate.settings import Settings
from tidegate.steps import Plan

if TYPE_CHECKING:
    from tidegate.pipeline import Source

logger = logging.getLogger("tidegate.frames")

LOOK_SECONDS = 0.5
TELL_SECONDS = 10.0
_WITH_LETTERS = Policy((Row(terminal=dead_letter()),))


@dataclass(frozen=True)
class Frames:
    """What the parts of a DataFrame run are made from."""

    step: FrameStep
    plan: Plan
    source: Source
    settings: Settings
    admin: Admin
    spark: Spark
    kafka: bytes
    stopping: threading.Event
    """Set by whoever asks to stop before the group is joined."""

    def prepare(self, sources: Mapping[str, TopicInfo]) -> OwnTopics:
        """Check what can be checked before the group is touched; return the group's own topics that are read."""
        if self.settings.rate is not None:
            raise SettingsError(
                "the setting rate is for single records, and this pipeline makes DataFrames",
                "bound its rounds with frame_records and frame_every",
            )
        if self.spark.driver_address is None:  # nothing of this process is within reach: Spark Connect
            for writer in writers_of(self.plan):
                writer.refuse_connect()
        check_schema(self.step.decoder)
        group = self.source.group
        self._refuse_retries_left()
        wait_for_slots(self.spark)
        self._wait_for_its_turn()
        # Asked after the waiting: whoever was before may have written the group's first letter.
        has_letters = self.step.undecodable.kind == "dead_letter" or bool(self.admin.existing([dead_topic(group)]))
        if self.stopping.is_set() or not has_letters:
            return OwnTopics({}, {})
        own = prepare(self.admin, group, _WITH_LETTERS, self.settings, sources)
        return replace(own, delays={name: delay for name, delay in own.delays.items() if not delay})

    def _wait_for_its_turn(self) -> None:
        """Wait until no other process of the group is there: this pipeline runs as one at a time."""
        told_at = -TELL_SECONDS
        while not self.stopping.is_set() and (others := self._others()):
            if time.monotonic() - told_at >= TELL_SECONDS:
                told_at = time.monotonic()
                logger.warning(
                    "group %s has a member already (%s): a DataFrame pipeline runs as one process at a time, so this "
                    "one waits for its turn; a process that was killed stays a member for the session timeout",
                    self.source.group,
                    ", ".join(others),
                    extra={"action": "frames_wait"},
                )
            self.stopping.wait(LOOK_SECONDS)

    def open(
        self, ends: Mapping[Partition, int] | None, own: OwnTopics, topics: Topics, run: RunRow, events: Events
    ) -> tuple[Board, Lanes]:
        """Make the board, and what plans and runs its rounds."""
        group, settings = self.source.group, self.settings

        def wanted() -> list[Partition]:
            every = (tp for info in topics.infos.values() for tp in info.each_partition())
            return [tp for tp in every if self.source.wants(tp) or topics.is_own(tp.topic)]

        board = FrameBoard(limits_of(settings), ends, wanted)
        limits = RoundLimits(settings.frame_records, settings.frame_bytes, settings.frame_seconds)
        planner = Planner(board, self.admin.ends, self._stand, group, limits, settings.frame_every)
        sources = {name: info for name, info in topics.infos.items() if not topics.is_own(name)}
        dead = DeadLetters(dead_topic(group), self.plan.fingerprint, lambda: self._dead_partitions(sources, topics))
        copies = frozenset([*own.delays, redrive_topic(group)])
        log, policy = worker_log(settings, run), self.plan.policy
        tools = FrameTools(self.spark, group, self.step, writers_of(self.plan), policy, self.kafka, dead, log, copies)
        return board, FrameLanes(tools, planner, events.put)

    def _stand(self, partitions: list[Partition]) -> dict[Partition, Position]:
        found, group = self.admin.committed(self.source.group, partitions), self.source.group
        return {tp: decode_any(group, tp, one.mark, one.metadata).position for tp, one in found.items()}

    def _others(self) -> list[str]:
        members = self.admin.group_members(self.source.group).members
        mine = self.settings.instance
        return [one.member_id for one in members if mine is None or one.instance != mine]

    def _dead_partitions(self, sources: Mapping[str, TopicInfo], topics: Topics) -> int:
        """Make the topics of dead letters, if they are not there; what is redriven is read from then on."""
        topic = dead_topic(self.source.group)
        found: Mapping[str, TopicInfo] = self.admin.existing([topic])
        if topic not in found:
            found = prepare(self.admin, self.source.group, _WITH_LETTERS, self.settings, sources).infos
        topics.expect(redrive_topic(self.source.group))
        return found[topic].partitions

    def _refuse_retries_left(self) -> None:
        """What an earlier pipeline of the group wrote to retry topics would never be read here."""
        group = self.source.group
        left = [name for name in self.admin.topic_names() if delay_of(name, group)]
        if not left:
            return
        places = [tp for info in self.admin.existing(left).values() for tp in info.each_partition()]
        beginnings, ends = self.admin.beginnings(places), self.admin.ends(places)
        committed = self.admin.committed(group, places)
        waiting = sorted(
            {tp.topic for tp in places if ends[tp] > (committed[tp].mark if tp in committed else beginnings[tp])}
        )
        if waiting:
            raise SettingsError(
                f"{', '.join(waiting)} holds records that an earlier pipeline of this group put there to be tried "
                "again, and a DataFrame pipeline reads no retry topics",
                "let that pipeline finish them (run it until caught up), or choose another group",
            )


def frames_sentence(plan: Plan, names: str, group: str) -> str:
    """Say what is promised."""
    promised = " and ".join(dict.fromkeys(one.guarantee for one in writers_of(plan)))
    failing = plan.policy.sentence().replace("a record that fails", "a round that fails", 1)
    return f"group {group} reads {names} in rounds: every record {promised}, in no order; {failing}"


def writers_of(plan: Plan) -> tuple[FrameWriter, ...]:
    """Return the writers of a DataFrame pipeline."""
    return tuple(sink.write for sink in plan.sinks if isinstance(sink.write, FrameWriter))
