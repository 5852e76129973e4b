"""A record that fails: tried again, written elsewhere, skipped; never lost, never in silence."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.spark.conftest import Beside, World, channel
from tests.support import PROOF, wait_until
from tidegate.kafka.configs import TopicConfigs

CHANNEL = [pytest.param(True, id="live"), pytest.param(False, id="plain")]
"""For what each of the two does in its own way; `channel` is for the rest."""


class Calls:
    """Notes every call, in whichever worker: a file with one line each."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, what: object) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{what}\n")

    def all(self) -> list[str]:
        return self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    return Calls(tmp_path / "calls")


def refuse_bad(value: bytes) -> bytes:
    if value.startswith(b"bad"):
        raise ValueError(f"is no good: {value!r}")
    return value


@channel("live")
def test_a_dead_letter_holds_the_raw_record_and_why_it_failed(world: World, live: bool) -> None:
    world.settings = {"live": live}
    world.produce([b"a"])
    world.produce([b"bad \xff\x00"], key=b"\xfe key", headers=[("trace", b"\x00\x01"), ("none", None)])
    world.produce([b"c"])
    report = world.run(world.pipeline().map(refuse_bad).sink(world.trail).on_error(tg.dead_letter()))

    assert world.trail.offsets() == [0, 2]
    assert (report.settled, report.dead, report.exit_code, world.mark()) == (2, 1, 0, 3)
    [(copy, letter)] = world.copies("dead")
    assert (letter.key, letter.value) == (b"\xfe key", b"bad \xff\x00")
    assert letter.headers[:2] == (("trace", b"\x00\x01"), ("none", None))
    assert (copy.origin.topic, copy.origin.partition, copy.origin.offset) == (world.topic, 0, 1)
    assert copy.stable_id == f"{world.group}:{world.topic}:0:1"
    assert (copy.attempt, copy.error_type, copy.delay) == (1, "ValueError", None)
    assert "is no good" in copy.error_message
    assert copy.traceback.splitlines()[1].endswith("in refuse_bad"), "the user's function, not ours"


def test_what_cannot_be_decoded_fails_alone_and_is_not_tried_in_place(world: World, calls: Calls) -> None:
    def decode(value: bytes | None) -> Any:
        calls.note(value)
        return tg.json(value)

    def deep(value: Any) -> Any:
        if value == "deep":
            return deep(value) + 1
        if value == "lock":
            raise tg.Reject(threading.Lock())
        if value == "odd":
            raise Odd
        return value

    class Odd(Exception):
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __str__(self) -> str:
            raise RuntimeError("not even this")

    world.produce([b"\xff\xfe", None, b'"fine"', b"{", b'"deep"', b'"lock"', b'"odd"', b"7"])
    pipeline = world.pipeline().map(decode).map(deep).sink(world.trail)
    report = world.run(pipeline.on_error(tg.retry(1, wait="1ms"), tg.dead_letter()))

    assert world.trail.offsets() == [1, 2, 7]
    assert world.trail.values() == ["None", "'fine'", "7"]
    kinds = {copy.origin.offset: (copy.error_type, copy.attempt) for copy, _ in world.copies("dead")}
    assert kinds == {
        0: ("Undecodable", 1),
        3: ("Undecodable", 1),
        4: ("RecursionError", 2),
        5: ("Reject", 1),
        6: ("Odd", 2),
    }
    assert (report.settled, report.dead) == (3, 5)


@pytest.mark.parametrize(
    ("order", "live"),
    [("partition", True), ("none", False), *([("partition", False), ("none", True)] if PROOF else ())],
)
def test_a_thousand_failing_of_ten_thousand_cost_their_attempts_and_no_call_more(
    make_world: Callable[..., World], calls: Calls, order: str, live: bool
) -> None:
    world = make_world(4)
    world.settings = {"live": live}
    for partition in range(4):
        world.produce([("bad" if one % 10 == 3 else "ok").encode() for one in range(2500)], partition)

    def work(value: bytes) -> bytes:
        record = tg.current()
        calls.note(f"{record.partition}:{record.offset}")
        return refuse_bad(value)

    pipeline = world.pipeline().map(work).sink(world.trail).parallel(order=order)  # type: ignore[arg-type]
    report = world.run(pipeline.on_error(tg.retry(2, wait="1ms"), tg.dead_letter()))

    bad = {(partition, one) for partition in range(4) for one in range(3, 2500, 10)}
    good = {(partition, one) for partition in range(4) for one in range(2500)} - bad
    expected = {f"{partition}:{one}": 3 if (partition, one) in bad else 1 for partition, one in good | bad}
    assert Counter(calls.all()) == expected
    assert Counter(world.trail.ids()) == Counter(good)
    assert Counter((copy.origin.partition, copy.origin.offset) for copy, _ in world.copies("dead")) == Counter(bad)
    assert (report.settled, report.dead) == (9000, 1000)
    assert [world.mark(partition) for partition in range(4)] == [2500] * 4


