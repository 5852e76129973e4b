"""What was redriven is remembered by the history too: for longer than the redrive topic, and never as a condition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tidegate as tg
from tests.broker.graveyard import Graveyard, Letter
from tidegate.history.store import History
from tidegate.kafka.connection import Kafka

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.dev.broker import Broker


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "history.sqlite"
    monkeypatch.setenv("TIDEGATE_HISTORY", str(path))
    return path


@pytest.fixture
def yard(broker: Broker, tmp_path: Path) -> Graveyard:
    return Graveyard(Kafka(broker.bootstrap), tmp_path)


def remembered(yard: Graveyard, path: Path) -> set[tuple[int, int, str, str]]:
    with History(str(path)) as history:
        rows = history.redriven(yard.admin.cluster_id(), yard.group)
    return {(row.partition, row.offset, row.stable_id, row.to) for row in rows}


def were_redriven(yard: Graveyard) -> dict[int, bool]:
    letters = tg.dead_letters(yard.group, kafka=yard.kafka)
    return {letter.origin_offset or 0: letter.was_redriven for letter in letters}


def test_what_the_redrive_topic_has_forgotten_the_history_still_knows(yard: Graveyard, path: Path) -> None:
    yard.bury(*(Letter(number, partition=number % 2) for number in range(4)))
    assert yard.send(limit=3).sent == 3
    sent = sorted(yard.redriven_ids())
    assert sent == yard.ids([0, 1, 2])  # partition by partition: 0 and 2, then 1
    assert {row[2] for row in remembered(yard, path)} == set(sent)
    assert {row[3] for row in remembered(yard, path)} == {yard.redrive}

    yard.admin.delete_topic(yard.redrive)  # as retention does, at once
    assert were_redriven(yard) == {0: True, 1: True, 2: True, 3: False}
    second = yard.send()
    assert (second.sent, second.already_redriven) == (1, 3)
    assert yard.redriven_ids() == yard.ids([3])


def test_what_was_sent_elsewhere_is_remembered_with_its_place(yard: Graveyard, path: Path) -> None:
    yard.bury(Letter(7, partition=1))
    elsewhere = f"{yard.group}-elsewhere"
    yard.admin.create_topic(elsewhere, 1)
    yard.send(to=elsewhere)
    assert remembered(yard, path) == {(1, 0, yard.ids([7])[0], elsewhere)}


def test_another_letter_in_the_same_place_was_not_redriven(yard: Graveyard, path: Path) -> None:
    yard.bury(Letter(0))
    yard.send()
    for topic in (yard.dead, yard.redrive):
        yard.admin.delete_topic(topic)
    yard.bury(Letter(0))
    assert len(remembered(yard, path)) == 1, "the same place, the same record, but another letter"
    assert were_redriven(yard) == {0: False}


def test_a_broken_history_is_a_warning_and_every_letter_is_sent(
    yard: Graveyard, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.mkdir()
    yard.bury(*(Letter(number) for number in range(3)))
    assert yard.send().sent == 3
    assert sorted(yard.redriven_ids()) == yard.ids(range(3))
    warnings = [one.getMessage() for one in caplog.records if one.name == "tidegate.history"]
    assert len(warnings) == 1
    assert "unable to open" in warnings[0]
    assert "known from the redrive topic alone" in warnings[0]
    assert yard.send().already_redriven == 3


def test_a_history_that_is_off_is_not_asked(
    yard: Graveyard, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TIDEGATE_HISTORY", "off")
    yard.bury(Letter(0))
    assert yard.send().sent == 1
    assert not path.exists()
    assert [one for one in caplog.records if one.name == "tidegate.history"] == []
