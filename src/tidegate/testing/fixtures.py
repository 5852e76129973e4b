"""Fixtures for pytest. Name this module in `conftest.py`: `pytest_plugins = ["tidegate.testing.fixtures"]`.

All else of the kit needs no pytest; these need the extra `testing`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from tidegate.dev.broker import Broker
from tidegate.errors import SettingsError
from tidegate.kafka.connection import Kafka
from tidegate.testing.stage import Stage
from tidegate.testing.trial import Subject, Trial

try:
    import pytest
except ImportError:
    raise SettingsError("the fixtures need pytest", "install it: pip install 'tidegate[testing]'") from None


class MakeTrial(Protocol):
    """What `tidegate_trial` gives."""

    def __call__(self, app: Path | str, *, topic: str, group: str, partitions: int = 4, **subject: Any) -> Trial:
        """Make the topic and a trial of this program; further words are those of `Subject`."""


@pytest.fixture(scope="session")
def tidegate_broker() -> Iterator[Broker]:
    """A real Kafka, one for the whole run. Give every test topics and groups of its own."""
    with Broker() as running:
        yield running


@pytest.fixture(scope="session")
def tidegate_kafka(tidegate_broker: Broker) -> Kafka:
    """How to reach it, for everything that takes `kafka=`."""
    return Kafka(tidegate_broker.bootstrap)


@pytest.fixture(scope="session")
def tidegate_stage() -> Iterator[Stage]:
    """A second Kafka, behind a proxy, for tests that disturb it."""
    with Stage() as running:
        yield running


@pytest.fixture
def tidegate_trial(tidegate_stage: Stage, tmp_path: Path) -> Iterator[MakeTrial]:
    """Make trials of programs; whatever of them runs at the end of the test is killed."""
    made: list[Trial] = []

    def make(app: Path | str, *, topic: str, group: str, partitions: int = 4, **subject: Any) -> Trial:
        folder = tmp_path / f"trial-{len(made) + 1}"
        folder.mkdir()
        trial = Trial(tidegate_stage, Subject(app=app, topic=topic, group=group, **subject), folder)
        made.append(trial)
        trial.create_topic(partitions)
        return trial

    yield make
    for trial in made:
        trial.close()