@channel("plain")
def test_a_record_walks_the_delays_and_is_never_early(world: World, live: bool) -> None:
    world.settings = {"live": live}
    world.produce([b"a", b"bad", b"c"])
    row = (tg.retry(1, wait="1ms"), tg.retry_later("1s", "3s"), tg.dead_letter())
    report = world.run(world.pipeline().map(refuse_bad).sink(world.trail).parallel(order="none").on_error(*row))

    assert world.trail.offsets() == [0, 2]
    assert (report.retried, report.dead, report.settled) == (2, 1, 2)
    [(first, one)], [(second, three)], [(last, _)] = (world.copies(name) for name in ("retry.1s", "retry.3s", "dead"))
    assert [copy.attempt for copy in (first, second, last)] == [2, 4, 6]
    assert [copy.delay for copy in (first, second, last)] == ["1s", "3s", None]
    assert {copy.stable_id for copy in (first, second, last)} == {f"{world.group}:{world.topic}:0:1"}
    assert [past.place for past in last.history] == [
        f"{world.topic}[0]:1",
        f"{world.group}.retry.1s[0]:0",
        f"{world.group}.retry.3s[0]:0",
    ]
    # Worker and broker share this machine's clock, so that one may be compared with the other here.
    for copy, delay, past in ((one, 1, last.history[1]), (three, 3, last.history[2])):
        assert copy.timestamp is not None
        late = past.at_ms / 1000 - copy.timestamp.timestamp() - delay
        assert late >= 0, "never early"
        assert late < 1.0 * 5, "promised within a second when lanes are free"


def test_a_record_that_is_not_due_holds_no_other(world: World) -> None:
    def work(value: bytes) -> bytes:
        if tg.current().attempt == 1 and value == b"short":
            raise ValueError(value)
        if value == b"long":
            raise KeyError(value)
        return value

    def wait_for_it() -> None:
        wait_until(lambda: world.trail.offsets() == [2, 1, 3], within=90, what="the short one and the new one")

    world.produce([b"long", b"short", b"other"])
    pipeline = (
        world.pipeline()
        .map(work)
        .sink(world.trail)
        .parallel(order="none")
        .on_error(KeyError, tg.retry_later("1h"), tg.dead_letter())
        .on_error(tg.retry_later("1s"), tg.dead_letter())
    )

    def short_then_new() -> None:
        wait_until(lambda: world.trail.offsets() == [2, 1], within=90, what="the short one")
        world.produce([b"new"])
        wait_for_it()

    beside = Beside(short_then_new)
    report = world.run(pipeline, until="stopped")
    beside.check()
    assert (report.retried, report.dead) == (2, 0)
    assert len(world.copies("retry.1h")) == 1


def test_retries_that_are_left_are_taken_up_by_the_next_run_with_their_attempts(world: World) -> None:
    world.produce([b"a", b"bad", b"c"])

    def pipeline(function: Callable[[bytes], bytes]) -> tg.Pipeline:
        made = world.pipeline().map(function).sink(world.trail).parallel(order="none")
        return made.on_error(tg.retry_later("500ms"), tg.dead_letter())

    report = world.run_leaving_retries(pipeline(refuse_bad))
    assert (report.settled, report.retried, report.dead, world.mark()) == (2, 1, 0, 3)

    def mended(value: bytes) -> bytes:
        assert tg.current().attempt == (2 if value == b"bad" else 1)
        return value

    report = world.run(pipeline(mended))
    assert (report.settled, report.retried, report.dead) == (1, 0, 0)
    assert world.trail.lines()[-1].split()[:4] == [world.topic, "0", "1", f"{world.group}:{world.topic}:0:1"]


