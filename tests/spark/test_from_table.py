"""`starting=tg.from_table(...)`: a group without commits begins where an offset table says, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the client does not mark what it re-exports
    AdminClient,
    NewPartitions,
)

import tidegate as tg
from tests.spark.conftest import Beside, World
from tests.support import wait_until
from tidegate.history.rows import Batch, MarkRow, OffsetRow, RunRow
from tidegate.history.store import History
from tidegate.records import Partition

OLD = "old-group"


class Table:
    """The history that the test's pipelines start from, and rows in it as runs of the old group wrote them."""

    def __init__(self, world: World, path: Path) -> None:
        self.path = str(path)
        self._world = world
        self._cluster = world.admin.cluster_id()

    def settle(self, *marks: int, group: str = OLD, topic_id: str = "") -> None:
        now = datetime.now(UTC)
        rows = {Partition(self._world.topic, number): MarkRow(mark, now, topic_id) for number, mark in enumerate(marks)}
        with History(self.path) as history:
            history.write(Batch(RunRow(f"run of {group}", self._cluster, group, now, now), rows))

    def ask(self, mark: int, group: str = OLD) -> int:
        with History(self.path) as history:
            return history.ask(self._cluster, group, {Partition(self._world.topic, 0): mark}, by="a test")

    def row(self, group: str) -> OffsetRow:
        with History(self.path) as history:
            [found] = history.offsets(self._cluster, group)
        return found

    def pipeline(self, group: str | None = OLD, otherwise: str | None = None) -> tg.Pipeline:
        starting = tg.from_table(group, self.path, otherwise)  # type: ignore[arg-type]  # plain text in tests
        return tg.from_kafka(
            self._world.topic, group=self._world.group, kafka=self._world.kafka, starting=starting
        ).sink(self._world.trail)


@pytest.fixture
def table(world: World, tmp_path: Path) -> Table:
    return Table(world, tmp_path / "history.sqlite")


