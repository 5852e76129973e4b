"""The end of a transaction is held up, cut off or refused on its way: each output below the mark is there once."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, KafkaError

from tests.broker.test_transactions import Scene, membership
from tests.support import broker_behind_proxy, wait_until
from tidegate.kafka import transactions
from tidegate.store import Overtaken
from tidegate.testing import Delay, DelayAnswers, Disturbance, KafkaProxy, RefuseCommits
from tidegate.testing.requests import (
    COORDINATOR_LOAD_IN_PROGRESS,
    END_TXN,
    ILLEGAL_GENERATION,
    TXN_OFFSET_COMMIT,
    UNKNOWN_MEMBER_ID,
    Request,
)

ENDLESS = 3600.0
COMPACT_ENDS = 3
"""The first version whose answer is coded otherwise."""


@pytest.fixture(scope="module")
def wire() -> Iterator[KafkaProxy]:
    """A broker of its own for this file."""
    with broker_behind_proxy() as proxy:
        yield proxy


def wait_for_mark(scene: Scene, mark: int) -> None:
    wait_until(lambda: scene.mark() == mark, within=10, what=f"the group stands at {mark}")


class Rounds:
    """Records that are numbered as their offsets are; each has its number as its output.

    Rounds go over them as the engine's do: begin, and seal from the mark on that is stored; whoever is overtaken
    begins anew.
    """

    def __init__(self, scene: Scene, member: Consumer) -> None:
        self._scene = scene
        self.member = member
        self._store = scene.store()
        self.mark = 0
        self.begin()

    def begin(self) -> None:
        """Begin the next round of this worker."""
        scene = self._scene
        found = self._store.begin([scene.partition], membership(self.member)).get(scene.partition)
        self.mark = 0 if found is None else found.mark

    def start_anew(self) -> None:
        """Begin as another worker does, which knows nothing of this one."""
        self._store = self._scene.store()
        self.begin()

    def seal(self, count: int) -> bool:
        """Seal so many records; False if this round has been overtaken."""
        new = self.mark + count
        values = [str(number) for number in range(self.mark, new)]
        try:
            assert self._store.seal(self._scene.effects(*values), self._scene.commits(new)) == {}
        except Overtaken:
            return False
        self.mark = new
        return True

    def check(self) -> None:
        """What readers see is exactly what lies below the mark that is stored."""
        assert self._scene.outputs() == [str(number) for number in range(self.mark)]
        wait_for_mark(self._scene, self.mark)  # its own marker may come a moment later


@pytest.fixture
def scene(wire: KafkaProxy) -> Iterator[Scene]:
    made = Scene(wire.bootstrap)
    yield made
    made.close()


@pytest.fixture
def rounds(scene: Scene) -> Rounds:
    """Two records are sealed already."""
    made = Rounds(scene, scene.join())
    assert made.seal(2)
    made.check()
    return made


@pytest.fixture
def beside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


class AnswerEnds(Disturbance):
    """Whoever ends a transaction is answered with this error, though the broker has done it, or has never seen it."""

    def __init__(self, error: int, *, is_done: bool) -> None:
        super().__init__()
        self._error = error
        self._is_done = is_done

    def meet(self, request: Request) -> bytes | None:
        return None if self._is_done else self._refusal(request)

    def amend(self, request: Request, answer: bytes) -> bytes:
        return (self._refusal(request) if self._is_done else None) or answer

    def _refusal(self, request: Request) -> bytes | None:
        if request.api_key != END_TXN:
            return None
        assert request.version < COMPACT_ENDS, "what today's client sends"
        self._strike()
        return struct.pack(">iih", request.correlation_id, 0, self._error)  # no throttling


def go_on(rounds: Rounds) -> None:
    """This worker goes on where it stands, then another one."""
    rounds.check()
    assert rounds.seal(2)
    rounds.start_anew()
    rounds.check()
    assert rounds.seal(2)
    rounds.check()


@pytest.mark.parametrize("holding", [Delay, DelayAnswers], ids=["request", "answer"])
@pytest.mark.parametrize("step", [TXN_OFFSET_COMMIT, END_TXN], ids=["marks", "end"])
def test_a_step_of_a_commit_that_is_cut_off_is_asked_for_again_and_done_once(
    wire: KafkaProxy,
    scene: Scene,
    rounds: Rounds,
    beside: ThreadPoolExecutor,
    step: int,
    holding: type[Delay | DelayAnswers],
) -> None:
    with wire.under(holding([step], seconds=ENDLESS)) as held:
        sealed = beside.submit(rounds.seal, 3)
        wait_until(lambda: held.is_holding, within=10, what="it is on its way")
        wait_for_mark(scene, 5 if step == END_TXN and holding is DelayAnswers else 2)
        assert wire.cut() > 0
        assert not sealed.done()
    assert sealed.result(60), "the round goes on"
    rounds.begin()
    assert rounds.mark == 5
    go_on(rounds)


@pytest.mark.parametrize(("holding", "mark"), [(Delay, 2), (DelayAnswers, 5)], ids=["request", "answer"])
def test_a_commit_that_nobody_answers_ends_its_round_and_what_is_stored_says_how_it_ended(
    wire: KafkaProxy,
    scene: Scene,
    rounds: Rounds,
    beside: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    holding: type[Delay | DelayAnswers],
    mark: int,
) -> None:
    with monkeypatch.context() as patch, wire.under(holding([END_TXN], seconds=ENDLESS)) as held:
        patch.setattr(transactions, "ANSWER_SECONDS", 1.0)
        patch.setattr(transactions, "TRANSACTION_SECONDS", 1)
        sealed = beside.submit(rounds.seal, 3)
        wait_until(lambda: held.is_holding, within=10, what="the commit is on its way")
        wait_for_mark(scene, mark)
        try:
            assert wire.unplug() > 0
            assert not sealed.result(60), "nobody knows how it ended"
        finally:
            wire.plug()
    rounds.begin()
    assert rounds.mark == mark
    go_on(rounds)


def test_a_commit_whose_answer_is_late_is_waited_for(
    wire: KafkaProxy, rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, wire.under(DelayAnswers([END_TXN], seconds=2.5)) as late:
        patch.setattr(transactions, "ANSWER_SECONDS", 1.0)
        assert rounds.seal(3)
    assert late.struck == 1, "it was asked for once"
    rounds.begin()
    assert rounds.mark == 5
    go_on(rounds)


@pytest.mark.parametrize(
    ("holding", "mark", "counts"), [(Delay, 2, False), (DelayAnswers, 5, True)], ids=["request", "answer"]
)
def test_who_begins_while_a_commit_is_on_its_way_begins_behind_it_or_shuts_it_out(
    wire: KafkaProxy,
    scene: Scene,
    rounds: Rounds,
    beside: ThreadPoolExecutor,
    holding: type[Delay | DelayAnswers],
    mark: int,
    counts: bool,
) -> None:
    with wire.under(holding([END_TXN], seconds=ENDLESS)) as held:
        sealed = beside.submit(rounds.seal, 3)
        wait_until(lambda: held.is_holding, within=10, what="the commit is on its way")
        wait_for_mark(scene, mark)
        other = Rounds(scene, rounds.member)
        assert other.mark == mark
        assert held.is_holding
    assert sealed.result(60) is counts
    other.check()
    go_on(other)


@pytest.mark.parametrize("is_done", [False, True], ids=["not done", "done"])
@pytest.mark.parametrize(
    "error",
    [KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.UNKNOWN, KafkaError.UNKNOWN_PRODUCER_ID],
    ids=["retriable", "unknown", "lost count"],
)
def test_a_commit_that_is_answered_with_an_error_is_looked_up(
    wire: KafkaProxy, rounds: Rounds, beside: ThreadPoolExecutor, error: int, is_done: bool
) -> None:
    with wire.under(AnswerEnds(error, is_done=is_done)) as refusal:
        sealed = beside.submit(rounds.seal, 3)
        wait_until(lambda: refusal.struck > 0, within=10, what="an error for an answer")
    goes_on = sealed.result(60)
    rounds.begin()
    assert rounds.mark == (5 if is_done or goes_on else 2)
    go_on(rounds)


def test_marks_that_are_refused_for_a_while_are_sent_again(
    wire: KafkaProxy, scene: Scene, rounds: Rounds, beside: ThreadPoolExecutor
) -> None:
    with wire.under(RefuseCommits(COORDINATOR_LOAD_IN_PROGRESS)) as refusal:
        sealed = beside.submit(rounds.seal, 3)
        wait_until(lambda: refusal.struck > 1, within=10, what="a second try is refused as well")
        assert scene.mark() == 2
    assert sealed.result(60), "the round goes on"
    rounds.begin()
    assert rounds.mark == 5
    go_on(rounds)


@pytest.mark.parametrize(
    "error",
    [COORDINATOR_LOAD_IN_PROGRESS, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID],
    ids=["loading", "generation", "member"],
)
def test_marks_that_are_not_taken_leave_no_output_and_the_next_round_begins_before_them(
    wire: KafkaProxy, rounds: Rounds, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    with monkeypatch.context() as patch, wire.under(RefuseCommits(error)) as refusal:
        patch.setattr(transactions, "ANSWER_SECONDS", 2.0)
        assert not rounds.seal(3), "the round has ended"
        assert refusal.struck > 0
        rounds.begin()
        assert rounds.mark == 2
        rounds.check()
    go_on(rounds)