def test_retry_topics_are_read_even_when_the_row_no_longer_names_them(world: World) -> None:
    world.produce([b"bad"])
    made = world.pipeline().sink(world.trail).parallel(order="none")
    failing = world.pipeline().map(refuse_bad).sink(world.trail).parallel(order="none")
    world.run_leaving_retries(failing.on_error(tg.retry_later("500ms"), tg.dead_letter()))
    report = world.run(made)
    assert (report.settled, world.trail.offsets()) == (1, [0])


def test_rows_for_chosen_errors_and_rejects_choose_the_way(world: World, calls: Calls) -> None:
    def work(value: bytes) -> bytes:
        calls.note(value.decode())
        kinds = {b"reject": tg.Reject, b"skip": KeyError, b"dead": ValueError, b"stop": TimeoutError}
        if value in kinds:
            raise kinds[value](value)
        return value

    world.produce([b"reject", b"skip", b"ok", b"dead", b"stop", b"never"])
    pipeline = (
        world.pipeline()
        .map(work)
        .sink(world.trail)
        .on_error(KeyError, tg.skip())
        .on_error(TimeoutError, tg.retry(1, wait="1ms"), tg.stop())
        .on_error(tg.retry(2, wait="1ms"), tg.dead_letter())
    )
    report = world.run(pipeline)
    assert Counter(calls.all()) == {"reject": 1, "skip": 1, "ok": 1, "dead": 3, "stop": 2}
    assert [copy.origin.offset for copy, _ in world.copies("dead")] == [0, 3]
    assert (report.settled, report.dead, report.skipped, report.exit_code) == (1, 2, 1, 3)
    assert report.failure is not None
    assert (report.failure.record_offset, report.failure.error_type, report.failure.attempts) == (4, "TimeoutError", 2)
    assert (world.mark(), world.trail.offsets()) == (4, [2])


@pytest.mark.parametrize("live", CHANNEL)
def test_long_waits_in_place_hold_their_partition_only_and_spend_no_attempt_twice(
    make_world: Callable[..., World], calls: Calls, live: bool
) -> None:
    world = make_world(2)
    world.settings = {"live": live, "commit_every": 1.0}
    world.produce([b"a", b"bad", b"c"], 0)
    world.produce([str(one).encode() for one in range(20)], 1)

    def work(value: bytes) -> bytes:
        calls.note(f"{value.decode()} {tg.current().attempt}")
        return refuse_bad(value)

    row = (tg.retry(2, wait="1500ms", factor=1), tg.dead_letter())
    report = world.run(world.pipeline().map(work).sink(world.trail).on_error(*row))
    assert [one for one in calls.all() if one.startswith("bad")] == ["bad 1", "bad 2", "bad 3"]
    assert world.trail.offsets(0) == [0, 2], "in order: the third waited for the second's end"
    places = world.trail.ids()
    assert places.index((1, 19)) < places.index((0, 2)), "the other partition did not wait"
    assert (report.dead, world.mark(0), world.mark(1)) == (1, 3, 20)


@channel("live")
def test_by_key_a_failing_record_holds_its_key_back_and_nothing_else(world: World, live: bool) -> None:
    world.settings = {"live": live}

    def work(value: bytes) -> bytes:
        if value == b"a1" and tg.current().attempt < 3:
            raise ValueError("not yet")
        return value

    for value in ("a1", "b1", "a2", "b2", "a3"):
        world.produce([value.encode()], key=value[0].encode())
    world.produce([b"free"])
    pipeline = world.pipeline().map(work).sink(world.trail).parallel(order="key")
    report = world.run(pipeline.on_error(tg.retry(3, wait="300ms"), tg.stop()))
    values = [value.strip("b'") for value in world.trail.values()]
    assert [one for one in values if one.startswith("a")] == ["a1", "a2", "a3"]
    assert values.index("free") < values.index("a1")
    assert report.exit_code == 0
    assert world.mark() == 6


