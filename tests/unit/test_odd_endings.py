"""Users' functions may end in ways that end a thread, a loop, or the text of their own error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

import tidegate as tg
from tests.unit.test_lonely_rounds import PLACE, Written
from tests.unit.test_progress_is_true import Memory, a_round
from tidegate.engine.attempts import Attempt
from tidegate.engine.failure import failure_at
from tidegate.engine.pool import Ended, Job, LoopPool
from tidegate.kafka.reader import Reader
from tidegate.pipeline import Pipeline


class Unreadable(Exception):
    def __str__(self) -> str:
        raise SystemExit("not even this")


def test_an_error_whose_text_ends_the_thread_is_still_told() -> None:
    failure = failure_at(PLACE, 7, Unreadable(), 1)
    assert (failure.error_type, failure.message) == ("Unreadable", "(no text: SystemExit in its __str__)")


async def leave(_value: object) -> None:
    raise SystemExit(3)


async def look_up(value: bytes) -> bytes:
    if value == b"0":
        await asyncio.gather(leave(value))  # in a task of its own: that ends the loop
    await asyncio.sleep(0.05)
    return value


def test_a_task_of_a_users_own_that_ends_the_loop_fails_its_record_and_no_other() -> None:
    got: list[object] = []
    pool = LoopPool(tg.from_kafka("t", group="g").map(look_up).sink(got.append).parallel(4, order="none").plan(), "g")
    pool.begin_round(20.0)
    for at in range(3):
        pool.submit(Job([Attempt(Written(at))], [(PLACE, at)]))
    ended: list[Ended] = []
    while len(ended) < 3 and (jobs := pool.ended(10.0)):
        ended += [one for job in jobs for one in job.ended]
    pool.close()
    assert sorted(got, key=str) == [b"1", b"2"]
    assert [type(one.error) for one in sorted(ended, key=lambda one: one.attempt.message.offset())] == [
        SystemExit,
        type(None),
        type(None),
    ]


@pytest.mark.parametrize("answer", [None, KafkaException(KafkaError(KafkaError._TRANSPORT))])
def test_a_mark_that_left_its_log_is_told_also_while_nobody_says_where_that_begins(answer: object) -> None:
    def ask(*_: object, **__: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    reader = Reader.__new__(Reader)
    reader.lost = {}
    reader._consumer = SimpleNamespace(get_watermark_offsets=ask)  # type: ignore[assignment]  # all that is asked
    error = SimpleNamespace(code=lambda: KafkaError._AUTO_OFFSET_RESET)
    assert not reader._note(SimpleNamespace(error=lambda: error, topic=lambda: "t", partition=lambda: 0))
    assert reader.lost == {PLACE: -1}


async def as_it_is(value: bytes) -> bytes:
    return value


def made(values: list[object]) -> Iterator[object]:
    yield from values


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_sink_that_only_returns_a_generator_ends_the_run_instead_of_settling_what_it_did_not_do(
    width: int, is_async: bool
) -> None:
    source = tg.from_kafka("t", group="g")
    pipeline = (source.map(as_it_is) if is_async else source).sink(lambda value: made([value]))
    round_ = a_round(pipeline.parallel(width, order="none"), Memory(0, 1), 0)
    round_.work_through()
    outcome = round_.outcome(0.0, has_resources=False)
    assert "returned the generator made" in str(outcome.broken)
    assert outcome.partitions[0].position.mark == 0


async def send(_value: object) -> None: ...


def hand_on(value: object) -> object:
    return send(value)


class Drop:
    """Drops the first records: what is looked at must be the first that reaches the sink, not the first of a round."""

    def __call__(self, value: bytes) -> bool:
        return value == b"2"


@pytest.mark.parametrize(
    "shape",
    [
        lambda source: source.filter(Drop()).sink(hand_on),
        lambda source: source.sink(hand_on, when=Drop()),
        lambda source: source.filter(Drop()).sink(lambda value: made([value])),
        lambda source: source.filter(Drop()).map(hand_on).sink(repr),
        lambda source: source.filter(Drop()).sink(repr).sink(hand_on),
        lambda source: source.filter(Drop()).sink(repr).sink(hand_on, when=Drop()),
        lambda source: source.flat_map(lambda value: [value] * int(value)).sink(hand_on),
    ],
    ids=["filter", "when", "generator", "value", "second of two", "second of two with when", "children"],
)
@pytest.mark.parametrize("row", [(), (tg.skip(),)], ids=["stop", "skip"])
def test_a_sink_that_is_never_run_ends_the_run_though_the_first_records_did_not_reach_it(
    shape: Callable[[Pipeline], Pipeline], row: tuple[object, ...]
) -> None:
    pipeline = shape(tg.from_kafka("t", group="g"))
    round_ = a_round(pipeline.on_error(*row) if row else pipeline, Memory(0, 1, 2, 3), 0)
    round_.work_through()
    outcome = round_.outcome(0.0, has_resources=False)
    assert "which would never be awaited" in str(outcome.broken) or "whose work nobody" in str(outcome.broken)
    assert outcome.partitions[0].position.mark <= 2
