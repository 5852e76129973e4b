"""One record through the steps."""

from __future__ import annotations

import functools
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from tidegate.context import Hand
from tidegate.steps import Plan, Runner, Sink, Step


class Boom(Exception):
    pass


def build(*steps: Step, sinks: Iterable[Callable[[Any], object] | Sink]) -> Runner:
    made = tuple(sink if isinstance(sink, Sink) else Sink(sink) for sink in sinks)
    return Runner(Plan(tuple(steps), made), Hand("g"))


def test_maps_and_filters_run_in_the_order_written() -> None:
    got: list[int] = []
    runner = build(
        Step("map", lambda x: x + 1),
        Step("filter", lambda x: x % 2 == 0),
        Step("map", lambda x: x * 10),
        sinks=[got.append],
    )
    for value in range(5):
        runner.run(value)
    assert got == [20, 40]


def test_a_single_sink_with_when_gets_only_its_values() -> None:
    got: list[int] = []
    runner = build(sinks=[Sink(got.append, when=lambda x: x > 2)])
    for value in range(5):
        runner.run(value)
    assert got == [3, 4]


def test_all_sinks_get_the_value_in_the_order_written() -> None:
    got: list[str] = []
    runner = build(sinks=[lambda v: got.append(f"a{v}"), Sink(lambda v: got.append(f"b{v}"), when=lambda v: v > 1)])
    runner.run(1)
    runner.run(2)
    assert got == ["a1", "a2", "b2"]


def fails_when(flag: list[bool], got: list[Any], name: str) -> Callable[[Any], None]:
    def sink(value: Any) -> None:
        if flag[0]:
            raise Boom(name)
        got.append((name, value))

    return sink


def test_a_repeat_calls_only_the_sinks_that_do_not_have_the_record() -> None:
    got: list[Any] = []
    broken = [True]
    runner = build(sinks=[lambda v: got.append(("first", v)), fails_when(broken, got, "second")])
    with pytest.raises(Boom):
        runner.run(7)
    assert runner.done == {(0, 0)}
    broken[0] = False
    again = build(sinks=[lambda v: got.append(("first", v)), fails_when(broken, got, "second")])
    again.resume(frozenset({(0, 0)}))
    again.run(7)
    assert got == [("first", 7), ("second", 7)]
    again.run(8)
    assert got[2:] == [("first", 8), ("second", 8)], "what was done belongs to one record only"


def test_a_later_sink_is_not_called_when_an_earlier_one_failed() -> None:
    got: list[Any] = []
    runner = build(sinks=[fails_when([True], got, "charge"), lambda v: got.append(("receipt", v))])
    with pytest.raises(Boom):
        runner.run(1)
    assert got == []
    assert runner.done == frozenset()


def test_children_keep_their_numbers_when_brothers_are_dropped() -> None:
    got: list[int] = []

    def refuse_four(value: int) -> None:
        if value == 4:
            raise Boom
        got.append(value)

    steps = (Step("flat_map", range), Step("filter", lambda x: x % 2 == 0))
    runner = build(*steps, sinks=[refuse_four])
    with pytest.raises(Boom):
        runner.run(6)
    assert got == [0, 2]
    assert runner.done == {(0, 0), (2, 0)}
    again = build(*steps, sinks=[got.append])
    again.resume(runner.done)
    again.run(6)
    assert got == [0, 2, 4]


def test_the_stable_id_tells_children_and_sinks_apart() -> None:
    hand = Hand("g")
    seen: list[str] = []
    plan = Plan(
        (Step("flat_map", range),),
        (Sink(lambda _: seen.append(hand.suffix)), Sink(lambda _: seen.append(hand.suffix))),
    )
    Runner(plan, hand).run(2)
    assert seen == ["/0/0", "/0/1", "/1/0", "/1/1"]
    assert hand.suffix == ""


def first(_value: object) -> None: ...


def second(_value: object) -> None: ...


class Table:
    def __init__(self, name: object) -> None:
        self.name = name

    def __call__(self, value: object) -> None: ...


def test_sinks_without_a_name_of_their_own_are_told_apart_by_their_content() -> None:
    by_lambda = Plan((), (Sink(lambda _: 1), Sink(lambda _: 2)))
    assert by_lambda.fingerprint != Plan((), by_lambda.sinks[::-1]).fingerprint
    by_object = Plan((), (Sink(Table("a")), Sink(Table("b"))))
    assert by_object.fingerprint != Plan((), by_object.sinks[::-1]).fingerprint
    assert by_object.fingerprint == Plan((), (Sink(Table("a")), Sink(Table("b")))).fingerprint


