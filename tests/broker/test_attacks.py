"""Faults that happen in Kafka count when they are seen there."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.kafka.scan import SeenRecord
from tidegate.ledger import FULL_CHARACTERS
from tidegate.ops.produce import Message
from tidegate.ops.tail import tail
from tidegate.records import Partition
from tidegate.testing import (
    Attack,
    DeleteSettled,
    Due,
    Event,
    FillMetadata,
    KillDriver,
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
def stage(broker: Broker) -> Iterator[Stage]:
    """The broker of all tests, behind a proxy."""
    made = Stage()
    made.proxy.forward_to(broker.bootstrap)
    yield made
    made.proxy.close()


def subject(**more: Any) -> Subject:
    """One without copies, unless more is said."""
    name = f"attack-{uuid.uuid4().hex[:8]}"
    return Subject(**{"app": "app.py", "topic": name, "group": name, "copies": 0, "spared": (), **more})


@pytest.fixture
def trial(stage: Stage, tmp_path: Path) -> Iterator[Trial]:
    """One without copies."""
    with Trial(stage, subject(backlog=backlog), tmp_path) as made:
        made.create_topic(2)
        yield made


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


# --- what proves nothing


def test_an_attack_on_nothing_and_one_in_which_nothing_struck_say_so(trial: Trial) -> None:
    never = Schedule(0.3, (Due(0.0, DeleteSettled(), 0.0),))
    trial.attack(never)
    assert (trial.surprises, trial.attacks) == (["nothing was produced"], [])

    trial.surprises.clear()
    trial.produce(backlog(10))
    commit(trial, 10)
    trial.attack(never)
    assert (trial.surprises, len(trial.attacks)) == ([], 1), "what was settled was deleted"

    trial.attack(never)
    whom = trial.subject.group
    nothing = f"delete settled {whom}: nothing was settled since the last time"
    assert trial.surprises == [f"no fault struck: {nothing}"]

    trial.surprises.clear()
    trial.attack(Schedule(0.1, ()))
    assert trial.surprises == ["no fault struck: none was due"]


def test_a_program_that_cannot_begin_is_told_at_once_and_not_attacked(stage: Stage, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text("raise SystemExit('it has no colour')\n", encoding="utf-8")
    with Trial(stage, subject(app=app, copies=1), tmp_path) as trial:
        trial.create_topic(2)
        trial.produce(backlog(10))
        began = time.monotonic()
        trial.attack(Schedule(0.3, (Due(0.0, KillDriver(), 0.0),)))

        assert time.monotonic() - began < 60, "nobody waits for what cannot come"
        assert trial.attacks == []
        # It was started again meanwhile: that one's end is told before this sentence, or when it is stopped.
        [at] = [at for at, one in enumerate(trial.surprises) if one.startswith("it did not begin to work: ")]
        assert at > 0, "its end is told first"
        ends = [*trial.surprises[:at], *trial.surprises[at + 1 :]]
        assert all(one.startswith("process ") and "ended with 1" in one for one in ends)
        assert all("it has no colour" in one for one in trial.surprises)


# --- outputs


def is_even(record: SeenRecord) -> bool:
    return int(record.value or b"") % 2 == 0


def test_what_a_pipeline_drops_is_not_missed_and_must_reach_no_sink(stage: Stage, tmp_path: Path) -> None:
    with Trial(stage, subject(wanted=is_even), tmp_path) as trial:
        trial.create_topic(2)
        trial.produce(backlog(10))
        commit(trial, 0)
        commit(trial, 10)
        assert strike(trial, DeleteSettled()).happened, "what is gone is known all the same"
        even, odd = ({(trial.subject.topic, 1, at) for at in range(first, 10, 2)} for first in (0, 1))

        assert trial.breaches(effects=even) == []
        assert trial.unwanted == odd
        [missing, _] = trial.breaches(effects=sorted(even)[1:])
        assert (missing.law, missing.records) == ("L2", (min(even),))
        [dropped] = trial.breaches(effects=even | {min(odd)})
        assert (dropped.law, dropped.records) == ("L6", (min(odd),))


@pytest.mark.parametrize("where", ["the record log", "the sink"])
def test_an_output_that_nobody_sent_is_a_breach_and_names_it(trial: Trial, where: str) -> None:
    trial.produce(backlog(3))
    known = [(trial.subject.topic, 1, at) for at in range(3)]
    invented = (trial.subject.topic, 1, 77)
    outputs = [*known, invented]
    settled = [settling(place) for place in outputs]
    commit(trial, 0)
    commit(trial, 3)

    found = trial.breaches(events=settled) if where == "the record log" else trial.breaches(effects=outputs)
    assert [(one.law, one.records) for one in found] == [("L6", (invented,))]


def settling(place: tuple[str, int, int]) -> Event:
    topic, number, at = place
    now_ms = int(time.time() * 1000)
    return Event("settled", Partition(topic, number), at, f"g:{topic}:{number}:{at}", None, 1, now_ms, 1, "p", 1, "r")
