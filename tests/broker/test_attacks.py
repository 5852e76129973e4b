"""Faults that happen in Kafka count when they are seen there."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.ledger import FULL_CHARACTERS
from tidegate.ops.produce import Message
from tidegate.ops.tail import tail
from tidegate.records import Partition
from tidegate.testing import (
    Attack,
    DeleteSettled,
    Due,
    FillMetadata,
    PlannedFault,
    Schedule,
    SkewClock,
    Stage,
    Struck,
    Subject,
    Trial,
)


def backlog(count: int) -> list[Message]:
    return [Message(str(number), partition=1) for number in range(count)]


@pytest.fixture
def trial(broker: Broker, tmp_path: Path) -> Iterator[Trial]:
    """One without copies, on the broker of all tests."""
    stage = Stage()
    stage.proxy.forward_to(broker.bootstrap)
    name = f"attack-{uuid.uuid4().hex[:8]}"
    subject = Subject(app="app.py", topic=name, group=name, copies=0, spared=(), backlog=backlog)
    with Trial(stage, subject, tmp_path) as made:
        made.create_topic(2)
        yield made
    stage.proxy.close()


def commit(trial: Trial, mark: int, metadata: str = "") -> None:
    place = Partition(trial.subject.topic, 1)
    Admin(trial.stage.kafka).commit_for_empty_group(trial.subject.group, {place: (mark, metadata)})


def strike(trial: Trial, fault: PlannedFault, produce: int = 0) -> Struck:
    attack = Attack(trial.stage, [trial], lambda _: trial.produce(backlog(produce)))
    attack.run(Schedule(0.3, (Due(0.0, fault, 0.0),)))
    return attack.struck[0]


def test_what_is_settled_counts_as_deleted_when_the_log_begins_later(trial: Trial) -> None:
    trial.produce(backlog(10))
    commit(trial, 6)
    place = Partition(trial.subject.topic, 1)

    first = strike(trial, DeleteSettled())
    assert (first.happened, first.told) == (True, f"the log begins later: {place} from 0 to 6")
    again = strike(trial, DeleteSettled())
    assert (again.happened, again.told) == (False, "nothing was settled since the last time")
    assert Admin(trial.stage.kafka).beginnings([place]) == {place: 6}


def test_a_clock_counts_as_wrong_when_records_carry_its_time(trial: Trial) -> None:
    struck = strike(trial, SkewClock(seconds=0.2, days=-10), produce=3)

    assert (struck.happened, struck.told) == (True, "3 records carry a wrong time")
    times = [one.timestamp for one in tail(trial.subject.topic, kafka=trial.stage.kafka)]
    assert len(times) == 3
    now = datetime.now(UTC)
    assert all(time is not None and timedelta(days=9) < now - time < timedelta(days=11) for time in times)


@pytest.mark.parametrize(("characters", "is_full"), [(FULL_CHARACTERS, False), (FULL_CHARACTERS + 1, True)])
def test_metadata_counts_as_full_where_reading_stops_and_a_backlog_is_given(
    trial: Trial, characters: int, is_full: bool
) -> None:
    commit(trial, 0, "x" * characters)

    struck = strike(trial, FillMetadata(seconds=1.5, records=40))
    assert (struck.happened, struck.told) == (is_full, f"the fullest commit had {characters} characters of metadata")
    assert {at for _, number, at in trial.produced if number == 1} == set(range(40))