class Writer:
    def __init__(self, table: str) -> None:
        self.table = table
        self.on_error = self.write  # a circle must not matter

    def write(self, _value: object) -> None: ...


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def test_methods_are_told_apart_by_their_objects() -> None:
    assert Plan((), (Sink(Writer("a").write),)).fingerprint != Plan((), (Sink(Writer("b").write),)).fingerprint
    assert Plan((), (Sink(Writer("a").write),)).fingerprint == Plan((), (Sink(Writer("a").write),)).fingerprint


def test_functions_of_one_name_are_told_apart_by_their_modules() -> None:
    other = FunctionType(first.__code__, {}, "first")
    other.__module__ = "elsewhere"
    assert Plan((), (Sink(first),)).fingerprint != Plan((), (Sink(other),)).fingerprint


@pytest.mark.parametrize(
    ("one", "other"),
    [(Colour.RED, Colour.BLUE), (("a", 1), ("a", 2)), (first, second), (Path("a"), Path("b"))],
)
def test_what_a_partial_holds_tells_sinks_apart_where_it_never_changes(one: object, other: object) -> None:
    before = Plan((), (Sink(functools.partial(max, one)),))
    assert before.fingerprint != Plan((), (Sink(functools.partial(max, other)),)).fingerprint
    assert before.fingerprint == Plan((), (Sink(functools.partial(max, one)),)).fingerprint


class Counting:
    """Its text changes while it is used, and from process to process."""

    def __init__(self) -> None:
        self.seen = {f"{random.random()}"}

    def __repr__(self) -> str:
        return f"Counting({self.seen})"

    def __call__(self, value: object) -> None:
        self.seen.add(str(value))


@pytest.mark.parametrize("make", [Counting, lambda: functools.partial(max, Counting()), lambda: Table(Counting())])
def test_what_a_sink_gathers_while_it_is_used_does_not_make_it_another(
    make: Callable[[], Callable[..., object]],
) -> None:
    assert Plan((), (Sink(make()),)).fingerprint == Plan((), (Sink(make()),)).fingerprint


def test_a_plan_knows_its_sinks_as_they_were_before_they_were_used() -> None:
    table = Table("a")
    plan = Plan((), (Sink(table),))
    before = plan.fingerprint
    table.name = "b"
    assert plan.fingerprint == before


def into(table: str) -> Callable[[object], None]:
    def write(_value: object) -> None:
        max(table)

    return write


@pytest.mark.parametrize(
    "make",
    [
        lambda table: functools.partial(max, table),
        lambda table: functools.partial(max, default=table),
        lambda table: lambda value, table=table: max(table, value),
        lambda table: lambda value: max(table, value),
        into,
    ],
    ids=["partial", "partial by name", "default", "closure", "closure with a name"],
)
def test_sinks_that_one_line_makes_are_told_apart_by_what_they_were_made_with(
    make: Callable[[str], Callable[[object], None]],
) -> None:
    before = Plan((), (Sink(make("a")), Sink(make("b"))))
    assert before.fingerprint != Plan((), (Sink(make("b")), Sink(make("c")))).fingerprint
    assert before.fingerprint == Plan((), (Sink(make("a")), Sink(make("b")))).fingerprint


IN_ANOTHER_PROCESS = """
from tidegate.steps import Plan, Sink
chosen = lambda value: max(value) if value in {"a", "b", "c", "d", "e"} else None
each = lambda value: max(one for one in value)
within = lambda value: max(map(lambda one: one in {"a", "b", "c", "d", "e"}, value))
print([Plan((), (Sink(one),)).fingerprint for one in (chosen, each, within)])
"""


def test_a_sink_without_a_name_is_the_same_one_after_a_restart() -> None:
    told = [
        subprocess.run(
            [sys.executable, "-c", IN_ANOTHER_PROCESS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1]


def test_sinks_without_a_name_are_told_apart_by_what_is_written_inside_them() -> None:
    one, other = Plan((), (Sink(lambda _: [*(1 for _ in "a")]),)), Plan((), (Sink(lambda _: [*(2 for _ in "a")]),))
    assert one.fingerprint != other.fingerprint


def test_the_fingerprint_changes_with_the_sinks() -> None:
    one, other = Plan((), (Sink(first), Sink(second))), Plan((), (Sink(second), Sink(first)))
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint == Plan((Step("map", str),), (Sink(first), Sink(second))).fingerprint


def test_a_flat_map_that_returns_one_value_is_named() -> None:
    def split(value: int) -> int:
        return value

    runner = build(Step("flat_map", split), sinks=[print])
    with pytest.raises(TypeError, match=r"flat_map\(.*split\) returned int: return a list"):
        runner.run(5)
