"""What happens after a failure: every verdict from a table, every row that makes no sense refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

import tidegate as tg
from tidegate import policy
from tidegate.errors import SettingsError, TimedOut, Undecodable, WorkerDied
from tidegate.policy import Again, Later, Policy, Row, Terminal, Verdict, decide
from tidegate.records import Tries

STOP, DEAD, SKIP = Terminal("stop"), Terminal("dead_letter"), Terminal("skip")


def row(*steps: object) -> Row:
    return Policy().with_row(steps).rows[0]


FULL = row(
    tg.hold("500ms", "4s"), tg.retry(2, wait=1, factor=3, limit=2), tg.retry_later("1m", "10m"), tg.dead_letter()
)

TABLE: list[tuple[str, Row, BaseException, Tries, float, bool, Verdict]] = [
    ("nothing chosen", Row(), ValueError(), Tries(), 0, False, STOP),
    ("unavailable without hold", Row(), tg.Unavailable(), Tries(), 0, False, STOP),
    ("first attempt in place", FULL, ValueError(), Tries(), 0, False, Again(1, Tries(1))),
    ("second, up to the limit", FULL, ValueError(), Tries(1), 0, False, Again(2, Tries(2))),
    ("then the first delay", FULL, ValueError(), Tries(2), 0, False, Later(60)),
    ("from the first delay to the second", FULL, ValueError(), Tries(2), 60, False, Later(600)),
    ("from a delay that is no longer named", FULL, ValueError(), Tries(2), 300, False, Later(600)),
    ("after the last delay", FULL, ValueError(), Tries(2), 600, False, DEAD),
    ("rejected", FULL, tg.Reject(), Tries(), 0, False, DEAD),
    ("rejected, in the middle", FULL, tg.Reject(), Tries(1, 5), 60, True, DEAD),
    ("undecodable is not tried in place", FULL, Undecodable(), Tries(), 0, False, Later(60)),
    ("a dead worker is not tried in place", FULL, WorkerDied(), Tries(), 0, False, Later(60)),
    ("an attempt that took too long is", FULL, TimedOut(), Tries(), 0, False, Again(1, Tries(1))),
    ("away", FULL, tg.Unavailable(), Tries(), 0, False, Again(0.5, Tries(0, 1), is_hold=True)),
    ("still away", FULL, tg.Unavailable(), Tries(0, 2), 0, False, Again(2, Tries(0, 3), is_hold=True)),
    ("away for long", FULL, tg.Unavailable(), Tries(0, 99), 0, False, Again(4, Tries(0, 100), is_hold=True)),
    (
        "away, asks for longer",
        FULL,
        tg.Unavailable(retry_after=9),
        Tries(),
        0,
        False,
        Again(9, Tries(0, 1), is_hold=True),
    ),
    (
        "away, asks for less",
        FULL,
        tg.Unavailable(retry_after=0.1),
        Tries(),
        0,
        False,
        Again(0.5, Tries(0, 1), is_hold=True),
    ),
    ("away alone", FULL, tg.Unavailable(), Tries(0, 1), 0, True, Again(1, Tries(0, 2, 1), is_hold=True)),
    ("away alone, the third time", FULL, tg.Unavailable(), Tries(0, 2, 2), 0, True, Again(1, Tries(1, 2, 2))),
    ("away alone, attempts used up", FULL, tg.Unavailable(), Tries(2, 2, 2), 0, True, Later(60)),
    ("attempts spent before it was away stay spent", FULL, ValueError(), Tries(1, 7), 0, False, Again(2, Tries(2, 7))),
    ("skip", row(tg.skip()), ValueError(), Tries(), 0, False, SKIP),
]


@pytest.mark.parametrize(
    ("_what", "given", "error", "tries", "waited", "others", "expected"),
    TABLE,
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_the_verdict(
    _what: str, given: Row, error: BaseException, tries: Tries, waited: float, others: bool, expected: Verdict
) -> None:
    assert decide(given, error, tries, waited=waited, others_go_on=others, jitter=0) == expected


def test_jitter_shortens_a_wait_by_at_most_half() -> None:
    waits = [decide(FULL, ValueError(), Tries(), waited=0, others_go_on=False, jitter=one) for one in (0, 0.5, 1)]
    assert [one.wait for one in waits if isinstance(one, Again)] == [1, 0.75, 0.5]


def test_a_record_that_keeps_failing_reaches_the_end_of_its_row_after_as_many_attempts_as_it_names() -> None:
    attempts, waited = 0, 0.0
    for _ in range(3):  # the first pass, and one from each retry topic
        tries = Tries()
        while True:
            attempts += 1
            verdict = decide(FULL, ValueError(), tries, waited=waited, others_go_on=False, jitter=0)
            if not isinstance(verdict, Again):
                break
            tries = verdict.tries
        waited = verdict.delay if isinstance(verdict, Later) else -1
    assert (attempts, verdict) == (9, DEAD)


def test_the_first_row_that_takes_an_error_decides() -> None:
    policy = Policy().with_row([TimeoutError, KeyError, tg.retry(5), tg.stop()]).with_row([tg.dead_letter()])
    assert policy.row_for(TimeoutError).retry == tg.retry(5)
    assert policy.row_for(KeyError).terminal == STOP
    assert policy.row_for(ValueError).terminal == DEAD
    only = Policy().with_row([TimeoutError, tg.skip()])
    assert only.row_for(ValueError).terminal == STOP


def test_a_row_without_an_end_stops() -> None:
    assert row(tg.retry(1)).terminal == STOP


SENSELESS: list[tuple[tuple[object, ...], str]] = [
    ((), "empty"),
    ((ValueError,), "empty"),
    ((tg.dead_letter(), tg.retry(3)), "order"),
    ((tg.retry(3), tg.hold()), "order"),
    ((tg.stop(), tg.skip()), "two steps"),
    ((tg.retry(3), tg.retry(4)), "two steps"),
    ((tg.stop,), "call it"),
    (("stop",), "no step"),
    ((tg.retry(3), ValueError, tg.stop()), "no step"),
    ((TimeoutError, tg.hold(), tg.stop()), "Unavailable"),
]


@pytest.mark.parametrize(("steps", "why"), SENSELESS)
def test_a_row_that_makes_no_sense_is_refused(steps: tuple[object, ...], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        tg.from_kafka("t", group="g").on_error(*steps)


STEPS: list[tuple[Callable[[], object], str]] = [
    (lambda: tg.retry(0), "1 or more"),
    (lambda: tg.retry(True), "1 or more"),
    (lambda: tg.retry(3, wait="1m"), "at most limit"),
    (lambda: tg.retry(3, factor=0.5), "factor"),
    (lambda: tg.hold(wait="5s"), "at most limit"),
    (lambda: tg.hold(wait=0), "more than 0"),
    (tg.retry_later, "no delay"),
    (lambda: tg.retry_later("10m", "1m"), "longer than"),
    (lambda: tg.retry_later("1m", "60s"), "longer than"),
    (lambda: tg.retry_later("soon"), "not a duration"),
    (lambda: tg.retry_later(0.0001), "milliseconds"),
]


@pytest.mark.parametrize(("make", "why"), STEPS)
def test_a_step_that_cannot_work_is_refused(make: Callable[[], object], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        make()


def test_rows_stand_in_an_order_in_which_each_can_be_reached() -> None:
    general = tg.from_kafka("t", group="g").on_error(tg.dead_letter())
    with pytest.raises(SettingsError, match="chosen error types first"):
        general.on_error(TimeoutError, tg.stop())
    with pytest.raises(SettingsError, match="keep one"):
        general.on_error(tg.skip())


def test_retry_later_needs_an_order_that_lets_others_pass() -> None:
    pipeline = tg.from_kafka("t", group="g").sink(print).on_error(tg.retry_later("1m"), tg.dead_letter())
    with pytest.raises(SettingsError, match="order is 'partition'"):
        pipeline.plan()
    assert pipeline.parallel(order="key").plan().order == "key"
    with pytest.raises(SettingsError, match="unknown"):
        pipeline.parallel(order="sideways")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="twice"):
        pipeline.parallel(order="key").parallel(order="none")


def test_what_happens_to_a_failed_record_is_said_in_a_sentence() -> None:
    policy = (
        Policy()
        .with_row([TimeoutError, tg.stop()])
        .with_row([tg.hold(), tg.retry(3), tg.retry_later("1m", "90s"), tg.dead_letter()])
    )
    assert policy.sentence() == (
        "a record that fails waits while a sink is away, then is tried again in place 3 times, then is tried "
        "again after 1m, 90s, then goes to the dead letters; on TimeoutError it ends the run"
    )
    assert Policy().sentence() == "a record that fails ends the run"


class NoNumber:
    """What somebody might hand on."""

    def __float__(self) -> float:
        raise RuntimeError("no number")


class Bare(tg.Unavailable):
    """A user's own, which forgets to make what it is."""

    def __init__(self) -> None:
        pass


def test_an_error_of_a_users_own_that_asks_for_nothing_waits_as_others_do() -> None:
    verdict = decide(row(tg.hold()), Bare(), Tries(), waited=0.0, others_go_on=False, jitter=0.0)
    assert isinstance(verdict, Again)
    assert verdict.wait == 0.5


@pytest.mark.parametrize(
    ("asked", "wait"),
    [
        ("7", 7.0),
        (timedelta(seconds=8), 8.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 0.5),
        (float("inf"), policy.LONGEST_ASKED),
        (float("nan"), 0.5),
        (-1, 0.5),
        (10**400, 0.5),
        (timedelta.max, policy.LONGEST_ASKED),
        (timedelta.min, 0.5),
        (NoNumber(), 0.5),
    ],
)
def test_what_a_sink_asks_to_wait_is_a_time_or_counts_for_nothing(asked: object, wait: float) -> None:
    away = tg.Unavailable("come back later", retry_after=asked)  # type: ignore[arg-type]  # as users hand a header on
    verdict = decide(row(tg.hold()), away, Tries(), waited=0.0, others_go_on=False, jitter=0.0)
    assert isinstance(verdict, Again)
    assert verdict.wait == wait
