"""Runs of the installed command, each with a topic, a group and a record log of its own."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.program import APPS, Program, tidegate
from tests.support import ways
from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.kafka.commits import read_commits
from tidegate.kafka.connection import Kafka
from tidegate.ops.produce import Message, produce
from tidegate.records import Partition
from tidegate.testing import Breach, RecordLog, check_laws, read_copies
from tidegate.testing.laws import Order

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

QUICK = ("--master", "local[2]", "--set", "session_timeout=10s", "--set", "commit_every=1s")
"""A short test sees several commits. Nobody waits for a session to end, and a busy machine must not end one."""
DOOMED = ("--set", "session_timeout=3s")
"""Of a program that will be killed: whoever follows it waits for its session to end."""


@dataclass
class Scene:
    """A topic, a group and a record log, and the programs that a test starts on them."""

    bootstrap: str
    folder: Path
    name: str
    programs: list[Program] = field(default_factory=list)
    produced: set[tuple[str, int, int]] = field(default_factory=set)
    stays_connected: bool = True
    """One client asks all that a test asks. Where brokers or connections go, its own would be among them, and wait."""

    @property
    def topic(self) -> str:
        return self.name

    @property
    def group(self) -> str:
        return f"{self.name}-group"

    @property
    def kafka(self) -> Kafka:
        return Kafka(self.bootstrap)

    @property
    def admin(self) -> Admin:
        return self._admin if self.stays_connected else Admin(self.kafka)

    @cached_property
    def _admin(self) -> Admin:
        return Admin(self.kafka)

    @property
    def log(self) -> RecordLog:
        return RecordLog(self.folder / "records")

    def fill(self, partitions: int, messages: Iterable[Message]) -> None:
        """Create the topic and write these records."""
        self.admin.create_topic(self.topic, partitions=partitions)
        # A new broker makes the topic of all commits when first asked for a group; that takes it a moment.
        self.admin.group_members(self.group)
        self.produce(messages)

    def produce(self, messages: Iterable[Message]) -> None:
        written = produce(self.topic, messages, kafka=self.kafka).partitions
        offsets = [(one.partition.number, range(one.first_offset, one.last_offset + 1)) for one in written]
        # A new set: another thread may be looking at the old one.
        self.produced = self.produced | {(self.topic, number, at) for number, some in offsets for at in some}

    def hurry(self) -> None:
        """What was to happen to `slow.py` has happened: the rest of its records takes no time."""
        Path(f"{self.log.path}.hurry").touch()

    def take_time(self) -> None:
        """What comes next is to find `slow.py` at work again."""
        Path(f"{self.log.path}.hurry").unlink()

    def start(self, app: Path | str, *words: str, **environment: str) -> Program:
        """Start `tidegate run` on an app of the folder beside this file, or on one by its path."""
        path = APPS / app if isinstance(app, str) else app
        return self.start_command(
            tidegate("run", str(path), "--bootstrap", self.bootstrap, *QUICK, *words), **environment
        )

    def start_command(self, command: list[str], **environment: str) -> Program:
        folder = self.folder / f"run-{len(self.programs) + 1}"
        folder.mkdir()
        known = {"TOPIC": self.topic, "GROUP": self.group, "LOG": self.log.path, "BOOTSTRAP": self.bootstrap}
        program = Program(command, folder, {**known, **environment})
        self.programs.append(program)
        return program

    def wait_for_records(self, count: int, program: Program, *, within: float = 120) -> None:
        """Wait until this program has settled so many records."""
        program.wait_until(
            lambda: self.log.count(driver=program.pid) >= count, within=within, what=f"{count} settled records"
        )

    def marks(self) -> dict[int, int]:
        """What the group has committed, by partition number."""
        committed = self.admin.committed(self.group, [Partition(self.topic, number) for number in self.partitions])
        return {partition.number: one.mark for partition, one in committed.items()}

    @property
    def partitions(self) -> list[int]:
        return sorted({number for _, number, _ in self.produced})

    @property
    def ends(self) -> dict[int, int]:
        """The end of each partition, by what was produced."""
        return {number: 1 + max(at for _, one, at in self.produced if one == number) for number in self.partitions}

    def breaches(self, order: Order = "partition") -> list[Breach]:
        """Check the laws on all that happened here."""
        entries = self.log.read()
        commits = read_commits(self.kafka, self.group)
        assert commits, "the group has never committed"
        copies = read_copies(self.kafka, self.group)
        return check_laws(self.produced, entries.events, commits, entries.faults, copies=copies, order=order)

    def clean_up(self) -> None:
        for program in self.programs:
            program.kill_all()


@pytest.fixture
def scene(broker: Broker, tmp_path: Path) -> Iterator[Scene]:
    """A scene for one test; whatever it started is ended with it."""
    made = Scene(broker.bootstrap, tmp_path, new_name())
    yield made
    made.clean_up()


@pytest.fixture(scope="module")
def module_scene(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A scene that the tests of a file look at together."""
    made = Scene(broker.bootstrap, tmp_path_factory.mktemp("scene"), new_name())
    yield made
    made.clean_up()


def channel(ordinary: str) -> pytest.MarkDecorator:
    """Run with and without the live channel where proof is asked for; ordinarily in one of the two ways."""
    known = {"live": pytest.param("true", id="live"), "plain": pytest.param("false", id="plain")}
    first = known.pop(ordinary)
    return pytest.mark.parametrize("live", ways(first, *known.values()))


def new_name() -> str:
    return f"acceptance-{uuid.uuid4().hex[:10]}"


def evenly(count: int, partitions: int) -> Iterator[Message]:
    """Give so many small records, spread evenly."""
    for number in range(count):
        yield Message(str(number), partition=number % partitions)
