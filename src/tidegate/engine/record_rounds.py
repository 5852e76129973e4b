"""The parts of a run that are its own where records go through functions one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.engine.board import Board
from tidegate.engine.events import Events
from tidegate.engine.lanes import Lanes
from tidegate.engine.own_topics import OwnTopics, prepare
from tidegate.engine.parts import jobs_of, lane_limit, limits_of, open_desk, pickle_plan
from tidegate.engine.room import Room, wait_for_slots
from tidegate.engine.spark import Spark
from tidegate.engine.stores import rounds_commit
from tidegate.engine.topics import Topics
from tidegate.history.rows import RunRow
from tidegate.kafka.admin import Admin, TopicInfo
from tidegate.pipeline import Source
from tidegate.records import Partition
from tidegate.settings import Settings
from tidegate.steps import Plan


@dataclass(frozen=True)
class Records:
    """What the parts of such a run are made from."""

    plan: Plan
    source: Source
    settings: Settings
    admin: Admin
    spark: Spark
    kafka: bytes

    def prepare(self, sources: Mapping[str, TopicInfo]) -> OwnTopics:
        """Check what can be checked before the group is touched; return the group's own topics."""
        lane_limit(self.settings, self.spark)
        wait_for_slots(self.spark)
        return prepare(self.admin, self.source.group, self.plan.policy, self.settings, sources)

    def open(
        self, ends: Mapping[Partition, int] | None, own: OwnTopics, _topics: Topics, run: RunRow, events: Events
    ) -> tuple[Board, Lanes]:
        """Make the board, and the lanes that run its leases."""
        settings = self.settings
        most = lane_limit(settings, self.spark)
        board = Board(most, limits_of(settings), ends, rounds_commit=rounds_commit(self.plan))
        desk = open_desk(settings, self.spark, events)
        live = None if desk is None else desk.address
        job = jobs_of(pickle_plan(self.plan), self.kafka, live, own, settings, run, self.spark.import_path)
        room = Room(self.spark, board, settings.lanes) if self.spark.is_cluster else None
        return board, Lanes(self.spark, self.source.group, job, events.put, desk, room)
