"""What runs into each kind of sink leave behind: killed, stopped, killed as they start, or unable to start at all."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.conftest import DOOMED, Scene, evenly
from tests.acceptance.kinds import KINDS, Kind, kind_of
from tests.acceptance.program import GONE_SECONDS, Program
from tests.hygiene import all_listening, files_in, listening, processes_with, temporary_place
from tests.support import wait_until

COUNT, PARTITIONS = 6000, 2
SESSION_SECONDS = 10.0
"""The longest of these runs: a member with a name of its own stays for so long when its run is stopped."""
_ORDINARY = ("object", "postgres", "parquet")


@dataclass(frozen=True)
class Place:
    """An empty folder, in which a run puts everything temporary."""

    folder: Path
    environment: Mapping[str, str]

    @property
    def files(self) -> list[str]:
        return files_in(self.folder)

    def processes(self) -> list[int]:
        """Everything that was started with it, also what has left the session of its run."""
        return processes_with("TMPDIR", str(self.folder))


@pytest.fixture
def place() -> Iterator[Place]:
    with temporary_place() as (folder, environment):
        yield Place(folder, environment)


@dataclass(frozen=True)
class Seen:
    """What a run held while it was at work."""

    sockets: set[str]
    """Those on which it listened."""
    pids: set[int]


def look(place: Place, program: Program, kind: Kind) -> Seen:
    """See that there is something to leave behind."""
    pids = set(place.processes())
    assert program.javas(), "there is no Java"
    assert program.workers(), "there is no worker"
    sockets = listening(pids)
    assert sockets, "nothing listens"
    assert place.files, "there is nothing temporary"
    assert kind.connections() != 0, "nobody is connected"
    return Seen(sockets, pids)


def check_gone(place: Place, seen: Seen, but: Program | None = None) -> None:
    """Wait until no process of that run lives, and nobody listens on what was its."""
    others = set() if but is None else set(but.processes())
    wait_until(lambda: not (seen.pids - others) & set(place.processes()), within=GONE_SECONDS, what="the end of it all")
    # The system takes a process's memory first, by which it is found here, and what it has open a moment later.
    wait_until(lambda: not seen.sockets & all_listening(), within=5, what="nobody who listens on its sockets")


def settled(scene: Scene) -> set[int]:
    """The numbers that lie below the group's marks."""
    marks = scene.marks()
    return {one for one in range(COUNT) if one // PARTITIONS < marks.get(one % PARTITIONS, 0)}


def wait_for_work(scene: Scene, program: Program, *, beyond: set[int]) -> None:
    """Wait until it has committed some more, and is not through."""
    program.wait_until(
        lambda: settled(scene) > beyond and bool(program.workers()), within=120, what="commits of its own"
    )
    assert len(settled(scene)) < COUNT, "it was through before it could be ended"


def members(scene: Scene) -> int:
    return len(scene.admin.group_members(scene.group).members)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name", [one if one in _ORDINARY else pytest.param(one, marks=pytest.mark.proof) for one in KINDS]
)
def test_a_killed_driver_takes_everything_along_and_a_stopped_run_leaves_nothing(
    scene: Scene, place: Place, name: str, request: pytest.FixtureRequest
) -> None:
    with kind_of(name, scene, request) as kind:
        scene.fill(PARTITIONS, evenly(COUNT, PARTITIONS))
        environment = {**kind.environment, **place.environment}
        killed = scene.start("kinds.py", *DOOMED, *kind.words, **environment)
        wait_for_work(scene, killed, beyond=set())
        first = look(place, killed, kind)
        killed.kill()
        assert len(settled(scene)) < COUNT, "the kill did not come midway"

        # At once, as a service manager does: it meets what of the killed one still lives.
        stopped = scene.start("kinds.py", *kind.words, **environment)
        check_gone(place, first, but=stopped)
        done = settled(scene)  # where the sink keeps the marks, its workers may have gone on until they noticed
        wait_for_work(scene, stopped, beyond=done)
        assert members(scene) == 1, "a killed member stays for its session at most"
        second = look(place, stopped, kind)
        stopped.send(signal.SIGTERM)

        assert stopped.wait(within=60).code == 0, stopped.err
        check_gone(place, second)
        wait_until(lambda: place.files == [], within=20, what=f"an empty folder: {place.files}")
        wait_until(lambda: not kind.connections(), within=20, what="the end of all connections")
        wait_until(lambda: members(scene) == 0, within=SESSION_SECONDS + 15, what="a group without members")
        assert kind.half_done == []
        if kind.unclosed is not None:
            assert not kind.unclosed & {str(pid) for pid in second.pids}, "a worker has not closed what it opened"
        assert done < settled(scene) < set(range(COUNT)), "the stop did not come midway"
        assert settled(scene) <= kind.ids(), "something below the marks is not there"