@channel("plain")
def test_while_a_sink_is_away_nothing_is_spent_and_work_resumes_when_it_is_back(
    make_world: Callable[..., World], calls: Calls, tmp_path: Path, live: bool
) -> None:
    world = make_world(2)
    world.settings = {"live": live}
    away, back_at, trail = tmp_path / "away", [], world.trail
    away.touch()
    for partition in range(2):
        world.produce([str(one).encode() for one in range(50)], partition)

    def sink(value: bytes) -> None:
        if away.exists():
            calls.note(f"away {tg.current().attempt}")
            raise tg.Unavailable("the sink is away")
        trail(value)

    def come_back() -> None:
        wait_until(lambda: len(calls.all()) >= 8, within=90, what="some tries")
        away.unlink()
        back_at.append(time.monotonic())
        wait_until(lambda: bool(world.trail.lines()), within=60, what="work goes on")
        back_at.append(time.monotonic())

    beside = Beside(come_back, stops=False)
    row = (tg.hold(), tg.retry(1, wait="1ms"), tg.dead_letter())
    report = world.run(world.pipeline().sink(sink).on_error(*row))
    beside.check()
    assert back_at[1] - back_at[0] < 5.0 * 3, "promised within five seconds"
    assert Counter(world.trail.ids()) == Counter((p, one) for p in range(2) for one in range(50))
    assert (report.dead, report.settled, world.copies("dead")) == (0, 100, [])
    assert set(calls.all()) == {"away 1"}, "no attempt is spent on a sink that is away"
    assert report.counts.held == len(calls.all())


def test_filters_prove_nothing_while_a_sink_is_away(make_world: Callable[..., World], tmp_path: Path) -> None:
    world = make_world(2)
    away, trail = tmp_path / "away", world.trail
    away.touch()
    world.produce([b"keep"] * 3, 0)
    world.produce([b"drop"] * 200, 1)
    tries = Calls(tmp_path / "tries")

    def sink(value: bytes) -> None:
        if away.exists():
            tries.note("away")
            raise tg.Unavailable("the sink is away")
        trail(value)

    def more_that_is_dropped() -> None:
        for count in range(2, 9):
            world.produce([b"drop"] * 10, 1)
            wait_until(lambda count=count: len(tries.all()) >= count, within=60, what="another try")  # type: ignore[misc]
        away.unlink()
        wait_until(lambda: world.trail.offsets() == [0, 1, 2], within=60, what="the rest")

    beside = Beside(more_that_is_dropped)
    pipeline = world.pipeline().filter(lambda value: value == b"keep").sink(sink)
    report = world.run(pipeline.on_error(tg.hold("100ms", "500ms"), tg.dead_letter()), until="stopped")
    beside.check()
    assert report.dead == 0


@pytest.mark.parametrize("live", CHANNEL)
def test_one_record_that_alone_finds_the_sink_away_goes_on_along_the_row(
    make_world: Callable[..., World], live: bool
) -> None:
    world = make_world(2)
    trail = world.trail
    world.settings = {"live": live, "commit_every": 1.0}
    counts = {0: 10, 1: 100 if live else 200}
    for partition, count in counts.items():
        world.produce([b"lonely" if (partition, one) == (0, 5) else b"ok" for one in range(count)], partition)

    def sink(value: bytes) -> None:
        if value == b"lonely":
            raise tg.Unavailable("for this one alone")
        time.sleep(0.05)
        trail(value)

    report = world.run(world.pipeline().sink(sink).on_error(tg.hold("100ms", "400ms"), tg.dead_letter()))
    everything = {(partition, one) for partition, count in counts.items() for one in range(count)}
    assert Counter(world.trail.ids()) == Counter(everything - {(0, 5)})
    assert [(copy.origin.partition, copy.origin.offset) for copy, _ in world.copies("dead")] == [(0, 5)]
    assert report.dead == 1


@channel("live")
def test_a_record_that_ends_its_worker_or_takes_too_long_goes_to_the_dead_letters(world: World, live: bool) -> None:
    world.settings = {"live": live}

    def work(value: bytes) -> bytes:
        if value == b"exit":
            os._exit(7)
        if value == b"slow":
            time.sleep(30)
        return value

    world.produce([b"a", b"exit", b"b", b"slow", b"c"])
    pipeline = world.pipeline().map(work).sink(world.trail).parallel(timeout="1s")
    report = world.run(pipeline.on_error(tg.retry(1, wait="1ms"), tg.dead_letter()))
    assert sorted(set(world.trail.offsets())) == [0, 2, 4]
    kinds = {copy.origin.offset: (copy.error_type, copy.attempt) for copy, _ in world.copies("dead")}
    assert kinds == {1: ("WorkerDied", 2), 3: ("TimedOut", 2)}
    assert (report.dead, world.mark()) == (2, 5)


