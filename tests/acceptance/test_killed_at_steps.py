"""The whole program killed at each step of a commit: exactly what lies behind the mark runs again, and nothing else.

The steps are those of docs/guarantees.md.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import DOOMED, Scene, channel, evenly, new_name
from tests.acceptance.program import Program
from tests.support import broker_behind_proxy
from tidegate.history.store import History
from tidegate.ops.produce import Message
from tidegate.testing import Delay, DelayAnswers, KafkaProxy
from tidegate.testing.record_log import Kind
from tidegate.testing.requests import OFFSET_COMMIT

Places = list[tuple[int, int]]
"""Records by partition and offset."""
PARTITIONS = 2
BEFORE, MORE = 3, 4
"""Records of each partition: those that are committed first, and those that come then."""
END = BEFORE + MORE
STANDS_AT = BEFORE + 1
"""The record of partition 0 at which it stands still."""
ENDLESS = 3600.0
PATIENT = ("--set", "timeout=150s", "--set", "stop_budget=160s", "--set", "stall_after=600s")
"""Nobody gives up what stands still here, however slow the machine."""


@pytest.fixture(scope="module")
def proxy() -> Iterator[KafkaProxy]:
    """A broker of its own for this file."""
    with broker_behind_proxy() as made:
        yield made


@pytest.fixture
def scene(proxy: KafkaProxy, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(proxy.bootstrap, tmp_path, new_name())
    yield made
    made.clean_up()


def start(scene: Scene, *words: str, **environment: str) -> Program:
    """Start a program that stands behind the first records, and knows that this is committed."""
    scene.fill(PARTITIONS, evenly(PARTITIONS * BEFORE, PARTITIONS))
    history = ("--set", f"history={history_of(scene)}", "--set", "history_every=200ms")
    program = scene.start("steps.py", *PATIENT, *history, *words, SIGN=str(scene.folder / "sign"), **environment)
    program.wait_until(lambda: heard(scene) == scene.ends, within=120, what="the first records committed")
    return program


def history_of(scene: Scene) -> Path:
    return scene.folder / "history.sqlite"


def heard(scene: Scene) -> dict[int, int]:
    """The marks that the driver has been told are committed: only they come into its history."""
    if not history_of(scene).exists():
        return {}
    with History(str(history_of(scene))) as history:
        rows = history.offsets(scene.admin.cluster_id(), scene.group)
    return {one.partition.number: one.mark for one in rows if one.mark is not None}


def standing_at(step: str) -> dict[str, str]:
    return {"STAND": f"{step} {PARTITIONS * STANDS_AT}"}


def produce_more(scene: Scene) -> None:
    numbers = range(PARTITIONS * BEFORE, PARTITIONS * END)
    scene.produce(Message(str(number), partition=number % PARTITIONS) for number in numbers)


def stand_still(scene: Scene, program: Program, marks: dict[int, int]) -> None:
    """It stands at its step, and everything else that it has done is committed, as far as it may be."""
    produce_more(scene)
    program.wait_until((scene.folder / "sign").exists, within=60, what="it stands at its step")
    program.wait_until(lambda: scene.marks() == marks, within=60, what=f"the marks {marks}")


def kill(scene: Scene, program: Program) -> None:
    scene.log.fault("power_cut", driver=program.pid)
    program.kill_all()
    assert program.code == -signal.SIGKILL


def finish(scene: Scene, **environment: str) -> Program:
    """The next process, from start to end; nothing is missing and nothing is unlawful afterwards."""
    program = scene.start("steps.py", "--until", "caught-up", **environment)
    ended = program.wait(within=120)
    assert ended.code == 0, ended.err
    assert scene.marks() == scene.ends
    assert scene.breaches() == []
    return program


def noted(scene: Scene, program: Program, kind: Kind) -> Places:
    """What this program has noted, sorted."""
    events = [one for one in scene.log.read().events if (one.kind, one.driver) == (kind, program.pid)]
    return sorted((one.partition.number, one.record_offset) for one in events)


def twice(scene: Scene, kind: Kind) -> Places:
    """What was noted twice; nothing ever is more often, and everything is once."""
    times = Counter((one.partition.number, one.record_offset) for one in scene.log.read().events if one.kind == kind)
    assert set(times) == {(number, at) for _, number, at in scene.produced}
    assert max(times.values()) <= 2
    return sorted(place for place, count in times.items() if count > 1)


def behind(marks: dict[int, int]) -> Places:
    """The records from these marks on."""
    return [(number, at) for number in range(PARTITIONS) for at in range(marks[number], END)]


@pytest.mark.timeout(300)
def test_killed_after_reading_nothing_has_run_and_nothing_runs_twice(scene: Scene) -> None:
    first = start(scene, *DOOMED, **standing_at("read"))
    stand_still(scene, first, {0: STANDS_AT, 1: END})
    assert (0, STANDS_AT) not in noted(scene, first, "began")
    kill(scene, first)
    second = finish(scene)

    assert noted(scene, second, "began") == behind({0: STANDS_AT, 1: END})
    assert twice(scene, "began") == twice(scene, "settled") == []


@pytest.mark.timeout(300)
def test_killed_after_its_functions_ran_they_run_again_and_the_sink_gets_the_record_once(scene: Scene) -> None:
    first = start(scene, *DOOMED, **standing_at("ran"))
    stand_still(scene, first, {0: STANDS_AT, 1: END})
    assert (0, STANDS_AT) in noted(scene, first, "began")
    assert (0, STANDS_AT) not in noted(scene, first, "settled")
    kill(scene, first)
    finish(scene)

    assert twice(scene, "began") == [(0, STANDS_AT)]
    assert twice(scene, "settled") == []


@pytest.mark.timeout(300)
@channel("plain")
def test_killed_when_the_sink_has_a_record_exactly_those_from_the_mark_to_it_run_again(scene: Scene, live: str) -> None:
    first = start(scene, *DOOMED, "--set", f"live={live}", **standing_at("settled"))
    # Without the channel nobody hears of what a round has settled before it ends.
    mark = STANDS_AT if live == "true" else BEFORE
    stand_still(scene, first, {0: mark, 1: END})
    assert (0, STANDS_AT) in noted(scene, first, "settled")
    kill(scene, first)
    assert scene.marks() == {0: mark, 1: END}
    finish(scene)

    from_the_mark_to_it = [(0, at) for at in range(mark, STANDS_AT + 1)]
    assert twice(scene, "began") == twice(scene, "settled") == from_the_mark_to_it


@pytest.mark.timeout(300)
@channel("plain")
def test_killed_before_its_commit_reached_the_broker_exactly_what_was_settled_since_the_last_runs_again(
    scene: Scene, proxy: KafkaProxy, live: str
) -> None:
    first = start(scene, "--set", f"live={live}")
    with proxy.under(Delay([OFFSET_COMMIT], seconds=ENDLESS)) as held:
        produce_more(scene)
        first.wait_until(lambda: held.is_holding, within=60, what="the driver has the outcome, and commits it")
        scene.wait_for_records(PARTITIONS * END, first)
        kill(scene, first)
        assert held.is_holding
        assert proxy.cut() > 0, "the commit goes down with its connection"
    before = dict.fromkeys(range(PARTITIONS), BEFORE)
    assert scene.marks() == before
    finish(scene)

    assert twice(scene, "began") == twice(scene, "settled") == behind(before)


@pytest.mark.timeout(300)
def test_killed_before_it_heard_that_its_commit_was_taken_nothing_below_the_mark_runs_again(
    scene: Scene, proxy: KafkaProxy
) -> None:
    first = start(scene)
    with proxy.under(DelayAnswers([OFFSET_COMMIT], seconds=ENDLESS)) as held:
        produce_more(scene)
        first.wait_until(lambda: held.is_holding, within=60, what="the broker has a commit and has answered")
        scene.wait_for_records(PARTITIONS * END, first)
        kill(scene, first)
        assert held.is_holding, "it never heard the answer"
        assert proxy.cut() > 0
    marks = scene.marks()
    assert sum(marks.values()) > PARTITIONS * BEFORE, "a commit was taken"
    finish(scene)

    # The lanes report one after the other: what the second one did may have missed that commit.
    assert twice(scene, "began") == twice(scene, "settled") == behind(marks)


@pytest.mark.timeout(300)
def test_killed_after_its_commit_was_answered_nothing_runs_again_and_latest_is_not_chosen_anew(scene: Scene) -> None:
    first = start(scene, *DOOMED, STARTING="latest")
    scene.produced.clear()  # latest was behind them
    produce_more(scene)
    first.wait_until(lambda: heard(scene) == scene.ends, within=60, what="its commits are answered")
    kill(scene, first)
    assert noted(scene, first, "settled") == behind(dict.fromkeys(range(PARTITIONS), BEFORE))
    missed = range(PARTITIONS * END, PARTITIONS * (END + 1))
    scene.produce(Message(str(number), partition=number % PARTITIONS) for number in missed)
    second = finish(scene, STARTING="latest")

    assert noted(scene, second, "began") == [(0, END), (1, END)], "what came while nothing ran, and only that"
    assert twice(scene, "began") == twice(scene, "settled") == []