CANNOT_OPEN: dict[str, tuple[str, dict[str, str], str]] = {
    "a database that is away": ("postgres", {"DSN": "postgresql://127.0.0.1:1/nothing"}, "PostgreSQL"),
    "an object that refuses": ("object", {"REFUSES": "1"}, "it cannot be opened"),
    "a server that is away": ("http", {"URL": "http://127.0.0.1:1/"}, "127.0.0.1:1"),
    "no such topic": ("kafka", {"OUT": "no/such/topic"}, "no/such/topic"),
    "no such folder": ("parquet", {"OUT": "/dev/null/out"}, "Parent path is not a directory: file:/dev/null"),
}
NO_SPARK: dict[str, tuple[list[str], dict[str, str], str]] = {
    "a Java that ends": ([], {"JAVA_TOOL_OPTIONS": "-XX:NoSuchOption"}, "no Java that runs"),
    "a Spark that is not there": ([], {"SPARK_HOME": "/nowhere"}, "SPARK_HOME"),
    "a setting that Spark refuses": ([], {"PYSPARK_SUBMIT_ARGS": "--no-such-option"}, "Spark could not start"),
    "a master that is away": (["--master", "spark://127.0.0.1:1"], {}, "no Spark master answers"),
}


def check_nothing_left(scene: Scene, place: Place) -> None:
    """Whatever had been started is gone, and the group has no member."""
    wait_until(lambda: not place.processes(), within=GONE_SECONDS, what="the end of all that it started")
    wait_until(lambda: place.files == [], within=20, what=f"an empty folder: {place.files}")
    wait_until(lambda: members(scene) == 0, within=SESSION_SECONDS + 15, what="a group without members")


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "case",
    [pytest.param(one, marks=pytest.mark.proof) if one == "a server that is away" else one for one in CANNOT_OPEN],
)
def test_a_sink_that_cannot_open_leaves_no_process_no_file_and_no_member(scene: Scene, place: Place, case: str) -> None:
    kind, environment, words = CANNOT_OPEN[case]
    scene.fill(PARTITIONS, evenly(10, PARTITIONS))
    program = scene.start("kinds.py", **{"KIND": kind, "OUT": "", **place.environment, **environment})
    ended = program.wait(within=90)

    assert ended.code in (1, 3), ended.err
    assert words in ended.err
    assert not any(scene.marks().values()), "it went on without its sink"
    check_nothing_left(scene, place)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", NO_SPARK)
def test_a_spark_that_cannot_start_leaves_no_process_no_file_and_no_member(
    scene: Scene, place: Place, case: str
) -> None:
    words, environment, said = NO_SPARK[case]
    scene.fill(PARTITIONS, evenly(10, PARTITIONS))
    more = {"KIND": "function", "OUT": str(scene.folder / "effects"), **place.environment, **environment}
    ended = scene.start("kinds.py", *words, **more).wait(within=90)

    assert ended.code == 1, ended.err
    assert said in ended.err
    check_nothing_left(scene, place)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda one: one.name)
def test_ended_while_spark_starts_it_leaves_nothing_that_the_next_start_does_not_clear(
    scene: Scene, place: Place, number: signal.Signals
) -> None:
    scene.fill(PARTITIONS, evenly(10, PARTITIONS))
    more = {"KIND": "function", "OUT": str(scene.folder / "effects"), **place.environment}
    doomed = scene.start("kinds.py", *DOOMED, **more)
    # The file by which PySpark meets its Java: there as long as that starts.
    doomed.wait_until(
        lambda: any(Path(one).name.startswith("tmp") for one in place.files), within=60, what="a Java that starts"
    )
    doomed.send(number)

    ended = doomed.wait(within=60)
    assert not any(scene.marks().values()), "it was at work already"
    wait_until(lambda: not place.processes(), within=GONE_SECONDS, what="the end of all that it started")
    left = place.files
    if number is signal.SIGTERM:
        assert ended.code == 0, ended.err
        assert left == []
    else:
        assert left, "a kill left nothing, so nothing was proved"

    ended = scene.start("kinds.py", "--until", "caught-up", **more).wait(within=90)

    assert ended.code == 0, ended.err
    check_nothing_left(scene, place)