def test_a_copy_that_the_broker_refuses_stops_its_partition_until_it_is_taken(world: World) -> None:
    configs = TopicConfigs(world.admin)
    dead = f"{world.group}.dead"
    pipeline = world.pipeline().map(refuse_bad).sink(world.trail).on_error(tg.dead_letter())

    def make_the_dead_letters_small() -> None:
        wait_until(lambda: world.mark() == 1, within=60, what="the first record is committed")
        configs.change(dead, {"max.message.bytes": "1000"})
        # Bytes that compression does not make much smaller: copies are compressed on their way.
        world.produce([b"bad" + random.Random(7).randbytes(5000).hex().encode(), b"after"])

    world.produce([b"a"])
    beside = Beside(make_the_dead_letters_small, stops=False)
    report = world.run(pipeline, until="stopped")
    beside.check()
    assert report.exit_code == 3
    assert report.failure is not None
    assert report.failure.error_type == "CopyRefused"
    assert dead in report.failure.message
    assert "is no good" in report.failure.message, "why it failed in the first place"
    assert world.mark() == 1
    assert world.copies("dead") == []

    report = world.run(pipeline)  # the start sets the topic right
    assert (report.dead, world.mark()) == (1, 3)
    assert [copy.origin.offset for copy, _ in world.copies("dead")] == [1]
    assert sorted(set(world.trail.offsets())) == [0, 2]


def test_the_groups_own_topics_are_made_as_they_should_be(make_world: Callable[..., World]) -> None:
    world = make_world(3, {"max.message.bytes": "2000000"})
    world.produce([b"a"])
    pipeline = world.pipeline().sink(world.trail).parallel(order="none")
    world.run(pipeline.on_error(tg.retry_later("1m"), tg.dead_letter()))
    names = [f"{world.group}.{one}" for one in ("retry.1m", "redrive", "dead")]
    assert {info.partitions for info in world.admin.describe(names).values()} == {3}
    found = TopicConfigs(world.admin).read(names)
    day = 86_400_000
    for name, kept in zip(names, (7 * day + 60_000, -1, -1), strict=True):
        assert found[name]["message.timestamp.type"] == "LogAppendTime"
        assert found[name]["cleanup.policy"] == "delete"
        assert found[name]["retention.ms"] == str(kept)
        assert found[name]["max.message.bytes"] == str(2_000_000 + 65_536)


def test_half_done_records_go_on_where_they_stopped_after_a_retry_topic(world: World, calls: Calls) -> None:
    def first(value: bytes) -> None:
        calls.note(f"first {value.decode()}")

    def second(value: bytes) -> None:
        if tg.current().attempt == 1:
            raise ValueError("not yet")
        calls.note(f"second {value.decode()}")

    world.produce([b"x"])
    pipeline = world.pipeline().sink(first).sink(second).parallel(order="none")
    report = world.run(pipeline.on_error(tg.retry_later("300ms"), tg.dead_letter()))
    assert calls.all() == ["first x", "second x"], "the sink that had it is not called again"
    assert (report.retried, report.settled) == (1, 1)


def test_history_is_plain_text_in_a_header(world: World) -> None:
    world.produce([b"bad"])
    world.run(world.pipeline().map(refuse_bad).sink(world.trail).on_error(tg.dead_letter()))
    [(_, letter)] = world.copies("dead")
    history = json.loads(dict(letter.headers)["tidegate-history"] or b"")
    assert [(one["place"], one["error_type"]) for one in history] == [(f"{world.topic}[0]:0", "ValueError")]


@pytest.mark.parametrize("live", CHANNEL)
def test_a_rate_bounds_all_lanes_together_and_is_used_up_by_one_that_has_work(
    make_world: Callable[..., World], calls: Calls, live: bool
) -> None:
    world = make_world(4)
    world.settings = {"live": live}
    world.produce([b"x"] * 200, 0)  # one lane has nearly all the work
    for partition in (1, 2, 3):
        world.produce([b"x"] * 10, partition)

    def sink(_value: bytes) -> None:
        calls.note(time.time())

    report = world.run(world.pipeline().sink(sink).rate("40/s"))
    at = sorted(map(float, calls.all()))
    assert report.settled == len(at) == 230
    for first in range(len(at)):
        within = sum(1 for one in at[first:] if one < at[first] + 1.0)
        assert within <= 40 + 40 + 2, "the rate, and at most a second's permits that were saved up"
    took = at[-1] - at[0]
    assert took >= 230 / 40 - 1.5
    assert took < 230 / 40 * 4, "the rate is used, not a share of it"