def test_a_new_group_begins_where_the_table_of_the_old_one_says(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    world = make_world(2)
    table = Table(world, tmp_path / "history.sqlite")
    world.produce(range(5), partition=0)
    world.produce(range(4), partition=1)
    table.settle(3, 1)
    world.run(table.pipeline())
    assert sorted(world.trail.ids()) == [(0, 3), (0, 4), (1, 1), (1, 2), (1, 3)]
    assert (world.mark(0), world.mark(1)) == (5, 4)


def test_where_it_begins_is_committed_before_the_first_record_and_never_chosen_again(
    world: World, table: Table
) -> None:
    world.produce(range(5))
    table.settle(3)
    report = world.run(replace(table.pipeline(), sinks=()).map(_refuse).sink(world.trail))
    assert report.failure is not None
    assert report.failure.record_offset == 3
    assert world.commits() == [3], "committed although nothing was settled"

    table.settle(1)  # whatever the table says from now on
    world.run(table.pipeline())
    assert world.trail.offsets() == [3, 4]


def test_a_group_that_has_commits_of_its_own_ignores_the_table(world: World, table: Table) -> None:
    world.produce(range(3))
    world.run(world.pipeline().sink(world.trail))
    world.produce(range(2))
    table.settle(1)
    world.run(table.pipeline())
    assert world.trail.offsets() == [0, 1, 2, 3, 4]


def test_without_a_name_it_is_the_groups_own_row(world: World, table: Table) -> None:
    world.produce(range(4))
    table.settle(1)
    table.settle(2, group=world.group)
    world.run(table.pipeline(group=None))
    assert world.trail.offsets() == [2, 3]


def test_the_setting_names_the_table_where_the_program_does_not(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.produce(range(4))
    table.settle(3)
    monkeypatch.setenv("TIDEGATE_HISTORY", table.path)
    starting = tg.from_table(OLD)
    world.run(tg.from_kafka(world.topic, group=world.group, kafka=world.kafka, starting=starting).sink(world.trail))
    assert world.trail.offsets() == [3]


def test_a_request_that_was_not_applied_counts_before_what_is_settled(world: World, table: Table) -> None:
    world.produce(range(5))
    table.settle(4)
    table.ask(2)
    world.run(table.pipeline())
    assert world.trail.offsets() == [2, 3, 4]


def test_a_request_of_its_own_that_it_started_from_is_applied_by_that(world: World, table: Table) -> None:
    world.settings |= {"history": table.path, "history_every": "100ms"}
    world.produce(range(50))
    table.settle(40, group=world.group)
    replay = table.ask(20, group=world.group)
    starting = tg.from_table()
    slowly = tg.from_kafka(world.topic, group=world.group, kafka=world.kafka, starting=starting).rate("20/s")

    def request_is_applied() -> bool:
        return table.row(world.group).applied_at is not None

    # It looks for requests several times while it works: the one that it began with must not move it again.
    waiting = Beside(lambda: wait_until(request_is_applied, within=60, what="that it is applied"), stops=False)
    world.run(slowly.sink(world.trail))
    waiting.check()
    assert world.trail.offsets() == list(range(20, 50))
    assert (table.row(world.group).replay, table.row(world.group).mark) == (replay, 50)


def test_partitions_that_the_table_does_not_know_are_an_error_or_begin_where_told(world: World, table: Table) -> None:
    client = AdminClient({"bootstrap.servers": world.kafka.bootstrap})
    for future in client.create_partitions([NewPartitions(world.topic, 2)]).values():
        future.result(20)
    world.produce(range(3))
    world.produce(range(3), partition=1)
    table.settle(1)
    with pytest.raises(tg.NoStartingOffset, match=rf"of group {OLD} does not know {world.topic}\[1\]"):
        world.run(table.pipeline())
    assert (world.mark(0), world.mark(1)) == (None, None), "nothing was moved"

    world.run(table.pipeline(otherwise="latest"))
    assert world.trail.ids() == [(0, 1), (0, 2)]
    assert world.mark(1) == 3


def test_a_table_that_knows_nothing_of_the_group_is_an_error(world: World, table: Table) -> None:
    world.produce([1])
    with pytest.raises(tg.NoStartingOffset, match="the offset table of group nobody does not know"):
        world.run(table.pipeline(group="nobody"))
    world.run(table.pipeline(group="nobody", otherwise="earliest"))
    assert world.trail.offsets() == [0]


def test_a_table_that_cannot_be_read_is_an_error_whatever_otherwise_says(world: World, table: Table) -> None:
    world.produce([1])
    Path(table.path).write_bytes(b"no database at all" * 1000)
    with pytest.raises(tg.HistoryBroken, match="move the file away"):
        world.run(table.pipeline(otherwise="earliest"))
    assert world.mark() is None
    assert world.trail.lines() == []


def test_a_history_that_is_off_has_no_table(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_HISTORY", "off")
    started = tg.from_kafka(world.topic, group=world.group, kafka=world.kafka, starting=tg.from_table())
    with pytest.raises(tg.SettingsError, match="the setting history is off"):
        world.run(started.sink(world.trail))


def test_an_offset_that_is_not_in_the_log_is_an_error_that_says_so(world: World, table: Table) -> None:
    world.produce(range(5))
    client = AdminClient({"bootstrap.servers": world.kafka.bootstrap})
    for future in client.delete_records([TopicPartition(world.topic, 0, 3)]).values():
        future.result(20)
    for mark in (2, 6):
        table.settle(mark, group=f"at {mark}")
        with pytest.raises(tg.SettingsError, match=rf"cannot start at {mark}: its log goes from 3 to 5"):
            world.run(table.pipeline(group=f"at {mark}"))
    assert world.mark() is None


def test_an_offset_of_a_topic_that_was_made_anew_is_an_error(world: World, table: Table) -> None:
    world.produce(range(5))
    table.settle(2, topic_id="another one")
    with pytest.raises(tg.SettingsError, match="was made anew"):
        world.run(table.pipeline())
    own = world.admin.describe([world.topic])[world.topic].topic_id
    table.settle(3, topic_id=own)
    world.run(table.pipeline())
    assert world.trail.offsets() == [3, 4]


def _refuse(value: object) -> object:
    raise ValueError(f"refused {value!r}")
